// Weights from a seed, made in backend memory: the speed of a model without its checkpoint.
//
// Scales keep activations finite at any depth: a matrix with elements of variance 1 / cols keeps
// the variance of its input, norms multiply by about 1, decays are those of a trained model in
// size.
#include <cmath>

#include "core/random.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace openjev {
namespace {

constexpr float kResidualGain = 0.5f;  // of what a layer adds to the residual stream
// Wide inputs make silu(q) and silu(k) mostly positive, as in trained models; with q.k around zero
// the norm after the delta rule would amplify every rounding.
constexpr float kMixerGain = 2.0f;

struct Range {
  float centre, half_width;
};

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

Range range_of(const std::string& name) {
  if (ends_with(name, "A_log")) return {1.4f, 1.3f};     // decay rates of 1 to 15
  if (ends_with(name, "dt_bias")) return {-3.0f, 2.0f};  // times softplus(-5 to -1)
  if (ends_with(name, "linear_attn.norm.weight")) return {1.0f, 0.1f};
  return {0.0f, 0.1f};  // the other norms multiply by 1 + w
}

// FNV-1a.
std::uint64_t hash_of_name(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

class SeededSource final : public WeightSource {
 public:
  SeededSource(std::uint64_t seed, Backend& backend) : seed_(seed), backend_(backend) {}

  DType dtype() const override { return DType::kBF16; }

  std::unique_ptr<Matrix> table(const std::string& name, std::int64_t rows,
                                std::int64_t cols) override {
    return backend_.make_random_table(rows, cols, stream_of(name), 1.0f);
  }

  // A uniform value in [-s, s] has variance s^2 / 3.
  std::unique_ptr<Matrix> matrix(const std::vector<WeightPart>& parts, std::int64_t cols) override {
    std::int64_t rows = 0;
    for (const WeightPart& part : parts) rows += part.rows;
    const std::string& name = parts.front().name;
    const bool residual = ends_with(name, "out_proj.weight") || ends_with(name, "o_proj.weight") ||
                          ends_with(name, "down_proj.weight");
    const float gain = residual                                ? kResidualGain
                       : ends_with(name, "in_proj_qkv.weight") ? kMixerGain
                                                               : 1.0f;
    const float scale = std::sqrt(3.0f / static_cast<float>(cols)) * gain;
    return backend_.make_random_matrix(rows, cols, stream_of(name), scale);
  }

  std::vector<float> vector(const std::string& name, std::int64_t width) override {
    return values(name, width, range_of(name));
  }
  std::vector<float> rounded_vector(const std::string& name, std::int64_t width) override {
    return values(name, width, range_of(name));
  }
  std::vector<float> convolution(const std::string& name, std::int64_t channels) override {
    return values(name, 4 * channels, {0.0f, 0.5f});
  }

 private:
  std::uint64_t stream_of(const std::string& name) const {
    return hash_of(seed_, hash_of_name(name));
  }

  std::vector<float> values(const std::string& name, std::int64_t count, Range range) const {
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(
          round_to_bf16(range.centre + uniform_of(stream_of(name), static_cast<std::uint64_t>(i),
                                                  range.half_width)));
    }
    return out;
  }

  std::uint64_t seed_;
  Backend& backend_;
};

}  // namespace

ModelWeights seeded_weights(std::uint64_t seed, const ModelConfig& config, Backend& backend,
                            const Progress& progress) {
  SeededSource source(seed, backend);
  return assemble_weights(config, backend, source, progress);
}

}  // namespace openjev
