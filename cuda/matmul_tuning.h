// Measures which algorithm is best for a weight shape and in how many parts its K is to be cut, and
// checks on this GPU that the algorithms chosen give the same bits.
//
// Time: launches back to back over weights that are not in the L2 cache, two for every candidate;
// then, for the first ones of the library's and the quickest, long enough for the clock to sink to
// what the power limit allows in steady use: which algorithm wins depends on it. Parts: those with
// the least time over a workload in mind, all numbers of rows together. Bits: one algorithm's
// output for the largest bucket is the reference; what another one computes for fewer rows has to
// equal it row by row, or it is not used. Outputs are compared with and without accumulation;
// parts, to which nothing is ever accumulated, in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "cuda/cublaslt.h"
#include "cuda/raii.h"
#include "cuda/tuning_file.h"

namespace openjev::cuda {

struct ShapeTuning {
  TunedShape shape;
  std::string warning;  // empty: nothing to say
};

// Owns the activations, outputs and scratch that measuring needs, on the device and pinned.
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
  // The output that every algorithm of one number of parts must reproduce: [parts][rows, n].
  struct Reference {
    std::int64_t rows;
    std::vector<std::byte> plain, accumulated;
  };

  View output(std::int64_t rows, int parts) const;
  Product product(std::int64_t rows, int parts) const;
  Product product(std::int64_t rows) const { return product(rows, parts_); }
  std::optional<double> measure(const Product& sizes, const cublasLtMatmulAlgo_t& algorithm,
                                int launches);
  std::optional<double> measure_in_use(const Product& sizes, const Ranked& candidate);
  std::vector<Ranked> rank(std::int64_t rows, const std::vector<cublasLtMatmulAlgo_t>& algorithms);
  double measure_first(std::int64_t rows);

  std::optional<cublasLtMatmulAlgo_t> reference_algorithm(std::int64_t rows);
  std::optional<Reference> compute(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm);
  bool launch_for_bits(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm, bool accumulate);
  bool output_equals(std::int64_t rows, std::int64_t expected_rows,
                     const std::vector<std::byte>& expected);
  bool same_bits(std::int64_t bucket, const cublasLtMatmulAlgo_t& algorithm,
                 const Reference& reference);
  template <class Use>
  bool each_output_chunk(std::int64_t rows, const Use& use);

  std::vector<int> candidate_parts() const;
  std::vector<std::int64_t> buckets_of_parts() const;
  double time_of(const std::vector<TunedBucket>& tuned, std::int64_t most_rows) const;

  std::vector<TunedBucket> tune_any(const Step& step);
  std::vector<TunedBucket> tune_parts(double limit, const Step& step);
  std::vector<TunedBucket> tune_fixed();
  void tune_invariant(ShapeTuning& out, const Step& step);

  const CublasLt& library_;
  bool invariant_;
  int forced_parts_;
  std::vector<std::int64_t> buckets_;
  DeviceMemoryBlock x_, out_, flush_;
  PinnedMemoryBlock host_;
  std::vector<Event> events_;

  // The shape being measured, and in how many parts.
  std::vector<View> weights_;
  int parts_ = 1;
  std::size_t next_weight_ = 0;
  bool weights_fit_cache_ = false;
};

}  // namespace openjev::cuda
