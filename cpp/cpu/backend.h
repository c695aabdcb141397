// The CPU as a backend: the reference, always there.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace openjev::cpu {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

}  // namespace openjev::cpu
