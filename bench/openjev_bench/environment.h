// What a figure depends on besides the code that is measured.
#pragma once

#include <string>

#include "backend/backend.h"

namespace openjev::bench {

std::string version();
std::string commit();  // "unknown" where the build had no repository

// Clocks, power and temperature of the GPU as nvidia-smi reports them now; "unknown" for other
// backends and where it cannot be run.
std::string clocks(const Backend& backend, int device_index);

}  // namespace openjev::bench
