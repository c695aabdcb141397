#include "cuda/matmul_tuning.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/check.h"
#include "cuda/kernels/kernels.h"

namespace openjev::cuda {
namespace {

constexpr std::array<std::int64_t, 25> kMeasuredRows{
    16,  32,  48,  64,  80,  96,   112,  128,  160,  192,  224,  256, 320,
    384, 448, 512, 640, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096};
constexpr std::array<int, 6> kSplits{2, 3, 4, 5, 6, 8};  // tried beside 1

constexpr int kCandidates = 32;
constexpr int kQuickLaunches = 2;
constexpr int kFinalists = 6;
constexpr int kFinalLaunches = 8;
constexpr int kFinalRounds = 5;
constexpr double kClearly = 0.01;  // of the time

// Weights of fewer bytes in all could still lie in the L2 cache when their turn comes again;
// writing kFlushBytes evicts them.
constexpr std::int64_t kColdBytes = 200 << 20;
constexpr std::size_t kFlushBytes = 128u << 20;
constexpr std::size_t kHostBytes = 32u << 20;

// A split is measured for more rows only where it wins at few, and kept only where it wins enough
// to be worth leaving the library's plain sequence.
constexpr std::int64_t kFewRows = 128;
constexpr std::int64_t kManyRows = 512;
constexpr double kWorthwhile = 0.99;
// Beyond the parts themselves a split may need some room.
constexpr std::size_t kSplitSlack = 1u << 20;

constexpr std::uint64_t kSeedX = 1, kSeedOut = 2;

View matrix(const DeviceMemoryBlock& memory, std::int64_t rows, std::int64_t cols) {
  return View::contiguous(memory.data(), DType::kBF16, rows, cols);
}

std::size_t bf16_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * 2;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Time for `rows` rows when only buckets up to the last one exist: equal slabs, one after another.
double time_for(std::int64_t rows, const std::vector<TunedBucket>& buckets) {
  const std::int64_t largest = buckets.back().rows;
  const std::int64_t slabs = (rows + largest - 1) / largest;
  const std::int64_t each = (rows + slabs - 1) / slabs;
  const auto bucket = std::find_if(buckets.begin(), buckets.end(),
                                   [&](const TunedBucket& b) { return b.rows >= each; });
  return static_cast<double>(slabs) * bucket->microseconds;
}

// Total time of the buckets from `first` to `last` rows, relative to the algorithms without a
// split; 1 when there are none.
double relative_time(const std::vector<TunedBucket>& buckets, const std::vector<TunedBucket>& whole,
                     std::int64_t first, std::int64_t last) {
  double time = 0, base = 0;
  for (const TunedBucket& bucket : whole) {
    if (bucket.rows < first || bucket.rows > last) continue;
    time += time_for(bucket.rows, buckets);
    base += bucket.microseconds;
  }
  return base > 0 ? time / base : 1;
}

// Few rows and many count the same, however much longer the latter take.
double cost_of(const std::vector<TunedBucket>& buckets, const std::vector<TunedBucket>& whole) {
  return (relative_time(buckets, whole, 1, kManyRows) +
          relative_time(buckets, whole, kManyRows + 1, INT64_MAX)) /
         2;
}

}  // namespace

std::span<const std::int64_t> measured_rows() { return kMeasuredRows; }

std::int64_t measured_bucket(std::int64_t rows) {
  const auto found = std::lower_bound(kMeasuredRows.begin(), kMeasuredRows.end(), rows);
  return found == kMeasuredRows.end() ? kMeasuredRows.back() : *found;
}

Tuner::Tuner(const CublasLt& library, bool invariant, std::int64_t rows, std::int64_t max_n,
             std::int64_t max_k)
    : library_(library), invariant_(invariant) {
  const std::int64_t largest = measured_bucket(rows);
  for (const std::int64_t bucket : kMeasuredRows) {
    if (bucket <= largest) buckets_.push_back(bucket);
  }
  x_ = allocate_device(bf16_bytes(largest, max_k));
  out_ = allocate_device(bf16_bytes(largest, max_n));
  flush_ = allocate_device(kFlushBytes);
  if (invariant) host_ = allocate_pinned(kHostBytes);
  for (int i = 0; i < 2 * kFinalLaunches; ++i) events_.push_back(make_event(cudaEventDefault));
}

Product Tuner::product(std::int64_t rows) const {
  const View& weight = weights_.front();
  Product product =
      product_of(matrix(x_, rows, weight.cols), weight, matrix(out_, rows, weight.rows));
  for (const View& other : weights_) {  // an algorithm has to do for all of them
    const Product also =
        product_of(matrix(x_, rows, other.cols), other, matrix(out_, rows, other.rows));
    product.alignment.weight = std::min(product.alignment.weight, also.alignment.weight);
  }
  return product;
}

// Median time of one launch with weights that are not in the L2 cache; nothing when the library
// refuses the algorithm.
std::optional<double> Tuner::measure(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                                     int launches) {
  const Product sizes = product(rows);
  const cudaStream_t stream = library_.stream();
  const auto launch = [&] {
    const View& weight = weights_[next_weight_++ % weights_.size()];
    return library_.launch(sizes, algorithm, x_.data(), weight.data, out_.data(), false);
  };
  const auto flush = [&] {
    check_cuda(cudaMemsetAsync(flush_.data(), 0, flush_.bytes(), stream), "flush the L2 cache");
  };
  if (launch() != CUBLAS_STATUS_SUCCESS) return {};  // also loads the kernel
  flush();  // while it runs the host gets ahead, so that no launch latency is measured
  for (int i = 0; i < launches; ++i) {
    const auto pair = static_cast<std::size_t>(2 * i);
    if (weights_fit_cache_ && i > 0) flush();
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

// Best first: the leading ones measured well, the others once more or less. The leading ones take
// turns, because the clock of a card at its power limit drifts by more than they differ; and the
// library's own first choice stays first unless it is clearly beaten.
std::vector<Tuner::Ranked> Tuner::rank(std::int64_t rows,
                                       const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  const auto faster = [](const Ranked& a, const Ranked& b) {
    return a.microseconds < b.microseconds;
  };
  std::vector<Ranked> ranked;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    if (const auto time = measure(rows, algorithm, kQuickLaunches))
      ranked.push_back({algorithm, *time});
  }
  std::stable_sort(ranked.begin(), ranked.end(), faster);
  const auto own_choice = [&](const Ranked& candidate) {
    return words_of(candidate.algorithm) == words_of(algorithms.front());
  };
  if (const auto own = std::find_if(ranked.begin(), ranked.end(), own_choice); own != ranked.end())
    std::rotate(ranked.begin(), own, own + 1);
  const auto count =
      static_cast<std::size_t>(std::min<std::ptrdiff_t>(kFinalists, std::ssize(ranked)));
  std::vector<std::vector<double>> times(count);
  for (int round = 0; round < kFinalRounds; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      if (const auto time = measure(rows, ranked[i].algorithm, kQuickLaunches))
        times[i].push_back(*time);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!times[i].empty()) ranked[i].microseconds = median(times[i]);
  }
  const auto clearly_faster = [&](const Ranked& a, const Ranked& b) {
    const auto handicapped = [&](const Ranked& r) {
      return r.microseconds * (own_choice(r) ? 1 - kClearly : 1);
    };
    return handicapped(a) < handicapped(b);
  };
  std::stable_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count),
                   clearly_faster);
  return ranked;
}

double Tuner::measure_first(std::int64_t rows) {
  const auto first = library_.heuristics(product(rows), CUBLASLT_REDUCTION_SCHEME_MASK, 1);
  return first.empty() ? 0 : measure(rows, first.front(), kFinalLaunches).value_or(0);
}

// The first algorithm of the split for these rows that the library does run.
std::optional<cublasLtMatmulAlgo_t> Tuner::reference_algorithm(std::int64_t rows, int split) {
  for (const auto& algorithm : library_.of_split(product(rows), split, kCandidates)) {
    if (launch_for_bits(rows, algorithm, false)) return algorithm;
  }
  return {};
}

// The output is filled first: with what is to be added, or with a pattern that shows any element
// that the algorithm leaves out.
bool Tuner::launch_for_bits(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                            bool accumulate) {
  const View& weight = weights_.front();
  const View out = matrix(out_, rows, weight.rows);
  if (accumulate) {
    fill_random(out, kSeedOut, 1.0f, library_.stream());
  } else {
    check_cuda(cudaMemsetAsync(out_.data(), 0xff, bf16_bytes(rows, weight.rows), library_.stream()),
               "fill an output");
  }
  return library_.launch(product(rows), algorithm, x_.data(), weight.data, out.data, accumulate) ==
         CUBLAS_STATUS_SUCCESS;
}

// Calls use(offset, data, bytes) for parts of the output until it says false.
template <class Use>
bool Tuner::each_output_chunk(std::int64_t rows, const Use& use) {
  const std::size_t bytes = bf16_bytes(rows, weights_.front().rows);
  for (std::size_t offset = 0; offset < bytes; offset += host_.bytes()) {
    const std::size_t size = std::min(host_.bytes(), bytes - offset);
    check_cuda(cudaMemcpyAsync(host_.data(), out_.as<std::byte>() + offset, size,
                               cudaMemcpyDeviceToHost, library_.stream()),
               "copy an output");
    check_cuda(cudaStreamSynchronize(library_.stream()), "compare outputs");
    if (!use(offset, host_.as<const std::byte>(), size)) return false;
  }
  return true;
}

std::optional<Tuner::Reference> Tuner::compute(std::int64_t rows,
                                               const cublasLtMatmulAlgo_t& algorithm) {
  Reference reference;
  for (const bool accumulate : {false, true}) {
    if (!launch_for_bits(rows, algorithm, accumulate)) return {};
    std::vector<std::byte>& out = accumulate ? reference.accumulated : reference.plain;
    out.reserve(bf16_bytes(rows, weights_.front().rows));
    each_output_chunk(rows, [&](std::size_t, const std::byte* data, std::size_t size) {
      out.insert(out.end(), data, data + size);
      return true;
    });
  }
  return reference;
}

bool Tuner::output_equals(std::int64_t rows, const std::vector<std::byte>& expected) {
  return each_output_chunk(rows, [&](std::size_t offset, const std::byte* data, std::size_t size) {
    return std::memcmp(data, expected.data() + offset, size) == 0;
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
      if (!launch_for_bits(rows, algorithm, accumulate) ||
          !output_equals(rows, accumulate ? reference.accumulated : reference.plain))
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

// For every bucket the fastest algorithm of this split with the bits of the others; empty when some
// bucket has none. `whole` is the result for split 1, empty while that is what is measured; another
// split is left early when it does not win at few rows.
std::vector<TunedBucket> Tuner::tune_split(int split, const std::vector<TunedBucket>& whole,
                                           const Step& step) {
  std::vector<std::int64_t> buckets = buckets_;
  if (split > 1) {
    const std::size_t row_bytes = static_cast<std::size_t>(weights_.front().rows) *
                                  static_cast<std::size_t>(split) * sizeof(float);
    std::erase_if(buckets, [&](std::int64_t rows) {
      return static_cast<std::size_t>(rows) * row_bytes + kSplitSlack > library_.workspace_bytes();
    });
  }
  if (buckets.empty()) return {};
  const auto algorithm = reference_algorithm(buckets.back(), split);
  if (!algorithm) return {};
  const auto reference = compute(buckets.back(), *algorithm);
  if (!reference) return {};

  std::vector<TunedBucket> tuned;
  for (const std::int64_t rows : buckets) {
    if (split > 1 && rows > kFewRows && !tuned.empty() &&
        relative_time(tuned, whole, 1, std::min(kFewRows, tuned.back().rows)) > kWorthwhile)
      return {};
    step(rows, split);
    bool found = false;
    for (const Ranked& ranked : rank(rows, library_.of_split(product(rows), split, kCandidates))) {
      if (same_bits(rows, ranked.algorithm, *reference)) {
        tuned.push_back({rows, ranked.microseconds, split == 1 ? measure_first(rows) : 0,
                         words_of(ranked.algorithm)});
        found = true;
        break;
      }
      ++rejected_;
    }
    if (!found) return {};
  }
  return tuned;
}

// One algorithm for every bucket.
std::vector<TunedBucket> Tuner::tune_fixed() {
  const auto algorithm = reference_algorithm(buckets_.back(), 1);
  std::vector<TunedBucket> tuned;
  if (!algorithm) return tuned;
  for (const std::int64_t rows : buckets_) {
    const auto time = measure(rows, *algorithm, kFinalLaunches);
    if (!time) return {};
    tuned.push_back({rows, *time, measure_first(rows), words_of(*algorithm)});
  }
  return tuned;
}

void Tuner::tune_invariant(ShapeTuning& out, const Step& step) {
  out.shape.split = 1;
  const std::vector<TunedBucket> whole = tune_split(1, {}, step);
  if (whole.empty()) {
    out.shape.buckets = tune_fixed();
    out.warning = out.shape.buckets.empty()
                      ? "no algorithm without a split of K runs for every number of rows"
                      : "no set of algorithms gave the same bits for every number of rows; one "
                        "fixed algorithm is used for all, and it is not the fastest";
    return;
  }
  out.shape.verified = true;
  out.shape.buckets = whole;
  double best = kWorthwhile;
  for (const int split : kSplits) {
    std::vector<TunedBucket> tuned = tune_split(split, whole, step);
    if (tuned.empty()) continue;
    const double cost = cost_of(tuned, whole);
    if (cost >= best) continue;
    best = cost;
    for (std::size_t i = 0; i < tuned.size(); ++i)
      tuned[i].first_microseconds = whole[i].first_microseconds;
    out.shape.split = split;
    out.shape.buckets = std::move(tuned);
  }
}

ShapeTuning Tuner::tune(const std::vector<View>& weights, const Step& step) {
  weights_ = weights;
  next_weight_ = 0;
  rejected_ = 0;
  const View& first = weights_.front();
  const auto bytes = static_cast<std::int64_t>(bf16_bytes(first.rows, first.cols)) *
                     static_cast<std::int64_t>(weights_.size());
  weights_fit_cache_ = bytes < kColdBytes;
  fill_random(matrix(x_, buckets_.back(), first.cols), kSeedX, 1.0f, library_.stream());

  ShapeTuning out;
  out.shape.n = first.rows;
  out.shape.k = first.cols;
  out.shape.rows = buckets_.back();
  const Alignment alignment = product(buckets_.back()).alignment;
  out.shape.alignment = {alignment.weight, alignment.x, alignment.out};
  if (invariant_) {
    tune_invariant(out, step);
  } else {
    out.shape.buckets = tune_any(step);
  }
  out.rejected = rejected_;
  return out;
}

}  // namespace openjev::cuda
