// What warps with different roles in one block need: barriers in shared memory, barriers of some
// warps, registers moved from one role to another, and order between ordinary and asynchronous
// accesses.
#pragma once

#include <cstdint>

namespace openjev::cuda::ptx {

// threadIdx.x, read anew at every call: what follows from it is not kept in registers over a loop.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// A barrier whose phase ends after `arrivals` arrivals. Eight bytes of shared memory.
__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of a phase of this parity, 0 for the first; the one before the first has ended.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}"
      :
      : "r"(barrier), "r"(parity)
      : "memory");
}

// Of `threads` threads, whole warps, of the block; `name` 1 to 15 (0 is __syncthreads).
__device__ __forceinline__ void named_barrier(int name, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Counts this thread in without waiting.
__device__ __forceinline__ void named_barrier_arrive(int name, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Makes this thread's writes to shared memory visible to warpgroup products, once a barrier
// follows.
__device__ __forceinline__ void publish_shared_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers a thread of this warpgroup; a multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace openjev::cuda::ptx
