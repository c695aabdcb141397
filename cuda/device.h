// The GPU that a backend runs on: whether it can be used, and what it is.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace openjev::cuda {

class Device {
 public:
  // Makes device `index` current for the calling thread. Throws kDeviceUnavailable, saying what was
  // found and what is needed, without a driver, a GPU of that index, or compute capability 9.0.
  explicit Device(int index);

  // Makes it current for the calling thread, which need not be the one that constructed it.
  void use() const;

  std::string describe() const;  // "NVIDIA H200, 140 GiB, sm_90, driver 13.0, cuBLASLt 13.1.0"

  // `chosen`, or the default path in the user's cache folder; empty when there is no such folder.
  std::string tuning_file(const std::string& chosen, const std::string& mode) const;

 private:
  int index_;
  cudaDeviceProp properties_{};
  int driver_ = 0;
};

}  // namespace openjev::cuda
