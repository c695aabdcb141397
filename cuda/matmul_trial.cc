#include "cuda/matmul_trial.h"

#include <algorithm>
#include <cmath>

#include "cuda/check.h"
#include "cuda/kernels/kernels.h"

namespace openjev::cuda {
namespace {

constexpr int kRounds = 4;
constexpr int kShortRounds = 3;
constexpr int kFlushedLaunches = 8;  // at most, since each needs a flush
// Microseconds. The card takes some tens of milliseconds to sink to the clock that its power limit
// allows for an algorithm in steady use, which differs between algorithms by more than their times
// in short bursts do. Where there are fewer rows reading the weights takes most of the time.
constexpr std::int64_t kSteadyRows = 96;
constexpr double kSettle = 30e3, kSteadyTurn = 50e3, kShortTurn = 1500;

// Weights of fewer bytes in all could still lie in the L2 cache when their turn comes again;
// writing kFlushBytes evicts them.
constexpr std::size_t kColdBytes = 200u << 20;
constexpr std::size_t kFlushBytes = 128u << 20;

constexpr std::uint64_t kSeedX = 1, kSeedOut = 2;

std::size_t bytes_of(DType dtype, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * size_of(dtype);
}

View matrix(const DeviceMemoryBlock& memory, std::int64_t rows, std::int64_t cols) {
  return View::contiguous(memory.data(), DType::kBF16, rows, cols);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

MatmulTrial::MatmulTrial(const CublasLt& library, std::int64_t most_rows, std::int64_t most_n,
                         std::int64_t most_k)
    : library_(library),
      most_rows_(most_rows),
      x_(allocate_device(bytes_of(DType::kBF16, most_rows, most_k))),
      out_(allocate_device(bytes_of(DType::kBF16, most_rows, most_n))),
      flush_(allocate_device(kFlushBytes)) {}

void MatmulTrial::begin(const std::vector<View>& weights) {
  weights_ = weights;
  parts_ = 1;
  next_weight_ = 0;
  weights_fit_cache_ = bytes_of(DType::kBF16, n(), k()) * weights_.size() < kColdBytes;
  fill_random(matrix(x_, most_rows_, k()), kSeedX, 1.0f, library_.stream());
}

View MatmulTrial::output(std::int64_t rows) const {
  return parts_ == 1 ? matrix(out_, rows, n()) : library_.parts_view(parts_, rows, n());
}

Product MatmulTrial::product(std::int64_t rows) const {
  const View x = matrix(x_, rows, k()), out = output(rows);
  Product product = product_of(x, weights_.front(), out, parts_);
  for (const View& other : weights_) {  // an algorithm has to do for all of them
    product.alignment.weight =
        std::min(product.alignment.weight, product_of(x, other, out, parts_).alignment.weight);
  }
  return product;
}

bool MatmulTrial::compute(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                          bool accumulate) {
  const View out = output(rows);
  if (accumulate) {
    fill_random(out, kSeedOut, 1.0f, library_.stream());
  } else {
    check_cuda(
        cudaMemsetAsync(out.data, 0xff, bytes_of(out.dtype, out.rows, out.cols), library_.stream()),
        "fill an output");
  }
  return library_.launch(product(rows), algorithm, x_.data(), weights_.front().data, out.data,
                         accumulate) == CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t MatmulTrial::launch_next(const Product& sizes,
                                        const cublasLtMatmulAlgo_t& algorithm) {
  const View& weight = weights_[next_weight_++ % weights_.size()];
  return library_.launch(sizes, algorithm, x_.data(), weight.data, output(sizes.rows).data, false);
}

void MatmulTrial::flush() {
  check_cuda(cudaMemsetAsync(flush_.data(), 0, flush_.bytes(), library_.stream()),
             "flush the L2 cache");
}

void MatmulTrial::record(std::size_t event) {
  while (events_.size() <= event) events_.push_back(make_event(cudaEventDefault));
  check_cuda(cudaEventRecord(events_[event].get(), library_.stream()), "record an event");
}

double MatmulTrial::between(std::size_t first, std::size_t last) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, events_[first].get(), events_[last].get()),
             "read a time");
  return 1e3 * static_cast<double>(milliseconds);
}

std::vector<double> MatmulTrial::compare(std::int64_t rows,
                                         std::span<const cublasLtMatmulAlgo_t> algorithms) {
  const Product sizes = product(rows);
  std::vector<double> times(algorithms.size(), INFINITY);
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < algorithms.size(); ++i) {  // also loads the kernels
    if (launch_next(sizes, algorithms[i]) == CUBLAS_STATUS_SUCCESS) taken.push_back(i);
  }
  std::size_t event = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : taken) {
      // While it runs the host gets ahead, so that no launch latency is measured.
      if (weights_fit_cache_) flush();
      record(event++);
      check_cublas(launch_next(sizes, algorithms[i]), "measure " + sizes.text());
      record(event++);
    }
  }
  check_cuda(cudaStreamSynchronize(library_.stream()), "measure a matmul");
  event = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : taken) {
      times[i] = std::min(times[i], between(event, event + 1));
      event += 2;
    }
  }
  return times;
}

// On average over launches back to back, or the median where the cache has to be flushed between
// them.
std::optional<double> MatmulTrial::measure(const Product& sizes,
                                           const cublasLtMatmulAlgo_t& algorithm, int launches) {
  if (launch_next(sizes, algorithm) != CUBLAS_STATUS_SUCCESS) return {};
  const bool apart = weights_fit_cache_;
  if (apart) launches = std::min(launches, kFlushedLaunches);
  std::size_t event = 0;
  for (int i = 0; i < launches; ++i) {
    if (apart) flush();
    if (apart || i == 0) record(event++);
    if (launch_next(sizes, algorithm) != CUBLAS_STATUS_SUCCESS) return {};
    if (apart || i == launches - 1) record(event++);
  }
  check_cuda(cudaStreamSynchronize(library_.stream()), "measure a matmul");
  if (!apart) return between(0, 1) / launches;
  std::vector<double> times;
  for (std::size_t i = 0; i < event; i += 2) times.push_back(between(i, i + 1));
  return median(times);
}

// Median of short turns, or one long turn once the clock has settled.
std::optional<double> MatmulTrial::measure_in_use(std::int64_t rows,
                                                  const cublasLtMatmulAlgo_t& algorithm,
                                                  double about) {
  const Product sizes = product(rows);
  const auto launches = [&](double turn) { return std::max(static_cast<int>(turn / about), 4); };
  if (rows >= kSteadyRows && !weights_fit_cache_) {
    if (!measure(sizes, algorithm, launches(kSettle))) return {};
    return measure(sizes, algorithm, launches(kSteadyTurn));
  }
  std::vector<double> times;
  for (int round = 0; round < kShortRounds; ++round) {
    if (const auto time = measure(sizes, algorithm, launches(kShortTurn))) times.push_back(*time);
  }
  if (times.empty()) return {};
  return median(times);
}

}  // namespace openjev::cuda
