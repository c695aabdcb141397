// The weights of one model in backend memory: the slot table from checkpoint names to what the
// decoder multiplies by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/checkpoint.h"
#include "model/config.h"

namespace openjev {

class Adapter;

// bytes done, bytes in all, what is being loaded
using Progress = std::function<void(std::int64_t, std::int64_t, const std::string&)>;

// A float32 row vector or small matrix in backend memory.
class Parameter {
 public:
  Parameter() = default;
  Parameter(Backend& backend, std::int64_t rows, std::int64_t cols,
            const std::vector<float>& values);
  const View& view() const { return view_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  View view_;
};

struct LinearAttentionWeights {
  std::unique_ptr<Matrix> in_proj;  // qkv | z | b | a, stacked
  std::unique_ptr<Matrix> out_proj;
  Parameter conv;            // [4, conv channels]
  Parameter a_log, dt_bias;  // [1, Hv]
  Parameter norm;            // [1, dv]
};

struct FullAttentionWeights {
  std::unique_ptr<Matrix> qkv;  // per head query | gate, then k, then v, stacked
  std::unique_ptr<Matrix> o_proj;
  Parameter q_norm, k_norm;  // [1, head_dim]
};

struct LayerWeights {
  LayerKind kind = LayerKind::kLinear;
  Parameter input_norm, post_norm;  // [1, H]
  LinearAttentionWeights linear;    // filled for kLinear
  FullAttentionWeights full;        // filled for kFull
  std::unique_ptr<Matrix> gate_up;  // gate | up, stacked
  std::unique_ptr<Matrix> down;
};

struct ModelWeights {
  DType dtype = DType::kBF16;  // of the matrices
  std::unique_ptr<Matrix> embedding;
  std::vector<LayerWeights> layers;
  Parameter final_norm;  // [1, H]
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // resident
};

// Every matrix and vector must have the dtype of embed_tokens, except A_log and linear_attn.norm,
// which may be F32 in a BF16 checkpoint; they are then rounded to BF16, as the reference loads
// them. The embedding keeps reading the mapped file, so `checkpoint` must outlive the result.
ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                          const Progress& progress);

// The same with `adapter` merged into the matrices that it names, by `threads`: one stacked matrix
// at a time, in a buffer of its size, so the host never holds a second copy of the weights.
ModelWeights load_merged_weights(const Checkpoint& checkpoint, const Adapter& adapter,
                                 const ModelConfig& config, Backend& backend, int threads,
                                 const Progress& progress);

// Seeded bfloat16 weights of the same shapes and names, without a checkpoint: see
// Backend::make_random_matrix. Activations stay finite.
ModelWeights seeded_weights(std::uint64_t seed, const ModelConfig& config, Backend& backend,
                            const Progress& progress);

}  // namespace openjev
