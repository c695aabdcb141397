// Products with the weights of one shape, launched to be timed or looked at: what the choice of an
// algorithm is made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "cuda/cublaslt.h"
#include "cuda/raii.h"

namespace openjev::cuda {

// Owns x and the results. Times are of launches whose weights are not in the L2 cache.
class MatmulTrial {
 public:
  // For at most so many rows, and weights of at most so many rows (most_n) and columns (most_k).
  MatmulTrial(const CublasLt& library, std::int64_t most_rows, std::int64_t most_n,
              std::int64_t most_k);

  // The weights that products are tried with from now on, in turn: all of one shape, not empty. K
  // is in one part.
  void begin(const std::vector<View>& weights);
  void cut(int parts) { parts_ = parts; }

  const CublasLt& library() const { return library_; }
  std::int64_t n() const { return weights_.front().rows; }
  std::int64_t k() const { return weights_.front().cols; }
  int parts() const { return parts_; }
  Product product(std::int64_t rows) const;
  // Bfloat16 [rows, n], or with several parts float32 [parts * rows, n].
  View output(std::int64_t rows) const;

  // Queues the product with the first weight over an output that is filled first: with what is to
  // be added, or with a pattern that shows any element that the algorithm leaves out. False when
  // the library refuses.
  bool compute(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm, bool accumulate);

  // Microseconds of each, compared at one clock: single launches in turn, the least of some rounds;
  // infinite where the library refuses.
  std::vector<double> compare(std::int64_t rows, std::span<const cublasLtMatmulAlgo_t> algorithms);

  // Microseconds in use; `about`: what it roughly takes. Nothing when the library refuses.
  std::optional<double> measure_in_use(std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm,
                                       double about);

 private:
  std::optional<double> measure(const Product& sizes, const cublasLtMatmulAlgo_t& algorithm,
                                int launches);
  cublasStatus_t launch_next(const Product& sizes, const cublasLtMatmulAlgo_t& algorithm);
  void flush();
  void record(std::size_t event);
  double between(std::size_t first, std::size_t last) const;

  const CublasLt& library_;
  std::int64_t most_rows_;
  DeviceMemoryBlock x_, out_, flush_;
  std::vector<Event> events_;

  std::vector<View> weights_;
  int parts_ = 1;
  std::size_t next_weight_ = 0;
  bool weights_fit_cache_ = false;
};

}  // namespace openjev::cuda
