// The numbers of rows that requests bring: in which buckets a matmul algorithm is chosen for them,
// and what a choice costs over all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/tuning_file.h"

namespace openjev::cuda {

// Products of up to so many rows have algorithms that were measured for their bucket.
inline constexpr std::int64_t kMostMeasuredRows = 4096;

// The bucket that `rows` (1 or more) fall in: itself or somewhat more, named by its last row. Steps
// grow with the rows, so that tiles which fill the GPU at the bucket's rows do so at those at hand.
std::int64_t row_bucket(std::int64_t rows);

// The bucket whose measurements count for `rows`.
std::int64_t measured_bucket(std::int64_t rows);

// Mean microseconds of a weight's products and of reading their results back, over the numbers of
// rows in `rows` up to `most_rows`, each with its share of the workload. `tuned`: ascending, not
// empty; more rows than its last are worked off in slabs. `n`: columns of a result, left in `parts`
// parts.
double workload_time(const std::vector<TunedBucket>& tuned, std::span<const std::int64_t> rows,
                     std::int64_t most_rows, std::int64_t n, int parts);

}  // namespace openjev::cuda
