// The tensors of a base model as an exported checkpoint holds them: an adapter merged in, all of
// one dtype, read by ranges of rows so that no tensor is ever in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "io/checkpoint.h"
#include "model/adapter.h"
#include "model/config.h"

namespace openjev {

// Rows [first, first + count) along a tensor's first dimension.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

class MergedReader {
 public:
  // Without `adapter` the base's own values. Throws kBadCheckpoint, as Checkpoint and Adapter do.
  MergedReader(const std::filesystem::path& base,
               const std::optional<std::filesystem::path>& adapter);

  const ModelConfig& config() const { return config_; }
  const std::optional<Adapter>& adapter() const { return adapter_; }
  DType dtype() const { return dtype_; }  // BF16 or F32: of embed_tokens, and of all that is read

  // `out` receives the rows of tensor `name` (without prefix), which has `shape`. A_log and
  // linear_attn.norm are rounded to `dtype`; any other tensor must have it.
  void read(const std::string& name, std::span<const std::int64_t> shape, RowRange rows,
            std::byte* out, int threads) const;

  // Position of the first element of the file's tensor that is not a finite number.
  std::optional<std::int64_t> first_not_finite(const std::string& name,
                                               std::span<const std::int64_t> shape) const;

  // Gives a tensor's pages back to the system.
  void release(const std::string& name, std::span<const std::int64_t> shape) const;

 private:
  HostTensor tensor(const std::string& name, std::span<const std::int64_t> shape) const;

  Checkpoint checkpoint_;
  ModelConfig config_;
  std::optional<Adapter> adapter_;
  DType dtype_;
};

}  // namespace openjev
