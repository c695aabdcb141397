// cp.async: 16 bytes from global to shared memory without passing through registers.
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

// The address of shared memory that the instructions below take.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// `to` and `from` are 16-byte aligned. Fills with zeros, and reads nothing, unless `valid`.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Starts bringing `bytes` from a 16-byte aligned address into L2, a multiple of 16.
__device__ __forceinline__ void prefetch_l2(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Closes the group of this thread's copies so far.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `kPending` of this thread's latest groups are in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace openjev::cuda::ptx
