// Device memory of a model, computed and checked before any weight is read.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "engine/engine.h"
#include "model/config.h"

namespace openjev {

// For prompts of up to `most_tokens`. Throws kOutOfMemory with every figure when the device's free
// memory is less.
MemoryPlan plan_memory(const ModelConfig& config, std::int32_t most_tokens, Backend& backend);

}  // namespace openjev
