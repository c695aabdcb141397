// Names of files as a checkpoint's own JSON gives them.
#pragma once

#include <string_view>

namespace openjev {

// Whether `name` names an entry of a folder and nothing outside it. Only the name is judged: the
// entry may be a symbolic link, as in a download cache.
constexpr bool is_plain_file_name(std::string_view name) noexcept {
  using std::string_view_literals::operator""sv;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos;
}

}  // namespace openjev
