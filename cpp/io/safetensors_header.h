// The JSON header of a safetensors file, read in one pass without building a document.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "io/safetensors.h"

namespace openjev {

// `header` is the JSON text; the data are the bytes [data_begin, file_size) of `file`, which is
// only named in errors. Throws kBadCheckpoint unless the tensors are well formed and tile the data
// without gap or overlap.
std::map<std::string, TensorInfo> parse_safetensors_header(std::string_view header,
                                                           std::size_t data_begin,
                                                           std::size_t file_size,
                                                           const std::filesystem::path& file);

}  // namespace openjev
