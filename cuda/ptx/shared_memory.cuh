// Accesses to shared memory named by a 32-bit address, as the asynchronous instructions name it.
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

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
