// out = R(silu(g) * u), g and u the two halves of a row of gate_up.
//
// 16-byte accesses, several of both halves in flight a thread before the first use: 3 * rows *
// width * 2 bytes, nothing is reused. Widths that are no multiple of 8 take one element a thread.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kManyVectors = 1 << 19;  // from here on four vectors a thread fill the chip

struct SiluMul {
  const std::uint16_t* gate_up;
  std::int64_t stride;
  std::uint16_t* out;
  std::int64_t out_stride;
  std::int32_t width;  // items (vectors or elements) a row
  std::int64_t items;  // in all
};

template <int kItems>
__global__ void __launch_bounds__(kThreads) silu_mul_vectors(const SiluMul p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const std::int64_t base = std::int64_t{blockIdx.x} * (kThreads * kItems) + threadIdx.x;
  uint4 gate[kItems], up[kItems];
  uint4* to[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const std::int64_t item = base + i * kThreads;
    to[i] = nullptr;
    if (item >= p.items) continue;
    const auto row = static_cast<std::int64_t>(static_cast<std::uint32_t>(item) /
                                               static_cast<std::uint32_t>(p.width));
    const auto column = static_cast<std::int32_t>(item - row * p.width);
    const auto* from = reinterpret_cast<const uint4*>(p.gate_up + row * p.stride);
    gate[i] = from[column];
    up[i] = from[p.width + column];
    to[i] = reinterpret_cast<uint4*>(p.out + row * p.out_stride) + column;
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (to[i] == nullptr) continue;
    Float8 g = unpack8(gate[i]);
    const Float8 u = unpack8(up[i]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) g.v[j] = silu(g.v[j]) * u.v[j];
    *to[i] = pack8(g);
  }
}

__global__ void __launch_bounds__(kThreads) silu_mul_elements(const SiluMul p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= p.items) return;
  const std::int64_t row = item / p.width, column = item % p.width;
  const auto* from = reinterpret_cast<const __nv_bfloat16*>(p.gate_up) + row * p.stride;
  const float g = __bfloat162float(from[column]), u = __bfloat162float(from[p.width + column]);
  reinterpret_cast<__nv_bfloat16*>(p.out)[row * p.out_stride + column] =
      __float2bfloat16_rn(silu(g) * u);
}

}  // namespace

void silu_mul(View gate_up, View out, cudaStream_t stream) {
  if (out.empty()) return;
  SiluMul p{static_cast<const std::uint16_t*>(gate_up.data),
            gate_up.stride,
            static_cast<std::uint16_t*>(out.data),
            out.stride,
            0,
            0};
  const bool vectors = vectorizes(gate_up.data, gate_up.stride, out.cols) &&
                       vectorizes(out.data, out.stride, out.cols);
  p.width = static_cast<std::int32_t>(vectors ? out.cols / kVector : out.cols);
  p.items = out.rows * p.width;
  check(p.items <= UINT32_MAX, "silu_mul on cuda: ", p.items, " items are too many");
  const auto blocks = [&](std::int64_t per_block) {
    return dim3(static_cast<unsigned>((p.items + per_block - 1) / per_block));
  };
  if (!vectors)
    launch("silu_mul", silu_mul_elements, blocks(kThreads), dim3(kThreads), 0, stream, p);
  else if (p.items < kManyVectors)
    launch("silu_mul", silu_mul_vectors<1>, blocks(kThreads), dim3(kThreads), 0, stream, p);
  else
    launch("silu_mul", silu_mul_vectors<4>, blocks(4 * kThreads), dim3(kThreads), 0, stream, p);
}

}  // namespace openjev::cuda
