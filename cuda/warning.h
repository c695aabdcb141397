// What did not go as documented but stops nothing: a line on standard error.
#pragma once

#include <cstdio>
#include <string>

namespace openjev::cuda {

inline void warn(const std::string& text) { std::fprintf(stderr, "openjev: %s\n", text.c_str()); }

}  // namespace openjev::cuda
