// Matrix products by cuBLASLt: y = x W^T in bfloat16 with float32 accumulation and one rounding.
//
// For every weight shape and row bucket one algorithm is chosen, by measurement (tune) or else by
// the library's first heuristic, and kept. Mode "invariant": only algorithms that go through K in
// one sequence are used, and only those that gave the same bits on this GPU: a row of y does not
// depend on how many rows x has. Where N is too small to occupy the GPU, K is cut in a number of
// parts that is fixed per weight shape: one batched product leaves them in float32 in the
// workspace, and whoever reads them adds them in their order. They need room that grows with the
// rows; where it does not suffice, x is worked off in slabs of rows. Mode "fast": any algorithm.
//
// An object serves one thread and one stream.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace openjev::cuda {

struct MatmulOptions {
  bool invariant = true;
  std::string tuning_file;  // read at construction, written by tune; empty: none
  std::size_t workspace_bytes = 192u << 20;
  int parts = 0;  // invariant: of K, in every shape that allows it; 0: as measured
};

class Matmul {
 public:
  using Steps = std::function<void(std::int64_t, std::int64_t, const std::string&)>;

  Matmul(const MatmulOptions& options, cudaStream_t stream);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // out [M, N] = x [M, K] weight^T (+ out, when `accumulate`), weight [N, K] contiguous, all
  // bfloat16; rows of x and out may be strided. Chooses an algorithm on the first use of a shape,
  // bucket and alignment; afterwards neither allocates nor queries. Throws with the shape when the
  // library has no algorithm for it or refuses to run.
  void run(View x, View weight, View out, bool accumulate);

  // How many parts K is cut in for this weight: the same for every number of rows; 1 where nothing
  // was measured (unless the options say how many) and in mode "fast".
  int parts(View weight) const;
  // The most rows of one run_parts; INT64_MAX when parts(weight) is 1.
  std::int64_t slab_rows(View weight) const;
  // For weights of several parts: queues the products of the parts of x [M, K] and weight and
  // returns where they will be, float32 [parts * M, N] with the rows of a part together. Valid
  // until the next call. M is at most slab_rows(weight). Throws as run does.
  View run_parts(View x, View weight);

  // Measures algorithms for weights of these shapes (several views of one shape are used in turn,
  // so that none is warm in L2) for row buckets up to `rows`, and writes the tuning file. Shapes
  // that the file already has are not measured again. Then loads the kernels of all that is known
  // about these shapes. Waits for the stream; may change what run() computes in the last bits, so
  // it belongs before the first request.
  void tune(const std::vector<View>& weights, std::int64_t rows, const Steps& steps);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openjev::cuda
