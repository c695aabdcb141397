// What a choice of matmul algorithms costs over the numbers of rows that requests bring.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/tuning_file.h"

namespace openjev::cuda {

// Mean microseconds of a weight's products and of reading their results back, over the numbers of
// rows in `rows` up to `most_rows`, each with its share of the workload. `tuned`: ascending, not
// empty; more rows than its last are worked off in slabs. `n`: columns of a result, left in `parts`
// parts.
double workload_time(const std::vector<TunedBucket>& tuned, std::span<const std::int64_t> rows,
                     std::int64_t most_rows, std::int64_t n, int parts);

}  // namespace openjev::cuda
