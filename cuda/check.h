// CUDA status codes as errors of ours.
#pragma once

#include <cuda_runtime.h>

#include "core/error.h"

namespace openjev::cuda {

// Throws kOutOfMemory for an allocation failure, kDeviceUnavailable for a device that is gone or
// poisoned, kInternal otherwise. `what` says what was being done.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears an error that is not sticky
  const ErrorKind kind =
      status == cudaErrorMemoryAllocation ? ErrorKind::kOutOfMemory : ErrorKind::kDeviceUnavailable;
  fail(kind, "cuda: ", what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

}  // namespace openjev::cuda
