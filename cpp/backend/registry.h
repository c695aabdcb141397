// Backends by name. "cpu" is always there; others are plugins beside the core library, opened at
// run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace openjev {

struct BackendStatus {
  std::string name;
  bool usable;
  std::string detail;  // what it is, or one sentence why it cannot be used
};

// What a plugin exports as openjev_make_backend; the caller owns the result.
using BackendFactory = Backend* (*)(const BackendOptions*);

std::vector<BackendStatus> backends();

// `device` is "cpu", "cuda" or "auto" (the first usable of cuda, cpu). Throws kBadRequest for an
// unknown name and kDeviceUnavailable with the reason for one that cannot run here.
std::unique_ptr<Backend> make_backend(const std::string& device, const BackendOptions& options);

}  // namespace openjev
