// The warpgroup matrix products of sm_90a. Four consecutive warps issue one together; it runs
// asynchronously, reads operands in shared memory through descriptors and keeps float32
// accumulators in registers, laid out as in mma (element 4 i + 2 h + e of a lane: row 16 warp +
// lane / 4 + 8 h, column 8 i + 2 (lane % 4) + e).
//
// Operands in shared memory are tiles of 128-byte rows whose eight 16-byte vectors are permuted:
// vector v of row r stands at v ^ (r % 8). A tile starts at a multiple of 1024 bytes (8 rows).
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

// Bits 0-13 address, 16-29 leading and 32-45 stride offset, all in units of 16 bytes, 62-63 the
// swizzle: 1 is 128 bytes. Offsets are added to a descriptor in units of 16 bytes too.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t shared, std::uint32_t leading,
                                                    std::uint32_t stride) {
  return std::uint64_t{(shared & 0x3ffffu) >> 4} | std::uint64_t{leading >> 4} << 16 |
         std::uint64_t{stride >> 4} << 32 | std::uint64_t{1} << 62;
}

// Rows are rows (or, of B, columns) of the operand, a row holds 64 steps of k: groups of 8 rows
// follow one another. The leading offset is not used; k moves by 32 bytes for 16 steps.
__device__ __forceinline__ std::uint64_t k_major(std::uint32_t shared) {
  return descriptor(shared, 16, 8 * 128);
}

// Rows are steps of k, a row holds 64 columns: `panel` bytes between panels of 64 columns. k moves
// by 2048 bytes for 16 steps.
__device__ __forceinline__ std::uint64_t column_major_panels(std::uint32_t shared,
                                                             std::uint32_t panel) {
  return descriptor(shared, panel, 8 * 128);
}

// Keeps the compiler from moving accesses of registers that a product uses across this point.
template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// Before the first of a series of products: what registers hold now is what the products see.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most `kPending` committed groups are under way; `registers` are accumulators of a
// finished one.
template <int kPending, int kCount>
__device__ __forceinline__ void products_wait(float (&registers)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  pin(registers);
}

#define OPENJEV_ACCUMULATORS_8(c, i)                                                          \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])

// c [64, 64] = A B^T, plus c with `accumulate`; A [64, 16] and B [64, 16] in shared memory,
// k-major, of bfloat16 or (half) of float16.
#define OPENJEV_MULTIPLY_64X64X16(name, types)                                           \
  __device__ __forceinline__ void name(float (&c)[32], std::uint64_t a, std::uint64_t b, \
                                       bool accumulate) {                                \
    asm volatile(                                                                        \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                     \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." types                              \
        " {"                                                                             \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
        "}, %32, %33, p, 1, 1, 0, 0;\n}"                                                 \
        : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8),                    \
          OPENJEV_ACCUMULATORS_8(c, 16), OPENJEV_ACCUMULATORS_8(c, 24)                   \
        : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));                                      \
  }
OPENJEV_MULTIPLY_64X64X16(multiply_64x64x16, "bf16.bf16")
OPENJEV_MULTIPLY_64X64X16(multiply_half_64x64x16, "f16.f16")
#undef OPENJEV_MULTIPLY_64X64X16

// c [64, 256] += A B; A [64, 16] in registers as in mma.m16n8k16 (a warp has its 16 rows), B [16,
// 256] in shared memory as column-major panels.
__device__ __forceinline__ void multiply_64x256x16(float (&c)[128], const std::uint32_t (&a)[4],
                                                   std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
      : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8), OPENJEV_ACCUMULATORS_8(c, 16),
        OPENJEV_ACCUMULATORS_8(c, 24), OPENJEV_ACCUMULATORS_8(c, 32), OPENJEV_ACCUMULATORS_8(c, 40),
        OPENJEV_ACCUMULATORS_8(c, 48), OPENJEV_ACCUMULATORS_8(c, 56), OPENJEV_ACCUMULATORS_8(c, 64),
        OPENJEV_ACCUMULATORS_8(c, 72), OPENJEV_ACCUMULATORS_8(c, 80), OPENJEV_ACCUMULATORS_8(c, 88),
        OPENJEV_ACCUMULATORS_8(c, 96), OPENJEV_ACCUMULATORS_8(c, 104),
        OPENJEV_ACCUMULATORS_8(c, 112), OPENJEV_ACCUMULATORS_8(c, 120)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The products below are of float16.

// c [64, 64] = A B^T, plus c with `accumulate`; A [64, 16] in registers as in mma.m16n8k16 (a warp
// has its 16 rows), B [64, 16] in shared memory, k-major.
__device__ __forceinline__ void multiply_64x64x16(float (&c)[32], const std::uint32_t (&a)[4],
                                                  std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8), OPENJEV_ACCUMULATORS_8(c, 16),
        OPENJEV_ACCUMULATORS_8(c, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0));
}

// The same with c - A B^T.
__device__ __forceinline__ void subtract_64x64x16(float (&c)[32], const std::uint32_t (&a)[4],
                                                  std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, -1, 1, 0;"
      : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8), OPENJEV_ACCUMULATORS_8(c, 16),
        OPENJEV_ACCUMULATORS_8(c, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// c [64, 128] += A B; A [64, 16] in registers, B [16, 128] in shared memory as column-major panels.
__device__ __forceinline__ void multiply_64x128x16(float (&c)[64], const std::uint32_t (&a)[4],
                                                   std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8), OPENJEV_ACCUMULATORS_8(c, 16),
        OPENJEV_ACCUMULATORS_8(c, 24), OPENJEV_ACCUMULATORS_8(c, 32), OPENJEV_ACCUMULATORS_8(c, 40),
        OPENJEV_ACCUMULATORS_8(c, 48), OPENJEV_ACCUMULATORS_8(c, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// c [64, 64] = A B, plus c with `accumulate`; A^T [16, 64] and B [16, 64] in shared memory as
// column-major panels: rows are steps of k.
__device__ __forceinline__ void multiply_columns_64x64x16(float (&c)[32], std::uint64_t a,
                                                          std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 1, 1;\n}"
      : OPENJEV_ACCUMULATORS_8(c, 0), OPENJEV_ACCUMULATORS_8(c, 8), OPENJEV_ACCUMULATORS_8(c, 16),
        OPENJEV_ACCUMULATORS_8(c, 24)
      : "l"(a), "l"(b), "r"(accumulate ? 1 : 0));
}

#undef OPENJEV_ACCUMULATORS_8

}  // namespace openjev::cuda::ptx
