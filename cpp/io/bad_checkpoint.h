// Every refusal of a checkpoint's file reads the same: FILE: WHERE: found FOUND, allowed ALLOWED.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace openjev {

// `text` as a JSON string in ASCII, shortened to a length that suits a message. Any bytes are fine.
std::string text_label(std::string_view text);

inline std::string tensor_label(std::string_view name) { return "tensor " + text_label(name); }

template <class Found, class Allowed>
[[noreturn]] void bad_checkpoint(const std::filesystem::path& file, std::string_view where,
                                 const Found& found, const Allowed& allowed) {
  fail(ErrorKind::kBadCheckpoint, file.string(), ": ", where, ": found ", found, ", allowed ",
       allowed);
}

}  // namespace openjev
