// The numbers of a Qwen3.5 / Qwen3.8 text backbone, from config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace openjev {

enum class LayerKind : std::uint8_t { kLinear, kFull };

struct ModelConfig {
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t max_position_embeddings = 0;
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int32_t rotary_dim = 0;
  double rope_theta = 0;
  float rms_norm_eps = 0;
  DeltaShape delta{};
  bool tied_embeddings = false;
  std::vector<LayerKind> layers;
};

// Reads `text_config` or the flat form. Throws kBadCheckpoint naming the file, the field, what was
// found and what is allowed, for everything this forward pass does not compute.
ModelConfig parse_model_config(const std::string& json_text, const std::string& file);

}  // namespace openjev
