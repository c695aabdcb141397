// The vector type of the instruction set that this file is compiled for, and the few operations
// kernels need. Everything is always inlined: a function of this header compiled with AVX-512 must
// never be the one that the linker keeps for the generic build.
//
// NOTE: every element of an array goes through the same vector operations, tails included (load_n,
// store_n), so a value does not depend on its place in the array.
#pragma once

#include <cstdint>

#if defined(OPENJEV_ISA_avx2) || defined(OPENJEV_ISA_avx512)
#include <immintrin.h>
#endif

#define OJ_INLINE inline __attribute__((always_inline))

namespace openjev::cpu::OPENJEV_ISA {

#if defined(OPENJEV_ISA_avx512)
inline constexpr int kLanes = 16;
using Vec = __m512;
OJ_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
OJ_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
OJ_INLINE Vec splat(float x) { return _mm512_set1_ps(x); }
OJ_INLINE Vec madd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
OJ_INLINE Vec load_bf16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  // NOTE: the masked forms; g++ 12 warns about an undefined source in the plain ones.
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, bits), 16));
}
#elif defined(OPENJEV_ISA_avx2)
inline constexpr int kLanes = 8;
using Vec = __m256;
OJ_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
OJ_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
OJ_INLINE Vec splat(float x) { return _mm256_set1_ps(x); }
OJ_INLINE Vec madd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
OJ_INLINE Vec load_bf16(const std::uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
#else
inline constexpr int kLanes = 4;
using Vec = float __attribute__((vector_size(16)));
OJ_INLINE Vec load(const float* p) { return Vec{p[0], p[1], p[2], p[3]}; }
OJ_INLINE void store(float* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i] = v[i];
}
OJ_INLINE Vec splat(float x) { return Vec{x, x, x, x}; }
OJ_INLINE Vec madd(Vec a, Vec b, Vec c) { return a * b + c; }
OJ_INLINE Vec load_bf16(const std::uint16_t* p) {
  Vec out;
  for (int i = 0; i < kLanes; ++i) {
    out[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(p[i]) << 16);
  }
  return out;
}
#endif

using IntVec = std::int32_t __attribute__((vector_size(sizeof(Vec))));

// The first n < kLanes elements; the rest reads as zero and is not written.
OJ_INLINE Vec load_n(const float* p, int n) {
  alignas(64) float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
OJ_INLINE void store_n(float* p, Vec v, int n) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// Lanes added pairwise: a fixed order.
OJ_INLINE float sum_lanes(Vec v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}
OJ_INLINE float max_lanes(Vec v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  float best = lanes[0];
  for (int i = 1; i < kLanes; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}

OJ_INLINE Vec select(IntVec mask, Vec yes, Vec no) {
  return reinterpret_cast<Vec>((reinterpret_cast<IntVec>(yes) & mask) |
                               (reinterpret_cast<IntVec>(no) & ~mask));
}
OJ_INLINE Vec maximum(Vec a, Vec b) { return select(reinterpret_cast<IntVec>(a > b), a, b); }

// e^x to about 1 ulp; 0 below -87.3, e^88.3 above 88.3, NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; 2^n is written into the exponent; e^r is a degree-6
// polynomial.
OJ_INLINE Vec exp(Vec x) {
  const Vec low = splat(-87.3f), high = splat(88.3f);
  const IntVec underflow = reinterpret_cast<IntVec>(x < low);
  x = select(underflow, low, x);
  x = select(reinterpret_cast<IntVec>(x > high), high, x);
  const Vec magic =
      splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Vec shifted = madd(x, splat(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r = madd(n, splat(-0.693359375f), x);  // ln 2 in two parts, the first exact in few bits
  r = madd(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = madd(p, r, splat(1.3981999507e-3f));
  p = madd(p, r, splat(8.3334519073e-3f));
  p = madd(p, r, splat(4.1665795894e-2f));
  p = madd(p, r, splat(1.6666665459e-1f));
  p = madd(p, r, splat(5.0000001201e-1f));
  p = madd(p, r * r, r) + splat(1.0f);
  const IntVec scale = (reinterpret_cast<IntVec>(shifted) << 23) + (127 << 23);
  return select(underflow, splat(0.0f), p * reinterpret_cast<Vec>(scale));
}

OJ_INLINE Vec sigmoid(Vec x) { return splat(1.0f) / (splat(1.0f) + exp(splat(0.0f) - x)); }
OJ_INLINE Vec silu(Vec x) { return x / (splat(1.0f) + exp(splat(0.0f) - x)); }

// Calls step(offset, lanes) over [0, count): full vectors, then one partial.
template <class Step>
OJ_INLINE void for_lanes(std::int64_t count, Step&& step) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(i, kLanes);
  if (i < count) step(i, static_cast<int>(count - i));
}
OJ_INLINE Vec load_some(const float* p, int n) { return n == kLanes ? load(p) : load_n(p, n); }
OJ_INLINE void store_some(float* p, Vec v, int n) {
  if (n == kLanes) {
    store(p, v);
  } else {
    store_n(p, v, n);
  }
}

}  // namespace openjev::cpu::OPENJEV_ISA
