#include "cuda/matmul_tuning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cuda/check.h"
#include "cuda/kernels/kernels.h"
#include "cuda/matmul_workload.h"

namespace openjev::cuda {
namespace {

constexpr std::array<int, 3> kParts{1, 2, 4};  // of K

constexpr int kCandidates = 32;
constexpr int kQuickLaunches = 2;
constexpr int kFinalists = 4;  // half of them by the library's order, half by their quick times
constexpr int kFinalLaunches = 8;
constexpr int kShortRounds = 3;
// Microseconds. The card takes some tens of milliseconds to sink to the clock that its power limit
// allows for an algorithm in steady use, which differs between algorithms by more than their times
// in short bursts do. Where there are fewer rows reading the weights takes most of the time.
constexpr std::int64_t kSteadyRows = 96;
constexpr double kSettle = 30e3, kSteadyTurn = 50e3, kShortTurn = 1500;
constexpr double kClearly = 0.01;  // of the time
// Not measured in steady use: no clock makes up for so much.
constexpr double kHopeless = 1.15;  // times the quickest in short bursts

// Weights of fewer bytes in all could still lie in the L2 cache when their turn comes again;
// writing kFlushBytes evicts them.
constexpr std::int64_t kColdBytes = 200 << 20;
constexpr std::size_t kFlushBytes = 128u << 20;
constexpr std::size_t kHostBytes = 32u << 20;

// More parts are measured for more rows only where they win at few, and kept only where they win
// enough to be worth adding them up.
constexpr std::int64_t kFewRows = 256;
constexpr double kWorthwhile = 0.99;  // of the time

constexpr std::uint64_t kSeedX = 1, kSeedOut = 2;

View matrix(const DeviceMemoryBlock& memory, std::int64_t rows, std::int64_t cols) {
  return View::contiguous(memory.data(), DType::kBF16, rows, cols);
}

std::size_t bytes_of(DType dtype, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * size_of(dtype);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Tuner::Tuner(const CublasLt& library, bool invariant, int parts, std::int64_t rows,
             std::int64_t max_n, std::int64_t max_k)
    : library_(library), invariant_(invariant), forced_parts_(parts) {
  const std::int64_t largest = measured_bucket(rows);
  for (std::int64_t bucket = 0; bucket < largest;)
    buckets_.push_back(bucket = row_bucket(bucket + 1));
  x_ = allocate_device(bytes_of(DType::kBF16, largest, max_k));
  out_ = allocate_device(bytes_of(DType::kBF16, largest, max_n));
  flush_ = allocate_device(kFlushBytes);
  if (invariant) host_ = allocate_pinned(kHostBytes);
  for (int i = 0; i < 2 * kFinalLaunches; ++i) events_.push_back(make_event(cudaEventDefault));
}

std::int64_t Tuner::most_steps() const {
  const bool several = invariant_ && forced_parts_ == 0;
  return std::ssize(buckets_) * (several ? std::ssize(kParts) : 1);
}

View Tuner::output(std::int64_t rows, int parts) const {
  const std::int64_t n = weights_.front().rows;
  return parts == 1 ? matrix(out_, rows, n) : library_.parts_view(parts, rows, n);
}

Product Tuner::product(std::int64_t rows, int parts) const {
  const View x = matrix(x_, rows, weights_.front().cols), out = output(rows, parts);
  Product product = product_of(x, weights_.front(), out, parts);
  for (const View& other : weights_) {  // an algorithm has to do for all of them
    product.alignment.weight =
        std::min(product.alignment.weight, product_of(x, other, out, parts).alignment.weight);
  }
  return product;
}

// Time of one launch with weights that are not in the L2 cache: on average over launches back to
// back, or the median where the cache has to be flushed between them; nothing when the library
// refuses the algorithm.
std::optional<double> Tuner::measure(const Product& sizes, const cublasLtMatmulAlgo_t& algorithm,
                                     int launches) {
  void* out = output(sizes.rows, sizes.parts).data;
  const cudaStream_t stream = library_.stream();
  const auto launch = [&] {
    const View& weight = weights_[next_weight_++ % weights_.size()];
    return library_.launch(sizes, algorithm, x_.data(), weight.data, out, false);
  };
  const auto flush = [&] {
    check_cuda(cudaMemsetAsync(flush_.data(), 0, flush_.bytes(), stream), "flush the L2 cache");
  };
  if (launch() != CUBLAS_STATUS_SUCCESS) return {};  // also loads the kernel
  if (!weights_fit_cache_) {
    check_cuda(cudaEventRecord(events_[0].get(), stream), "record an event");
    for (int i = 0; i < launches; ++i) {
      if (launch() != CUBLAS_STATUS_SUCCESS) return {};
    }
    check_cuda(cudaEventRecord(events_[1].get(), stream), "record an event");
    check_cuda(cudaStreamSynchronize(stream), "measure a matmul");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[0].get(), events_[1].get()),
               "read a time");
    return 1e3 * static_cast<double>(milliseconds) / launches;
  }
  launches = std::min(launches, kFinalLaunches);
  flush();  // while it runs the host gets ahead, so that no launch latency is measured
  for (int i = 0; i < launches; ++i) {
    const auto pair = static_cast<std::size_t>(2 * i);
    if (i > 0) flush();
    check_cuda(cudaEventRecord(events_[pair].get(), stream), "record an event");
    if (launch() != CUBLAS_STATUS_SUCCESS) return {};
    check_cuda(cudaEventRecord(events_[pair + 1].get(), stream), "record an event");
  }
  check_cuda(cudaStreamSynchronize(stream), "measure a matmul");
  std::vector<double> times;
  for (int i = 0; i < launches; ++i) {
    const auto pair = static_cast<std::size_t>(2 * i);
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[pair].get(), events_[pair + 1].get()),
               "read a time");
    times.push_back(1e3 * static_cast<double>(milliseconds));
  }
  return median(times);
}

// Median of short turns, or one long turn once the clock has settled.
std::optional<double> Tuner::measure_in_use(const Product& sizes, const Ranked& candidate) {
  const auto launches = [&](double turn) {
    return std::max(static_cast<int>(turn / candidate.microseconds), 4);
  };
  if (sizes.rows >= kSteadyRows && !weights_fit_cache_) {
    if (!measure(sizes, candidate.algorithm, launches(kSettle))) return {};
    return measure(sizes, candidate.algorithm, launches(kSteadyTurn));
  }
  std::vector<double> times;
  for (int round = 0; round < kShortRounds; ++round) {
    if (const auto time = measure(sizes, candidate.algorithm, launches(kShortTurn)))
      times.push_back(*time);
  }
  if (times.empty()) return {};
  return median(times);
}

// Best first: the leading ones measured as they will be used, the others in a quick burst. The
// library's own first choice stays first unless it is clearly beaten.
std::vector<Tuner::Ranked> Tuner::rank(std::int64_t rows,
                                       const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  const auto faster = [](const Ranked& a, const Ranked& b) {
    return a.microseconds < b.microseconds;
  };
  const Product sizes = product(rows);
  std::vector<Ranked> ranked;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    if (const auto time = measure(sizes, algorithm, kQuickLaunches))
      ranked.push_back({algorithm, *time});
  }
  if (ranked.empty()) return ranked;
  const auto leading = std::min<std::ptrdiff_t>(kFinalists, std::ssize(ranked));
  std::stable_sort(ranked.begin() + std::min<std::ptrdiff_t>(kFinalists / 2, leading), ranked.end(),
                   faster);
  const AlgorithmWords own = words_of(ranked.front().algorithm);
  const double hopeless =
      kHopeless * std::min_element(ranked.begin(), ranked.end(), faster)->microseconds;
  for (std::ptrdiff_t i = 0; i < leading; ++i) {
    Ranked& candidate = ranked[static_cast<std::size_t>(i)];
    const bool skipped = rows >= kSteadyRows && candidate.microseconds > hopeless;
    candidate.microseconds =
        skipped ? INFINITY : measure_in_use(sizes, candidate).value_or(INFINITY);
  }
  const auto clearly_faster = [&](const Ranked& a, const Ranked& b) {
    const auto handicapped = [&](const Ranked& r) {
      return r.microseconds * (words_of(r.algorithm) == own ? 1 - kClearly : 1);
    };
    return handicapped(a) < handicapped(b);
  };
  std::stable_sort(ranked.begin(), ranked.begin() + leading, clearly_faster);
  std::erase_if(ranked, [](const Ranked& r) { return std::isinf(r.microseconds); });
  return ranked;
}

double Tuner::measure_first(std::int64_t rows) {
  const Product whole = product(rows, 1);
  const auto first = library_.heuristics(whole, CUBLASLT_REDUCTION_SCHEME_MASK, 1);
  return first.empty() ? 0 : measure(whole, first.front(), kFinalLaunches).value_or(0);
}

// The first sequential algorithm for these rows that the library does run.
std::optional<cublasLtMatmulAlgo_t> Tuner::reference_algorithm(std::int64_t rows) {
  for (const auto& algorithm : library_.sequential(product(rows), kCandidates)) {
    if (launch_for_bits(rows, algorithm, false)) return algorithm;
  }
  return {};
}

// The output is filled first: with what is to be added, or with a pattern that shows any element
// that the algorithm leaves out.
bool Tuner::launch_for_bits(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                            bool accumulate) {
  const View out = output(rows, parts_);
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

// Calls use(part, offset in it, data, bytes) for pieces of the output until it says false.
template <class Use>
bool Tuner::each_output_chunk(std::int64_t rows, const Use& use) {
  const View out = output(rows, parts_);
  const std::size_t bytes = bytes_of(out.dtype, rows, out.cols);
  for (std::size_t part = 0; part < static_cast<std::size_t>(parts_); ++part) {
    const std::byte* data = static_cast<const std::byte*>(out.data) + part * bytes;
    for (std::size_t offset = 0; offset < bytes; offset += host_.bytes()) {
      const std::size_t size = std::min(host_.bytes(), bytes - offset);
      check_cuda(cudaMemcpyAsync(host_.data(), data + offset, size, cudaMemcpyDeviceToHost,
                                 library_.stream()),
                 "copy an output");
      check_cuda(cudaStreamSynchronize(library_.stream()), "compare outputs");
      if (!use(part, offset, host_.as<const std::byte>(), size)) return false;
    }
  }
  return true;
}

std::optional<Tuner::Reference> Tuner::compute(std::int64_t rows,
                                               const cublasLtMatmulAlgo_t& algorithm) {
  Reference reference{rows, {}, {}};
  for (const bool accumulate : {false, true}) {
    if (accumulate && parts_ > 1) continue;
    if (!launch_for_bits(rows, algorithm, accumulate)) return {};
    std::vector<std::byte>& bytes = accumulate ? reference.accumulated : reference.plain;
    const View out = output(rows, parts_);
    bytes.reserve(bytes_of(out.dtype, out.rows, out.cols));
    each_output_chunk(rows, [&](std::size_t, std::size_t, const std::byte* data, std::size_t size) {
      bytes.insert(bytes.end(), data, data + size);
      return true;
    });
  }
  return reference;
}

bool Tuner::output_equals(std::int64_t rows, std::int64_t expected_rows,
                          const std::vector<std::byte>& expected) {
  const View out = output(rows, parts_);
  const std::size_t part_bytes = bytes_of(out.dtype, expected_rows, out.cols);
  return each_output_chunk(
      rows, [&](std::size_t part, std::size_t offset, const std::byte* data, std::size_t size) {
        return std::memcmp(data, expected.data() + part * part_bytes + offset, size) == 0;
      });
}

// Runs the algorithm for the most and the fewest rows that it will be used for, and compares every
// row with the same row of the reference, which had other rows beside it.
bool Tuner::same_bits(std::int64_t bucket, const cublasLtMatmulAlgo_t& algorithm,
                      const Reference& reference) {
  std::vector<std::int64_t> counts{bucket};
  if (bucket == buckets_.front()) {
    counts.insert(counts.end(), {7, 1});
  } else {
    counts.push_back(*(std::lower_bound(buckets_.begin(), buckets_.end(), bucket) - 1) + 1);
  }
  for (const std::int64_t rows : counts) {
    for (const bool accumulate : {false, true}) {
      if (accumulate && parts_ > 1) continue;
      if (!launch_for_bits(rows, algorithm, accumulate) ||
          !output_equals(rows, reference.rows,
                         accumulate ? reference.accumulated : reference.plain))
        return false;
    }
  }
  return true;
}

std::vector<TunedBucket> Tuner::tune_any(const Step& step) {
  std::vector<TunedBucket> tuned;
  for (const std::int64_t rows : buckets_) {
    step(rows, 1);
    const auto algorithms =
        library_.heuristics(product(rows), CUBLASLT_REDUCTION_SCHEME_MASK, kCandidates);
    const std::vector<Ranked> ranked = rank(rows, algorithms);
    if (ranked.empty()) continue;
    tuned.push_back({rows, ranked.front().microseconds, measure_first(rows),
                     words_of(ranked.front().algorithm)});
  }
  return tuned;
}

// The first is measured in full; a later one has to win over those before it.
std::vector<int> Tuner::candidate_parts() const {
  const auto possible = [&](int parts) {
    return library_.can_split(weights_.front().rows, weights_.front().cols, parts);
  };
  if (forced_parts_ > 0) return {possible(forced_parts_) ? forced_parts_ : 1};
  std::vector<int> parts(kParts.begin(), kParts.end());
  std::erase_if(parts, [&](int count) { return !possible(count); });
  return parts;
}

// Those of one slab.
std::vector<std::int64_t> Tuner::buckets_of_parts() const {
  std::vector<std::int64_t> buckets = buckets_;
  const std::int64_t most = library_.slab_rows(weights_.front().rows, parts_);
  std::erase_if(buckets, [most](std::int64_t rows) { return rows > most; });
  return buckets;
}

double Tuner::time_of(const std::vector<TunedBucket>& tuned, std::int64_t most_rows) const {
  return workload_time(tuned, buckets_, most_rows, weights_.front().rows, parts_);
}

// For every bucket the fastest algorithm with the bits of the others; empty when some bucket has
// none, or when few rows take as long as `limit` microseconds on average.
std::vector<TunedBucket> Tuner::tune_parts(double limit, const Step& step) {
  const std::vector<std::int64_t> buckets = buckets_of_parts();
  const auto algorithm = reference_algorithm(buckets.back());
  if (!algorithm) return {};
  const auto reference = compute(buckets.back(), *algorithm);
  if (!reference) return {};

  std::vector<TunedBucket> tuned;
  for (const std::int64_t rows : buckets) {
    if (rows > kFewRows && time_of(tuned, kFewRows) >= limit) return {};
    step(rows, parts_);
    bool found = false;
    for (const Ranked& ranked : rank(rows, library_.sequential(product(rows), kCandidates))) {
      if (same_bits(rows, ranked.algorithm, *reference)) {
        tuned.push_back({rows, ranked.microseconds, 0, words_of(ranked.algorithm)});
        found = true;
        break;
      }
    }
    if (!found) return {};
  }
  return tuned;
}

// One algorithm for every bucket.
std::vector<TunedBucket> Tuner::tune_fixed() {
  const std::vector<std::int64_t> buckets = buckets_of_parts();
  const auto algorithm = reference_algorithm(buckets.back());
  std::vector<TunedBucket> tuned;
  if (!algorithm) return tuned;
  for (const std::int64_t rows : buckets) {
    const auto time = measure(product(rows), *algorithm, kFinalLaunches);
    if (!time) return {};
    tuned.push_back({rows, *time, 0, words_of(*algorithm)});
  }
  return tuned;
}

void Tuner::tune_invariant(ShapeTuning& out, const Step& step) {
  const std::vector<int> candidates = candidate_parts();
  double best = INFINITY, best_few = INFINITY;
  for (const int parts : candidates) {
    parts_ = parts;
    std::vector<TunedBucket> tuned = tune_parts(best_few, step);
    if (tuned.empty()) continue;
    const double time = time_of(tuned, INT64_MAX);
    if (time >= kWorthwhile * best) continue;
    best = time;
    best_few = time_of(tuned, kFewRows);
    out.shape.verified = true;
    out.shape.parts = parts;
    out.shape.buckets = std::move(tuned);
  }
  if (!out.shape.verified) {
    parts_ = out.shape.parts = candidates.front();
    out.shape.buckets = tune_fixed();
    out.warning = out.shape.buckets.empty()
                      ? "no algorithm that goes through K in one sequence runs for every number of "
                        "rows"
                      : "no set of algorithms gave the same bits for every number of rows; one "
                        "fixed algorithm is used for all, and it is not the fastest";
  }
  parts_ = out.shape.parts;
  for (TunedBucket& bucket : out.shape.buckets)
    bucket.first_microseconds = measure_first(bucket.rows);
}

ShapeTuning Tuner::tune(const std::vector<View>& weights, const Step& step) {
  weights_ = weights;
  parts_ = 1;
  next_weight_ = 0;
  const View& first = weights_.front();
  const auto bytes = static_cast<std::int64_t>(bytes_of(DType::kBF16, first.rows, first.cols)) *
                     static_cast<std::int64_t>(weights_.size());
  weights_fit_cache_ = bytes < kColdBytes;
  fill_random(matrix(x_, buckets_.back(), first.cols), kSeedX, 1.0f, library_.stream());

  ShapeTuning out;
  out.shape.n = first.rows;
  out.shape.k = first.cols;
  out.shape.rows = buckets_.back();
  if (invariant_) {
    tune_invariant(out, step);
  } else {
    out.shape.buckets = tune_any(step);
  }
  const Alignment alignment = product(buckets_.front()).alignment;
  out.shape.alignment = {alignment.weight, alignment.x, alignment.out};
  return out;
}

}  // namespace openjev::cuda
