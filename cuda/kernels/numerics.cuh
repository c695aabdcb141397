// bfloat16 pairs and vectors, rounding, reductions, activations: what every kernel file needs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace openjev::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kVector = 8;  // bfloat16 in a 16-byte access

// 8 bfloat16 in 16 bytes, as float32 for arithmetic.
struct Float8 {
  float v[kVector];
};

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Float16 pairs; values beyond its range become its largest.
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  std::uint32_t bits;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ __forceinline__ float low_f16(std::uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
}
__device__ __forceinline__ float high_f16(std::uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}

// A bfloat16 is the upper half of a float32.
__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ Float8 unpack8(const uint4& bits) {
  return {{low_bf16(bits.x), high_bf16(bits.x), low_bf16(bits.y), high_bf16(bits.y),
           low_bf16(bits.z), high_bf16(bits.z), low_bf16(bits.w), high_bf16(bits.w)}};
}

__device__ __forceinline__ uint4 pack8(const Float8& x) {
  return {pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]), pack_bf16(x.v[4], x.v[5]),
          pack_bf16(x.v[6], x.v[7])};
}

// Over kLanes neighbours; `mask` names the lanes that are here, whole groups of kLanes.
template <int kLanes = kWarp>
__device__ __forceinline__ float lanes_sum(float x, unsigned mask = ~0u) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(mask, x, offset);
  return x;
}

__device__ __forceinline__ uint4 pack8_f16(const Float8& x) {
  return {pack_f16(x.v[0], x.v[1]), pack_f16(x.v[2], x.v[3]), pack_f16(x.v[4], x.v[5]),
          pack_f16(x.v[6], x.v[7])};
}

template <int kLanes = kWarp>
__device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

// Over a block of whole warps; every thread gets the sum, added in a fixed order.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float parts[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = lanes_sum(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = lanes_sum(lane < warps ? parts[lane] : 0.0f);
  __syncthreads();
  return x;
}

// Both are good to a few float32 ulp; e^-x = inf gives the limit 0.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// Whether every row of `x` can be read in 16-byte accesses.
inline bool vectorizes(const void* data, std::int64_t stride, std::int64_t cols) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % kVector == 0 &&
         cols % kVector == 0;
}

// 2^x with a relative error of about 2^-22; 0 for -infinity and for results below 2^-126.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace openjev::cuda
