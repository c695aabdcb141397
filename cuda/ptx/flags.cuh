// Words in global memory by which blocks of kernels that run at the same time hand over results.
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

// Everything this block wrote before a barrier that this thread has passed becomes visible to
// whoever sees the value.
__device__ __forceinline__ void store_release(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Waits until the word is not 0; what its writer had written before is then visible.
__device__ __forceinline__ void wait_nonzero(const std::uint32_t* flag) {
  std::uint32_t value;
  do {
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  } while (value == 0);
}

}  // namespace openjev::cuda::ptx
