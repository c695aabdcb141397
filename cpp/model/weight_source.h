// Where a model's tensors come from: a checkpoint's files, or a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/weights.h"

namespace openjev {

// A tensor's name without the checkpoint's prefix, and its rows.
struct WeightPart {
  std::string name;
  std::int64_t rows;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual DType dtype() const = 0;  // of the matrices
  virtual std::unique_ptr<Matrix> table(const std::string& name, std::int64_t rows,
                                        std::int64_t cols) = 0;
  // The parts' rows, stacked.
  virtual std::unique_ptr<Matrix> matrix(const std::vector<WeightPart>& parts,
                                         std::int64_t cols) = 0;
  virtual std::vector<float> vector(const std::string& name, std::int64_t width) = 0;
  // A_log and linear_attn.norm: F32 in the Qwen3.5 files, but the reference runs with BF16 values.
  virtual std::vector<float> rounded_vector(const std::string& name, std::int64_t width) = 0;
  // [4, channels], tap-major.
  virtual std::vector<float> convolution(const std::string& name, std::int64_t channels) = 0;
};

// Names, shapes and stacking of every tensor of the model, read from `source`. Counts parameters
// and resident bytes.
ModelWeights assemble_weights(const ModelConfig& config, Backend& backend, WeightSource& source,
                              const Progress& progress);

// Elements of the matrices of `config`: all but a few thousand of the model.
std::int64_t matrix_elements(const ModelConfig& config);

}  // namespace openjev
