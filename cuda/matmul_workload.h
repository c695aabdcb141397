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

// Up to so many, passes of single prompts have multiples of 16 rows (kMostBucketRows of
// plan_upload.h); beyond it any number.
inline constexpr std::int64_t kFewRows = 256;

// The bucket that `rows` (1 or more) fall in: itself or somewhat more, named by its last row.
// Beyond kFewRows a bucket is what no algorithm can tell apart, 8 rows: the rows of its tiles are
// multiples of 8, and which of them wins changes with how well they divide the rows.
std::int64_t matmul_bucket(std::int64_t rows);

// The bucket whose measurements count for `rows`.
std::int64_t measured_bucket(std::int64_t rows);

// Mean microseconds of a weight's products and of reading their results back, over the buckets in
// `rows` (ascending) up to `most_rows`, each with its share of the workload. `tuned`: ascending,
// not empty; more rows than its last are worked off in slabs. `n`: columns of a result, left in
// `parts` parts.
double workload_time(const std::vector<TunedBucket>& tuned, std::span<const std::int64_t> rows,
                     std::int64_t most_rows, std::int64_t n, int parts);

}  // namespace openjev::cuda
