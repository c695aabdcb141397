// RMSNorm, alone or after a residual addition, of an update or of the float32 parts of a product
// whose K was split:
//   h = R(residual + update)  or  R(residual + (part_0 + part_1 + ...))      (stored back)
//   out = R(h * rsqrt(mean(h^2) + eps) * (1 + w))
//
// A block does one row: a thread holds up to kVectors x 8 columns in registers from load to store,
// so that a row is read once and written once, 4 (alone: 2) * rows * cols * 2 bytes, with all its
// loads in flight at once. A block of 5120 columns has 320 threads, and several rows are under way
// on an SM. The weights stay in L1. Which columns a thread sums depends on the width alone. Columns
// that are no multiple of 8 take a plain three-pass kernel.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kVectors = 2;
constexpr int kMostThreads = 512;
constexpr int kBlocksPerSm = 2;  // of the largest block; bounds the registers

enum class Addend { kNone, kUpdate, kParts };

struct NormRows {
  const std::uint16_t* x;
  std::int64_t x_stride;
  std::uint16_t* residual;  // null: x is normalized as it is
  std::int64_t residual_stride;
  const float* parts;  // instead of x: [count][rows, cols], contiguous
  std::int32_t count;
  const float* weight;
  std::uint16_t* out;
  std::int64_t out_stride;
  std::int32_t rows, cols;
  float eps;
};

// Columns [8 vector, + 8) of the sum of a row's parts, added in their order.
__device__ __forceinline__ Float8 sum_of_parts(const NormRows& p, std::int64_t row, int vector) {
  Float8 sum{};
  const std::int64_t part = std::int64_t{p.rows} * p.cols;
  const float* from = p.parts + row * p.cols + vector * kVector;
  for (int i = 0; i < p.count; ++i, from += part) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    const float x[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum.v[j] += x[j];
  }
  return sum;
}

template <Addend kAddend>
__global__ void __launch_bounds__(kMostThreads, kBlocksPerSm) norm_row(const NormRows p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const int vectors = p.cols / kVector;
  const auto* x = reinterpret_cast<const uint4*>(p.x + row * p.x_stride);
  auto* residual = reinterpret_cast<uint4*>(p.residual + row * p.residual_stride);
  uint4 held[kVectors];
  Float8 add[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    held[i] = uint4{};
    add[i] = Float8{};
    if (vector >= vectors) continue;
    if (kAddend == Addend::kNone) {
      held[i] = x[vector];
    } else {
      held[i] = residual[vector];
      add[i] = kAddend == Addend::kParts ? sum_of_parts(p, row, vector) : unpack8(x[vector]);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    Float8 h = unpack8(held[i]);
    if (kAddend != Addend::kNone) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) h.v[j] += add[i].v[j];
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
    const std::int64_t part = std::int64_t{p.rows} * p.cols;
    for (int c = first; c < p.cols; c += step) {
      float add = p.parts == nullptr ? widen_one(x[c]) : 0.0f;
      for (int i = 0; i < p.count; ++i) add += p.parts[i * part + row * p.cols + c];
      residual[c] = narrow_one(widen_one(residual[c]) + add);
    }
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
      vectorizes(p.residual, p.residual_stride, p.cols) && vectorizes(p.weight, 0, p.cols) &&
      vectorizes(p.parts, 0, p.cols) && p.cols <= kMostThreads * kVectors * kVector;
  const dim3 grid(static_cast<unsigned>(p.rows));
  if (!wide) {
    launch(name, norm_rows_scalar, grid, dim3(256), 0, stream, p);
    return;
  }
  const int per_thread = kVectors * kVector;
  const int threads = ((p.cols + per_thread - 1) / per_thread + kWarp - 1) / kWarp * kWarp;
  const auto kernel = p.parts != nullptr      ? norm_row<Addend::kParts>
                      : p.residual != nullptr ? norm_row<Addend::kUpdate>
                                              : norm_row<Addend::kNone>;
  launch(name, kernel, grid, dim3(static_cast<unsigned>(threads)), 0, stream, p);
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

void add_parts_rms_norm(View residual, View parts, int count, View weight, float eps, View out,
                        cudaStream_t stream) {
  check(parts.stride == parts.cols && parts.cols == residual.cols &&
            parts.rows == count * residual.rows,
        "add_parts_rms_norm: ", parts.rows, " x ", parts.cols, " are not ", count,
        " contiguous parts of ", residual.rows, " x ", residual.cols);
  NormRows p = rows_of(residual, weight, eps, out);
  p.residual = static_cast<std::uint16_t*>(residual.data);
  p.residual_stride = residual.stride;
  p.parts = static_cast<const float*>(parts.data);
  p.count = count;
  run("add_parts_rms_norm", p, stream);
}

}  // namespace openjev::cuda
