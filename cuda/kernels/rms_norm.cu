// RMSNorm, alone or after a residual addition:
//   h = R(residual + update)  (stored back)      out = R(h * rsqrt(mean(h^2) + eps) * (1 + w))
//
// One thread holds 8 columns of a row in registers from load to store, so that a row is read once
// and written once: 4 (alone: 2) * rows * cols * 2 bytes. A block has cols / 8 threads (640 at 5120
// columns) and walks over rows with the next row's loads in flight and its weights in registers.
// Columns that are no multiple of 8 take a plain three-pass kernel.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr std::int64_t kThreadsInFlight = 132 * 2048;  // enough resident threads for every SM

struct NormRows {
  const std::uint16_t* x;
  std::int64_t x_stride;
  std::uint16_t* residual;  // null: x is normalized as it is
  std::int64_t residual_stride;
  const float* weight;
  std::uint16_t* out;
  std::int64_t out_stride;
  std::int32_t rows, cols;
  float eps;
};

__device__ __forceinline__ uint4 load(const std::uint16_t* base, std::int64_t stride, int row,
                                      int vector) {
  return reinterpret_cast<const uint4*>(base + row * stride)[vector];
}

template <bool kAdd>
__global__ void __launch_bounds__(kMostThreads) norm_rows(const NormRows p) {
  const int vector = static_cast<int>(threadIdx.x);
  const bool mine = vector * kVector < p.cols;
  Float8 scale{};
  if (mine) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) scale.v[i] = 1.0f + p.weight[vector * kVector + i];
  }
  grid_dependency_wait();
  grid_dependency_launch();

  const float inverse_cols = 1.0f / static_cast<float>(p.cols);
  const int step = static_cast<int>(gridDim.x);
  int row = static_cast<int>(blockIdx.x);
  uint4 x{}, r{};
  if (mine) {
    x = load(p.x, p.x_stride, row, vector);
    if (kAdd) r = load(p.residual, p.residual_stride, row, vector);
  }
  while (row < p.rows) {
    const int next = row + step;
    uint4 next_x{}, next_r{};
    if (mine && next < p.rows) {
      next_x = load(p.x, p.x_stride, next, vector);
      if (kAdd) next_r = load(p.residual, p.residual_stride, next, vector);
    }
    Float8 h = unpack8(x);
    if (kAdd) {
      const Float8 add = unpack8(r);
#pragma unroll
      for (int i = 0; i < kVector; ++i) h.v[i] += add.v[i];
      const uint4 rounded = pack8(h);
      if (mine) reinterpret_cast<uint4*>(p.residual + row * p.residual_stride)[vector] = rounded;
      h = unpack8(rounded);
    }
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kVector; ++i) squares += h.v[i] * h.v[i];
    const float inverse = rsqrtf(block_sum(squares) * inverse_cols + p.eps);
#pragma unroll
    for (int i = 0; i < kVector; ++i) h.v[i] = h.v[i] * inverse * scale.v[i];
    if (mine) reinterpret_cast<uint4*>(p.out + row * p.out_stride)[vector] = pack8(h);
    row = next;
    x = next_x;
    r = next_r;
  }
}

__device__ __forceinline__ float widen_one(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

__device__ __forceinline__ std::uint16_t narrow_one(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

__global__ void norm_rows_scalar(const NormRows p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const int step = static_cast<int>(blockDim.x), first = static_cast<int>(threadIdx.x);
  const std::uint16_t* x = p.x + row * p.x_stride;
  if (p.residual != nullptr) {
    std::uint16_t* residual = p.residual + row * p.residual_stride;
    for (int c = first; c < p.cols; c += step)
      residual[c] = narrow_one(widen_one(residual[c]) + widen_one(x[c]));
    x = residual;  // each thread reads back the columns it wrote
  }
  float squares = 0.0f;
  for (int c = first; c < p.cols; c += step) {
    const float h = widen_one(x[c]);
    squares += h * h;
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(p.cols) + p.eps);
  for (int c = first; c < p.cols; c += step)
    p.out[row * p.out_stride + c] = narrow_one(widen_one(x[c]) * inverse * (1.0f + p.weight[c]));
}

void run(const char* name, const NormRows& p, cudaStream_t stream) {
  if (p.rows == 0 || p.cols == 0) return;
  const bool wide =
      vectorizes(p.x, p.x_stride, p.cols) && vectorizes(p.out, p.out_stride, p.cols) &&
      vectorizes(p.residual, p.residual_stride, p.cols) && p.cols <= kMostThreads * kVector;
  if (!wide) {
    launch(name, norm_rows_scalar, dim3(static_cast<unsigned>(p.rows)), dim3(256), 0, stream, p);
    return;
  }
  const int threads = (p.cols / kVector + kWarp - 1) / kWarp * kWarp;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(p.rows, kThreadsInFlight / threads));
  launch(name, p.residual == nullptr ? norm_rows<false> : norm_rows<true>, dim3(blocks),
         dim3(static_cast<unsigned>(threads)), 0, stream, p);
}

NormRows rows_of(View x, View weight, float eps, View out) {
  NormRows p{};
  p.x = static_cast<const std::uint16_t*>(x.data);
  p.x_stride = x.stride;
  p.weight = static_cast<const float*>(weight.data);
  p.out = static_cast<std::uint16_t*>(out.data);
  p.out_stride = out.stride;
  p.rows = static_cast<std::int32_t>(x.rows);
  p.cols = static_cast<std::int32_t>(x.cols);
  p.eps = eps;
  return p;
}

}  // namespace

void rms_norm(View x, View weight, float eps, View out, cudaStream_t stream) {
  run("rms_norm", rows_of(x, weight, eps, out), stream);
}

void add_rms_norm(View residual, View update, View weight, float eps, View out,
                  cudaStream_t stream) {
  NormRows p = rows_of(update, weight, eps, out);
  p.residual = static_cast<std::uint16_t*>(residual.data);
  p.residual_stride = residual.stride;
  run("add_rms_norm", p, stream);
}

}  // namespace openjev::cuda
