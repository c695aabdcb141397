// The one exception type of the library. Each kind is a cause that a caller can act on; bindings
// map a kind to a Python class of openjev.errors.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace openjev {

enum class ErrorKind {
  kBadRequest,         // the tokens or arguments of this call
  kBadCheckpoint,      // a file or tensor of the checkpoint
  kOutOfLimits,        // a valid request that is larger than a stated limit
  kDeviceUnavailable,  // no such backend, driver or library
  kOutOfMemory,        // host or device memory
  kInternal,           // a broken invariant of ours
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Concatenates anything that streams: fail(ErrorKind::kBadCheckpoint, file, ": tensor ", name, "
// ...").
template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, Parts&&... parts) {
  std::ostringstream text;
  (text << ... << std::forward<Parts>(parts));
  throw Error(kind, text.str());
}

// Checks an invariant of ours, not of the user's input.
template <class... Parts>
void check(bool condition, Parts&&... parts) {
  if (!condition) fail(ErrorKind::kInternal, std::forward<Parts>(parts)...);
}

}  // namespace openjev
