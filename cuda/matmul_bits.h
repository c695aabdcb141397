// Whether algorithms give the same bits on this GPU, whatever the number of rows.
#pragma once

#include <cstdint>

#include "cuda/cublaslt.h"
#include "cuda/matmul_trial.h"
#include "cuda/raii.h"

namespace openjev::cuda {

// What one algorithm computed for many rows, kept on the device: a row that another algorithm
// computes among fewer rows has to equal it. With and without accumulation; parts, to which nothing
// is ever accumulated, in float32.
class MatmulBits {
 public:
  MatmulBits();

  // Takes the trial's product by this algorithm as what is expected from now on. False when the
  // library refuses.
  bool expect(MatmulTrial& trial, std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm);

  // Whether the algorithm gives the expected bits for so many rows, at most those of the
  // expectation. Waits for the stream.
  bool met(MatmulTrial& trial, std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm);

 private:
  void compare(const MatmulTrial& trial, std::int64_t rows, const DeviceMemoryBlock& expected);

  std::int64_t rows_ = 0;  // of the expectation
  DeviceMemoryBlock plain_, accumulated_;
  DeviceMemoryBlock differ_;  // one word
  PinnedMemoryBlock seen_;
};

}  // namespace openjev::cuda
