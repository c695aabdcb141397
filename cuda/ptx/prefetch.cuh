// Bulk prefetch into L2: fire and forget, no register and no wait.
#pragma once

#include <cstdint>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"

namespace openjev::cuda {

// The first warp of every block asks for its share of the rows.
__device__ __forceinline__ void prefetch_share(const Prefetch& range) {
  if (range.rows == 0 || threadIdx.x >= kWarp) return;
  const std::uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
  const std::uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto* data = static_cast<const char*>(range.data);
  for (std::uint32_t row = block * kWarp + threadIdx.x; row < range.rows; row += blocks * kWarp) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(data + row * range.stride),
                 "r"(range.bytes)
                 : "memory");
  }
}

}  // namespace openjev::cuda
