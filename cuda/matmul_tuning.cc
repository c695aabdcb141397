#include "cuda/matmul_tuning.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/matmul_workload.h"

namespace openjev::cuda {
namespace {

constexpr std::array<int, 3> kParts{1, 2, 4};  // of K

constexpr int kCandidates = 32;
constexpr std::size_t kCandidatesOfMany = 4;  // beyond kFewRows
// Compared at one clock. Steady use makes up for some of a difference.
constexpr double kHopeless = 1.5;   // times the quickest: not measured in steady use
constexpr double kDoubtful = 1.08;  // times the quickest: the library's first beyond kFewRows
constexpr double kClearly = 0.01;   // of the time in use

// More parts are measured for more rows only where they win at few, and kept only where they win
// enough to be worth adding them up.
constexpr double kWorthwhile = 0.99;  // of the time

std::vector<std::int64_t> buckets_up_to(std::int64_t rows) {
  std::vector<std::int64_t> buckets;
  for (std::int64_t bucket = 0; bucket < measured_bucket(rows);)
    buckets.push_back(bucket = matmul_bucket(bucket + 1));
  return buckets;
}

// Which of the library's candidates, given their times at one clock, are to be measured in use: its
// first ones and the quickest. Nothing is left in doubt when there is but one.
std::vector<std::size_t> contenders(std::int64_t rows, const std::vector<double>& times) {
  std::vector<std::size_t> by_time(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) by_time[i] = i;
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
  const double quickest = times[by_time.front()];
  if (rows > kFewRows && times.front() <= kDoubtful * quickest) return {0};

  const std::size_t each = std::min<std::size_t>(rows > kFewRows ? 1 : 2, times.size());
  std::vector<std::size_t> out(by_time.begin(),
                               by_time.begin() + static_cast<std::ptrdiff_t>(each));
  for (std::size_t i = 0; i < each; ++i) out.push_back(i);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase_if(out, [&](std::size_t i) { return times[i] > kHopeless * quickest; });
  return out;
}

}  // namespace

Tuner::Tuner(const CublasLt& library, bool invariant, int parts, std::int64_t rows,
             std::int64_t max_n, std::int64_t max_k)
    : invariant_(invariant),
      forced_parts_(parts),
      buckets_(buckets_up_to(rows)),
      trial_(library, buckets_.back(), max_n, max_k) {}

std::int64_t Tuner::most_steps() const {
  const bool several = invariant_ && forced_parts_ == 0;
  return std::ssize(buckets_) * (several ? std::ssize(kParts) : 1);
}

// Best first. The library's own first choice stays first unless it is clearly beaten.
std::vector<Tuner::Ranked> Tuner::rank(std::int64_t rows,
                                       std::vector<cublasLtMatmulAlgo_t> algorithms) {
  if (rows > kFewRows && algorithms.size() > kCandidatesOfMany)
    algorithms.resize(kCandidatesOfMany);
  if (algorithms.empty()) return {};
  const std::vector<double> times = trial_.compare(rows, algorithms);
  const std::vector<std::size_t> measured = contenders(rows, times);
  std::vector<Ranked> best, others;
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    if (std::isinf(times[i])) continue;
    Ranked candidate{algorithms[i], times[i]};
    if (!std::binary_search(measured.begin(), measured.end(), i)) {
      others.push_back(candidate);
      continue;
    }
    if (measured.size() > 1) {
      const auto time = trial_.measure_in_use(rows, candidate.algorithm, candidate.microseconds);
      if (!time) continue;
      candidate.microseconds = *time;
    }
    best.push_back(candidate);
  }
  const AlgorithmWords own = words_of(algorithms.front());
  const auto handicapped = [&](const Ranked& r) {
    return r.microseconds * (words_of(r.algorithm) == own ? 1 - kClearly : 1);
  };
  const auto faster = [&](const Ranked& a, const Ranked& b) {
    return handicapped(a) < handicapped(b);
  };
  std::stable_sort(best.begin(), best.end(), faster);
  std::stable_sort(others.begin(), others.end(), faster);
  best.insert(best.end(), others.begin(), others.end());
  return best;
}

std::vector<cublasLtMatmulAlgo_t> Tuner::sequential(std::int64_t rows) const {
  return trial_.library().sequential(trial_.product(rows), kCandidates);
}

// The first sequential algorithm for these rows that the library does run.
std::optional<cublasLtMatmulAlgo_t> Tuner::reference_algorithm(std::int64_t rows) {
  for (const auto& algorithm : sequential(rows)) {
    if (trial_.compute(rows, algorithm, false)) return algorithm;
  }
  return {};
}

// For the most and the fewest rows that the algorithm will be used for.
bool Tuner::same_bits(std::int64_t bucket, const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<std::int64_t> counts{bucket};
  if (bucket == buckets_.front()) {
    counts.insert(counts.end(), {7, 1});
  } else {
    counts.push_back(*(std::lower_bound(buckets_.begin(), buckets_.end(), bucket) - 1) + 1);
  }
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::int64_t rows) { return bits_.met(trial_, rows, algorithm); });
}

std::vector<TunedBucket> Tuner::tune_any(const Step& step) {
  std::vector<TunedBucket> tuned;
  for (const std::int64_t rows : buckets_) {
    step(rows, 1);
    const std::vector<Ranked> ranked =
        rank(rows, trial_.library().heuristics(trial_.product(rows), CUBLASLT_REDUCTION_SCHEME_MASK,
                                               kCandidates));
    if (ranked.empty()) continue;
    tuned.push_back({rows, ranked.front().microseconds, words_of(ranked.front().algorithm)});
  }
  return tuned;
}

// The first is measured in full; a later one has to win over those before it.
std::vector<int> Tuner::candidate_parts() const {
  const auto possible = [&](int parts) {
    return trial_.library().can_split(trial_.n(), trial_.k(), parts);
  };
  if (forced_parts_ > 0) return {possible(forced_parts_) ? forced_parts_ : 1};
  std::vector<int> parts(kParts.begin(), kParts.end());
  std::erase_if(parts, [&](int count) { return !possible(count); });
  return parts;
}

// Those of one slab.
std::vector<std::int64_t> Tuner::buckets_of_parts() const {
  std::vector<std::int64_t> buckets = buckets_;
  const std::int64_t most = trial_.library().slab_rows(trial_.n(), trial_.parts());
  std::erase_if(buckets, [most](std::int64_t rows) { return rows > most; });
  return buckets;
}

double Tuner::time_of(const std::vector<TunedBucket>& tuned, std::int64_t most_rows) const {
  return workload_time(tuned, buckets_, most_rows, trial_.n(), trial_.parts());
}

// For every bucket the fastest algorithm with the bits of the others; empty when some bucket has
// none, or when few rows take as long as `limit` microseconds on average.
std::vector<TunedBucket> Tuner::tune_parts(double limit, const Step& step) {
  const std::vector<std::int64_t> buckets = buckets_of_parts();
  const auto algorithm = reference_algorithm(buckets.back());
  if (!algorithm || !bits_.expect(trial_, buckets.back(), *algorithm)) return {};

  std::vector<TunedBucket> tuned;
  for (const std::int64_t rows : buckets) {
    if (rows == matmul_bucket(kFewRows + 1) && time_of(tuned, kFewRows) >= limit) return {};
    step(rows, trial_.parts());
    const std::vector<Ranked> ranked = rank(rows, sequential(rows));
    const auto same = std::find_if(ranked.begin(), ranked.end(),
                                   [&](const Ranked& r) { return same_bits(rows, r.algorithm); });
    if (same == ranked.end()) return {};
    tuned.push_back({rows, same->microseconds, words_of(same->algorithm)});
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
    const double time = trial_.compare(rows, {{*algorithm}}).front();
    if (std::isinf(time)) return {};
    tuned.push_back({rows, time, words_of(*algorithm)});
  }
  return tuned;
}

void Tuner::tune_invariant(ShapeTuning& out, const Step& step) {
  const std::vector<int> candidates = candidate_parts();
  double best = INFINITY, best_few = INFINITY;
  for (const int parts : candidates) {
    trial_.cut(parts);
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
    out.shape.parts = candidates.front();
    trial_.cut(out.shape.parts);
    out.shape.buckets = tune_fixed();
    out.warning = out.shape.buckets.empty()
                      ? "no algorithm that goes through K in one sequence runs for every number of "
                        "rows"
                      : "no set of algorithms gave the same bits for every number of rows; one "
                        "fixed algorithm is used for all, and it is not the fastest";
  }
  trial_.cut(out.shape.parts);
}

ShapeTuning Tuner::tune(const std::vector<View>& weights, const Step& step) {
  trial_.begin(weights);
  ShapeTuning out;
  out.shape.n = trial_.n();
  out.shape.k = trial_.k();
  out.shape.rows = buckets_.back();
  if (invariant_) {
    tune_invariant(out, step);
  } else {
    out.shape.buckets = tune_any(step);
  }
  const Alignment alignment = trial_.product(buckets_.front()).alignment;
  out.shape.alignment = {alignment.weight, alignment.x, alignment.out};
  return out;
}

}  // namespace openjev::cuda
