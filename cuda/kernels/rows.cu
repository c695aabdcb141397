// Row copies: out[r] = table[index[r]], for the embedding gather and for picking leaves.
//
// One block a row, 16 bytes a thread and step: the traffic is 2 * rows * cols * 2 bytes; an index
// that repeats is served from L2.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

template <class T>
__global__ void copy_rows(const T* __restrict__ table, std::int64_t table_stride,
                          const std::int32_t* __restrict__ index, T* __restrict__ out,
                          std::int64_t out_stride, std::int32_t cols) {
  grid_dependency_wait();
  grid_dependency_launch();
  const T* from = table + index[blockIdx.x] * table_stride;
  T* to = out + blockIdx.x * out_stride;
  for (auto c = static_cast<std::int32_t>(threadIdx.x); c < cols;
       c += static_cast<std::int32_t>(blockDim.x)) {
    to[c] = from[c];
  }
}

template <class T>
void copy(const char* name, View table, std::span<const std::int32_t> index, View out,
          std::int64_t per_item, cudaStream_t stream) {
  const auto cols = static_cast<std::int32_t>(out.cols / per_item);
  const unsigned threads = cols >= 512 ? 512u : static_cast<unsigned>((cols + 31) / 32 * 32);
  launch(name, copy_rows<T>, dim3(static_cast<unsigned>(out.rows)), dim3(threads), 0, stream,
         static_cast<const T*>(table.data), table.stride / per_item, index.data(),
         static_cast<T*>(out.data), out.stride / per_item, cols);
}

void copy(const char* name, View table, std::span<const std::int32_t> index, View out,
          cudaStream_t stream) {
  if (out.empty()) return;
  if (vectorizes(table.data, table.stride, out.cols) && vectorizes(out.data, out.stride, out.cols))
    copy<uint4>(name, table, index, out, kVector, stream);
  else
    copy<std::uint16_t>(name, table, index, out, 1, stream);
}

}  // namespace

void embed(View table, std::span<const std::int32_t> token, View out, cudaStream_t stream) {
  copy("embed", table, token, out, stream);
}

void gather_rows(View x, std::span<const std::int32_t> rows, View out, cudaStream_t stream) {
  copy("gather_rows", x, rows, out, stream);
}

}  // namespace openjev::cuda
