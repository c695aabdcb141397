// Measures which algorithm is best for a weight shape, and checks on this GPU that those chosen
// give the same bits.
//
// Time: median of launches over weights that are not in the L2 cache, two for every candidate, then
// eight for the six best. Bits: one algorithm's output for the largest bucket is the reference;
// what another one computes for fewer rows has to equal it row by row, with and without
// accumulation, or it is not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "cuda/cublaslt.h"
#include "cuda/raii.h"
#include "cuda/tuning_file.h"

namespace openjev::cuda {

// The numbers of rows that are measured. Any other number uses the next one, or the last.
std::span<const std::int64_t> measured_rows();
std::int64_t measured_bucket(std::int64_t rows);

struct ShapeTuning {
  TunedShape shape;
  std::int64_t rejected = 0;  // algorithms whose bits differed from the others'
  std::string warning;        // empty: nothing to say
};

// Owns the activations, outputs and scratch that measuring needs, on the device and pinned.
class Tuner {
 public:
  // Rows, split of K that are about to be measured.
  using Step = std::function<void(std::int64_t rows, int split)>;

  // For weights of at most max_n rows, max_k columns and buckets up to that of `rows`.
  Tuner(const CublasLt& library, bool invariant, std::int64_t rows, std::int64_t max_n,
        std::int64_t max_k);

  // `weights`: all of one shape; not empty. `step` is called for every bucket once with split 1 and
  // possibly again with others.
  ShapeTuning tune(const std::vector<View>& weights, const Step& step);

 private:
  struct Ranked {
    cublasLtMatmulAlgo_t algorithm;
    double microseconds;
  };
  // The output that every algorithm of one split must reproduce, with and without accumulation.
  struct Reference {
    std::vector<std::byte> plain, accumulated;
  };

  Product product(std::int64_t rows) const;
  std::optional<double> measure(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                                int launches);
  std::vector<Ranked> rank(std::int64_t rows, const std::vector<cublasLtMatmulAlgo_t>& algorithms);
  double measure_first(std::int64_t rows);

  std::optional<cublasLtMatmulAlgo_t> reference_algorithm(std::int64_t rows, int split);
  std::optional<Reference> compute(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm);
  bool launch_for_bits(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm, bool accumulate);
  bool output_equals(std::int64_t rows, const std::vector<std::byte>& expected);
  bool same_bits(std::int64_t bucket, const cublasLtMatmulAlgo_t& algorithm,
                 const Reference& reference);
  template <class Use>
  bool each_output_chunk(std::int64_t rows, const Use& use);

  std::vector<TunedBucket> tune_any(const Step& step);
  std::vector<TunedBucket> tune_split(int split, const std::vector<TunedBucket>& whole,
                                      const Step& step);
  std::vector<TunedBucket> tune_fixed();
  void tune_invariant(ShapeTuning& out, const Step& step);

  const CublasLt& library_;
  bool invariant_;
  std::vector<std::int64_t> buckets_;
  DeviceMemoryBlock x_, out_, flush_;
  PinnedMemoryBlock host_;
  std::vector<Event> events_;

  // The shape being measured.
  std::vector<View> weights_;
  std::size_t next_weight_ = 0;
  bool weights_fit_cache_ = false;
  std::int64_t rejected_ = 0;
};

}  // namespace openjev::cuda
