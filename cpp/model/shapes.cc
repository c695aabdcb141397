#include "model/shapes.h"

#include <array>

#include "core/error.h"

namespace openjev {
namespace {

struct Size {
  const char* name;
  std::int32_t hidden, intermediate, layers, heads, kv_heads, value_heads;
  bool tied;
};

// Qwen3.5 and Qwen3.8 config.json files.
constexpr std::array kSizes = {
    Size{"0.8b", 1024, 3584, 24, 8, 2, 16, true},   Size{"2b", 2048, 6144, 24, 8, 2, 16, true},
    Size{"4b", 2560, 9216, 32, 16, 4, 32, true},    Size{"9b", 4096, 12288, 32, 16, 4, 32, false},
    Size{"27b", 5120, 17408, 64, 24, 4, 48, false},
};
constexpr std::int32_t kFullInterval = 4;

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> out;
  for (const Size& size : kSizes) out.emplace_back(size.name);
  return out;
}

ModelConfig shape_of(const std::string& name, std::int32_t layers) {
  for (const Size& size : kSizes) {
    if (name != size.name) continue;
    if (layers < 0 || layers > size.layers)
      fail(ErrorKind::kBadRequest, "layers ", layers, ": allowed are 0 (all) to ", size.layers);
    ModelConfig config;
    config.vocab_size = 248320;
    config.hidden_size = size.hidden;
    config.intermediate_size = size.intermediate;
    config.max_position_embeddings = 262144;
    config.heads = size.heads;
    config.kv_heads = size.kv_heads;
    config.head_dim = 256;
    config.rotary_dim = 64;
    config.rope_theta = 1e7;
    config.rms_norm_eps = 1e-6f;
    config.delta = {16, size.value_heads, 128, 128};
    config.tied_embeddings = size.tied;
    const std::int32_t count = layers == 0 ? size.layers : layers;
    for (std::int32_t i = 0; i < count; ++i)
      config.layers.push_back((i + 1) % kFullInterval == 0 ? LayerKind::kFull : LayerKind::kLinear);
    return config;
  }
  std::string allowed;
  for (const Size& size : kSizes) allowed += std::string(allowed.empty() ? "" : ", ") + size.name;
  fail(ErrorKind::kBadRequest, "shape ", name, ": unknown; allowed are ", allowed);
}

}  // namespace openjev
