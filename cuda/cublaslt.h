// The calls of cuBLASLt that a bfloat16 product out [rows, n] = x [rows, k] weight^T needs.
//
// The library thinks in column-major matrices. There the same memory is D (n x rows) = A^T B with
// A = weight (k x n, leading dimension k) and B = x (k x rows, leading dimension: x's stride), so
// nothing is ever transposed in memory. C is always D.
//
// A product in parts is a strided batch. Batch p multiplies columns [p k / parts, (p + 1) k /
// parts) of x and weight: the same matrices with k / parts rows, leading dimensions as before, k /
// parts elements apart. Its D is float32, the p-th of `parts` matrices [rows, n] one after another.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "cuda/raii.h"

namespace openjev::cuda {

// Bytes that divide the address, the row stride and the batch offset of an operand: 2, 4, 8 or 16.
// No algorithm wants more than 16, the unit of the tensor memory accelerator.
struct Alignment {
  std::int32_t weight = 16, x = 16, out = 16;

  // Whether an algorithm that was chosen for `needed` may be used on operands aligned like this.
  bool covers(const Alignment& needed) const {
    return weight >= needed.weight && x >= needed.x && out >= needed.out;
  }
  friend bool operator==(const Alignment&, const Alignment&) = default;
};

// The sizes of one product, strides in elements.
struct Product {
  std::int64_t n = 0, k = 0, rows = 0;
  std::int64_t x_stride = 0, out_stride = 0;
  int parts = 1;  // of k
  Alignment alignment;

  std::string text() const;  // for messages
};

// `out` is bfloat16 [rows, n], or with several parts float32 [parts * rows, n], contiguous. Throws
// kInternal when the views are not matrices of these types and agreeing shapes.
Product product_of(View x, View weight, View out, int parts);

// An algorithm as the library stores it: opaque words that stay valid for one version of it.
using AlgorithmWords = std::array<std::uint64_t, 8>;
AlgorithmWords words_of(const cublasLtMatmulAlgo_t& algorithm);
cublasLtMatmulAlgo_t algorithm_of(const AlgorithmWords& words);

std::string describe(
    const cublasLtMatmulAlgo_t& algorithm);  // identifiers of its parts, for people

// Throws for a status that is not success: kOutOfMemory, kDeviceUnavailable or kInternal.
void check_cublas(cublasStatus_t status, const std::string& what);

// A handle with its workspace. All launches go to one stream, which orders their use of the
// workspace.
class CublasLt {
 public:
  CublasLt(std::size_t workspace_bytes, cudaStream_t stream);

  cudaStream_t stream() const { return stream_; }

  // Whether K can be cut in `parts` equal parts of whole 128-byte lines that have room here.
  bool can_split(std::int64_t n, std::int64_t k, int parts) const;
  // The most rows of one product in parts, a multiple of 16; INT64_MAX for a product in one.
  std::int64_t slab_rows(std::int64_t n, int parts) const;
  // Where a product leaves its parts: float32 [parts * rows, n] of the workspace.
  View parts_view(int parts, std::int64_t rows, std::int64_t n) const;

  // The library's own ranking, best first, at most `count`; empty when it knows no algorithm.
  // `reduction_mask` is made of cublasLtReductionScheme_t; 0 excludes every split of K.
  std::vector<cublasLtMatmulAlgo_t> heuristics(const Product& product, std::uint32_t reduction_mask,
                                               int count) const;

  // Of these, the algorithms that go through the K of a batch in one sequence.
  std::vector<cublasLtMatmulAlgo_t> sequential(const Product& product, int count) const;

  // Whether the algorithm is able to compute the product within the workspace.
  bool usable(const Product& product, const cublasLtMatmulAlgo_t& algorithm) const;

  // Queues the product; out += with `accumulate`, not with several parts. Neither allocates nor
  // queries.
  cublasStatus_t launch(const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                        const void* x, const void* weight, void* out, bool accumulate) const;

 private:
  // What the library itself may use while it computes.
  std::size_t scratch_bytes(const Product& product) const;

  Handle<cublasLtHandle_t, cublasLtDestroy> handle_;
  cudaStream_t stream_;
  DeviceMemoryBlock workspace_;
  // The library takes descriptors by pointers to non-const and does not change them.
  mutable cublasLtMatmulDescOpaque_t operation_{};
};

}  // namespace openjev::cuda
