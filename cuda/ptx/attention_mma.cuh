// The PTX instructions of attention: asynchronous copies to shared memory, matrix fragments from
// shared memory, a warp's matrix product, 2^x. Shared memory is named by 32-bit addresses.
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes from global to shared memory past L1; zeros, and nothing read, when `valid` is false.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared, const void* global,
                                              bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` groups that this thread committed are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of bfloat16. Lanes 8 i ... 8 i + 7 give the rows of matrix i, 16 bytes each; a
// lane gets elements (lane / 4, 2 (lane % 4) and + 1) of each, of the transpose with `kTranspose`.
template <bool kTranspose = false>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t shared) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared)
                 : "memory");
  }
}

// c[0..3] += A B, A [16, 16] row-major, B [16, 8] column-major. With g = lane / 4, t = lane % 4 a
// lane holds pairs a0 (g, 2t) a1 (g + 8, 2t) a2 (g, 2t + 8) a3 (g + 8, 2t + 8), b0 (k 2t, n g) b1
// (k 2t + 8, n g), and c0 c1 (g, 2t) c2 c3 (g + 8, 2t).
__device__ __forceinline__ void multiply_16x8x16(float* c, const std::uint32_t (&a)[4],
                                                 std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x with a relative error of about 2^-22; 0 for -infinity and for results below 2^-126.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void store_shared(std::uint32_t shared, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}
__device__ __forceinline__ uint4 load_shared_16(std::uint32_t shared) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(shared)
               : "memory");
  return value;
}

}  // namespace openjev::cuda::ptx
