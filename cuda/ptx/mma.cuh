// Warp-level matrix instructions. With g = lane / 4 and t = lane % 4, fragments hold
//
//   C [16, 8]  float32   c0, c1: (g, 2t), (g, 2t + 1)      c2, c3: the same of row g + 8
//   A [16, 8]  tf32      a0: (g, t)     a1: (g + 8, t)     a2: (g, t + 4)     a3: (g + 8, t + 4)
//   B [8, 8]   tf32      b0: (t, g)     b1: (t + 4, g)
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

// c += a b, operands from to_tf32
__device__ __forceinline__ void mma_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// To the nearest tf32; the instruction would cut the low bits off otherwise.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// Transposes an 8 x 8 tile of 16-bit elements held as (g, 2t..).
__device__ __forceinline__ std::uint32_t transpose_tile(std::uint32_t pair) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

}  // namespace openjev::cuda::ptx
