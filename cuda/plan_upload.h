// Batch plans in device memory, rounded up to buckets so that one recording serves many plans.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/raii.h"
#include "plan/plan_view.h"

namespace openjev::cuda {

// The largest plan that is rounded up. Beyond it a pass lasts so long that launching it kernel by
// kernel costs nothing, while rows that nobody reads do.
inline constexpr std::int32_t kMostBucketRows = 256;

// Rows rounded up to a multiple of 16: the rows of the smallest tiles of a matrix product.
std::int32_t bucket_rows(std::int32_t rows);

class PlanUpload {
 public:
  // Copies the plan's arrays on `stream`; the result is valid until the next upload. The addresses
  // of its arrays depend on its counts alone, as long as `moves` stays the same.
  PlanView upload(const PlanView& host, bool pad, cudaStream_t stream);

  // How often the arrays have moved to a larger block.
  std::int64_t moves() const { return moves_; }

 private:
  void reserve(std::size_t bytes);

  PinnedMemoryBlock host_;
  DeviceMemoryBlock device_;
  std::vector<std::int32_t> level_begin_;
  std::int64_t moves_ = 0;
};

}  // namespace openjev::cuda
