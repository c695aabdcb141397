// The published sizes of the backbone, by name.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace openjev {

std::vector<std::string> shape_names();  // "0.8b", "2b", "4b", "9b", "27b"

// Throws kBadRequest for another name. `layers` > 0 keeps only the first so many.
ModelConfig shape_of(const std::string& name, std::int32_t layers = 0);

}  // namespace openjev
