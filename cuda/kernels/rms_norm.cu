// RMSNorm, alone or after a residual addition:
//   h = R(residual + update)  (stored back)      out = R(h * rsqrt(mean(h^2) + eps) * (1 + w))
//
// A block does one row: a thread holds up to kVectors x 8 columns in registers from load to store,
// so that a row is read once and written once, 4 (alone: 2) * rows * cols * 2 bytes, with all its
// loads in flight at once. A block of 5120 columns has 160 threads of at most 48 registers, so that
// 1056 rows are under way at a time. The weights stay in L1. Which columns a thread sums depends on
// the width alone. Columns that are no multiple of 8 take a plain three-pass kernel.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kVectors = 4;
constexpr int kMostThreads = 256;
constexpr int kBlocksPerSm = 4;  // of the largest block; bounds the registers

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

template <bool kAdd>
__global__ void __launch_bounds__(kMostThreads, kBlocksPerSm) norm_row(const NormRows p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const int vectors = p.cols / kVector;
  const auto* x = reinterpret_cast<const uint4*>(p.x + row * p.x_stride);
  auto* residual = reinterpret_cast<uint4*>(p.residual + row * p.residual_stride);
  uint4 held[kVectors], add[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    held[i] = add[i] = uint4{};
    if (vector >= vectors) continue;
    held[i] = x[vector];
    if (kAdd) add[i] = residual[vector];
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    Float8 h = unpack8(held[i]);
    if (kAdd) {
      const Float8 other = unpack8(add[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) h.v[j] += other.v[j];
      held[i] = pack8(h);
      if (vector < vectors) residual[vector] = held[i];
      h = unpack8(held[i]);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += h.v[j] * h.v[j];
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(p.cols) + p.eps);
  auto* out = reinterpret_cast<uint4*>(p.out + row * p.out_stride);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    if (vector >= vectors) continue;
    const auto* weight = reinterpret_cast<const float4*>(p.weight) + 2 * vector;
    const float4 low = weight[0], high = weight[1];
    const float w[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    Float8 h = unpack8(held[i]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) h.v[j] = h.v[j] * inverse * (1.0f + w[j]);
    out[vector] = pack8(h);
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
  const bool wide = vectorizes(p.x, p.x_stride, p.cols) &&
                    vectorizes(p.out, p.out_stride, p.cols) &&
                    vectorizes(p.residual, p.residual_stride, p.cols) &&
                    vectorizes(p.weight, 0, p.cols) && p.cols <= kMostThreads * kVectors * kVector;
  const dim3 grid(static_cast<unsigned>(p.rows));
  if (!wide) {
    launch(name, norm_rows_scalar, grid, dim3(256), 0, stream, p);
    return;
  }
  const int per_thread = kVectors * kVector;
  const int threads = ((p.cols + per_thread - 1) / per_thread + kWarp - 1) / kWarp * kWarp;
  launch(name, p.residual == nullptr ? norm_row<false> : norm_row<true>, grid,
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
