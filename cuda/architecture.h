// Which GPUs the kernels run on. Needs no CUDA, so that it can be tested where there is none.
#pragma once

#include <string_view>

#include "core/error.h"

namespace openjev::cuda {

// The instructions of sm_90a exist on no other compute capability, neither older nor newer.
constexpr int kMajor = 9, kMinor = 0;

// Throws kDeviceUnavailable, naming the GPU, what it has and what is needed.
inline void require_architecture(std::string_view gpu, int major, int minor) {
  if (major == kMajor && minor == kMinor) return;
  fail(ErrorKind::kDeviceUnavailable, "device cuda: ", gpu, " has compute capability ", major, ".",
       minor, "; needed is ", kMajor, ".", kMinor, " (Hopper: H100, H200)");
}

}  // namespace openjev::cuda
