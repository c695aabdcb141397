// out[i][j] = hidden[i] . weight[j] + bias[j] in float32, hidden rounded to bfloat16 before.
//
// One block a (row, output): the rows are few (the leaves) and the sum has a fixed order.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    dot_rows(const __nv_bfloat16* __restrict__ hidden, std::int64_t hidden_stride,
             const float* __restrict__ weight, std::int64_t weight_stride,
             const float* __restrict__ bias, float* __restrict__ out, std::int64_t out_stride,
             std::int32_t cols) {
  grid_dependency_wait();
  grid_dependency_launch();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto output = static_cast<std::int64_t>(blockIdx.y);
  float sum = 0.0f;
  for (auto c = static_cast<std::int32_t>(threadIdx.x); c < cols; c += kThreads) {
    sum += __bfloat162float(hidden[row * hidden_stride + c]) * weight[output * weight_stride + c];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    out[row * out_stride + output] = sum + (bias == nullptr ? 0.0f : bias[output]);
}

}  // namespace

void readout(View hidden, View weight, View bias, View out, cudaStream_t stream) {
  launch("readout", dot_rows,
         dim3(static_cast<unsigned>(out.rows), static_cast<unsigned>(out.cols)), dim3(kThreads), 0,
         stream, static_cast<const __nv_bfloat16*>(hidden.data), hidden.stride,
         static_cast<const float*>(weight.data), weight.stride,
         bias.empty() ? nullptr : static_cast<const float*>(bias.data),
         static_cast<float*>(out.data), out.stride, static_cast<std::int32_t>(hidden.cols));
}

}  // namespace openjev::cuda
