// Per head of 128 values: out = R(w * x * rsqrt(mean(x^2) + eps) * silu(z)).
//
// 16 lanes hold a head, 8 values each, so the mean is four shuffles; a block does 16 heads. 3 *
// rows * heads * 128 * 2 bytes.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeadLanes = kDeltaDim / kVector;
constexpr int kHeadsPerBlock = kThreads / kHeadLanes;

__global__ void __launch_bounds__(kThreads)
    gated_norm_heads(const std::uint16_t* __restrict__ x, std::int64_t x_stride,
                     const std::uint16_t* __restrict__ z, std::int64_t z_stride,
                     const float* __restrict__ weight, float eps, std::uint16_t* __restrict__ out,
                     std::int64_t out_stride, std::int32_t heads, std::int32_t items) {
  const int lane = static_cast<int>(threadIdx.x) % kHeadLanes;
  Float8 w;
#pragma unroll
  for (int i = 0; i < kVector; ++i) w.v[i] = weight[lane * kVector + i];
  grid_dependency_wait();
  grid_dependency_launch();

  const int item =
      static_cast<int>(blockIdx.x) * kHeadsPerBlock + static_cast<int>(threadIdx.x) / kHeadLanes;
  const bool mine = item < items;  // the whole warp takes part in the shuffles
  const std::int64_t row = mine ? item / heads : 0;
  const int column = (mine ? item % heads : 0) * kDeltaDim + lane * kVector;
  Float8 n = unpack8(*reinterpret_cast<const uint4*>(x + row * x_stride + column));
  const Float8 gate = unpack8(*reinterpret_cast<const uint4*>(z + row * z_stride + column));
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) squares += n.v[i] * n.v[i];
  const float inverse = rsqrtf(lanes_sum<kHeadLanes>(squares) * (1.0f / kDeltaDim) + eps);
#pragma unroll
  for (int i = 0; i < kVector; ++i) n.v[i] *= inverse * w.v[i] * silu(gate.v[i]);
  if (mine) *reinterpret_cast<uint4*>(out + row * out_stride + column) = pack8(n);
}

}  // namespace

void gated_rms_norm(View x, View z, View weight, float eps, View out, cudaStream_t stream) {
  check(weight.cols == kDeltaDim, "gated_rms_norm on cuda: value_dim ", weight.cols,
        "; compiled for ", kDeltaDim);
  check(vectorizes(x.data, x.stride, x.cols) && vectorizes(z.data, z.stride, z.cols) &&
            vectorizes(out.data, out.stride, out.cols),
        "gated_rms_norm on cuda: rows are not aligned to 16 bytes");
  const auto heads = static_cast<std::int32_t>(x.cols / kDeltaDim);
  const auto items = static_cast<std::int32_t>(x.rows) * heads;
  const auto blocks = static_cast<unsigned>((items + kHeadsPerBlock - 1) / kHeadsPerBlock);
  launch("gated_rms_norm", gated_norm_heads, dim3(blocks), dim3(kThreads), 0, stream,
         static_cast<const std::uint16_t*>(x.data), x.stride,
         static_cast<const std::uint16_t*>(z.data), z.stride,
         static_cast<const float*>(weight.data), eps, static_cast<std::uint16_t*>(out.data),
         out.stride, heads, items);
}

}  // namespace openjev::cuda
