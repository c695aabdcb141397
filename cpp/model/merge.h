// A low-rank update of a matrix, as an adapter holds it, and its sum with the matrix.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace openjev {

// scale * B A.
struct LowRank {
  std::int64_t rows = 0, cols = 0, rank = 0;
  std::span<const float> a;  // [rank, cols]
  std::span<const float> b;  // [rows, rank]
  float scale = 1;

  LowRank some_rows(std::int64_t first, std::int64_t count) const;
};

// out [rows, cols] = R(W + R(scale * B A)), where R rounds to the dtype of W (BF16, or F32 where it
// does nothing). B A is in float32, summed over the rank in its order with fused multiply-adds;
// the product with `scale` is rounded to float32 first. These are the bits of PEFT's
// merge_and_unload(safe_merge=True) on a CPU. W may be unaligned; `out` has the dtype of W.
// `threads` share the rows and do not change a bit.
void merge(View weight, const LowRank& update, void* out, int threads);

}  // namespace openjev
