// Cache-line aligned host memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "core/error.h"

namespace openjev::cpu {

struct FreeDeleter {
  void operator()(void* p) const noexcept { std::free(p); }
};
using HostPointer = std::unique_ptr<void, FreeDeleter>;

inline HostPointer allocate_host(std::size_t bytes) {
  constexpr std::size_t kAlign = 64;
  const std::size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  HostPointer p(std::aligned_alloc(kAlign, rounded == 0 ? kAlign : rounded));
  if (!p) fail(ErrorKind::kOutOfMemory, "host memory: ", bytes, " bytes could not be allocated");
  return p;
}

}  // namespace openjev::cpu
