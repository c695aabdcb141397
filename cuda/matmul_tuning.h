// Measures which algorithm is best for a weight shape and in how many parts its K is to be cut, and
// checks on this GPU that the algorithms chosen give the same bits.
//
// Time: candidates are compared at one clock; those that the result leaves in doubt are then
// measured long enough for the clock to sink to what the power limit allows in steady use: which
// algorithm wins depends on it. The library's own order was made for the very rows that it is asked
// about, so many rows have a bucket for each height of a tile, and there its first choice counts
// unless it is clearly beaten. Parts: those with the least time over a workload in mind, all
// numbers of rows together. Bits: one algorithm's output for the largest bucket is the reference;
// what another one computes for fewer rows has to equal it row by row, or it is not used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "cuda/cublaslt.h"
#include "cuda/matmul_bits.h"
#include "cuda/matmul_trial.h"
#include "cuda/tuning_file.h"

namespace openjev::cuda {

struct ShapeTuning {
  TunedShape shape;
  std::string warning;  // empty: nothing to say
};

class Tuner {
 public:
  // Rows, parts of K that are about to be measured.
  using Step = std::function<void(std::int64_t rows, int parts)>;

  // For weights of at most max_n rows, max_k columns and buckets up to that of `rows`. `parts`: of
  // every K that can be cut so, 0 for the fastest; only with `invariant`.
  Tuner(const CublasLt& library, bool invariant, int parts, std::int64_t rows, std::int64_t max_n,
        std::int64_t max_k);

  // `weights`: all of one shape; not empty. `step` is called for every bucket, with each number of
  // parts that is worth measuring for it.
  ShapeTuning tune(const std::vector<View>& weights, const Step& step);

  std::int64_t most_steps() const;  // calls of `step` for one shape

 private:
  struct Ranked {
    cublasLtMatmulAlgo_t algorithm;
    double microseconds;
  };

  std::vector<Ranked> rank(std::int64_t rows, std::vector<cublasLtMatmulAlgo_t> algorithms);
  bool same_bits(std::int64_t bucket, const cublasLtMatmulAlgo_t& algorithm);
  std::vector<cublasLtMatmulAlgo_t> sequential(std::int64_t rows) const;
  std::optional<cublasLtMatmulAlgo_t> reference_algorithm(std::int64_t rows);

  std::vector<int> candidate_parts() const;
  std::vector<std::int64_t> buckets_of_parts() const;
  double time_of(const std::vector<TunedBucket>& tuned, std::int64_t most_rows) const;

  std::vector<TunedBucket> tune_any(const Step& step);
  std::vector<TunedBucket> tune_parts(double limit, const Step& step);
  std::vector<TunedBucket> tune_fixed();
  void tune_invariant(ShapeTuning& out, const Step& step);

  bool invariant_;
  int forced_parts_;
  std::vector<std::int64_t> buckets_;
  MatmulTrial trial_;
  MatmulBits bits_;
};

}  // namespace openjev::cuda
