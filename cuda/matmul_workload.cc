#include "cuda/matmul_workload.h"

#include <algorithm>

namespace openjev::cuda {
namespace {

// Reading back what a product left: from L2 where it is surely still there, else from memory.
constexpr double kL2Bytes = 40e6;
constexpr double kL2BytesPerUs = 8e6, kMemoryBytesPerUs = 4e6;

// Requests with so many rows, relative to each other. The workload in mind has many prompts of
// about 100 tokens, some of 200 to 1000 and few of 2000 to 4000.
double requests_at(std::int64_t rows) {
  if (rows <= 64) return 40;
  if (rows <= 128) return 240;
  if (rows <= 256) return 60;
  if (rows <= 512) return 30;
  return rows <= 1280 ? 4 : 1;
}

// Microseconds of the products of `rows` rows, in slabs where there are more than measured.
double time_for(std::int64_t rows, const std::vector<TunedBucket>& buckets) {
  double time = 0;
  for (; rows > buckets.back().rows; rows -= buckets.back().rows)
    time += buckets.back().microseconds;
  const auto bucket = std::find_if(buckets.begin(), buckets.end(),
                                   [&](const TunedBucket& b) { return b.rows >= rows; });
  return time + bucket->microseconds;
}

// Estimated microseconds to read a product's result: an update in bfloat16 or parts in float32.
double time_to_read(std::int64_t rows, std::int64_t n, int parts) {
  const double item = parts == 1 ? 2.0 : 4.0 * parts;
  const double bytes = static_cast<double>(rows) * static_cast<double>(n) * item;
  return bytes / (bytes > kL2Bytes ? kMemoryBytesPerUs : kL2BytesPerUs);
}

}  // namespace

std::int64_t matmul_bucket(std::int64_t rows) {
  const std::int64_t step = rows <= kFewRows ? 16 : rows <= kMostMeasuredRows ? 8 : 1024;
  return (rows + step - 1) / step * step;
}

std::int64_t measured_bucket(std::int64_t rows) {
  return std::min(matmul_bucket(rows), kMostMeasuredRows);
}

double workload_time(const std::vector<TunedBucket>& tuned, std::span<const std::int64_t> rows,
                     std::int64_t most_rows, std::int64_t n, int parts) {
  double time = 0, requests = 0;
  std::int64_t before = 0;
  for (const std::int64_t count : rows) {
    if (count > most_rows) break;
    const double share = requests_at(count) * static_cast<double>(count - before);
    time += share * (time_for(count, tuned) + time_to_read(count, n, parts));
    requests += share;
    before = count;
  }
  return time / requests;
}

}  // namespace openjev::cuda
