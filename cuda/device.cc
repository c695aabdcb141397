#include "cuda/device.h"

#include <cublasLt.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "cuda/architecture.h"
#include "cuda/check.h"

namespace openjev::cuda {
namespace {

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder != '\0')
    return std::string(folder) + "/openjev";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/openjev";
  return {};
}

std::string file_name(const std::string& text) {
  std::string out = text;
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return out;
}

}  // namespace

Device::Device(int index) : index_(index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice ||
      status == cudaErrorInitializationError || (status == cudaSuccess && count == 0)) {
    cudaGetLastError();
    fail(ErrorKind::kDeviceUnavailable, "device cuda: no usable GPU: ",
         status == cudaSuccess ? "none is visible" : cudaGetErrorString(status),
         "; a Hopper GPU and a driver for CUDA ", version(CUDART_VERSION), " are needed");
  }
  check_cuda(status, "count the GPUs");
  if (index < 0 || index >= count) {
    fail(ErrorKind::kDeviceUnavailable, "device cuda: index ", index, " of ", count,
         " visible GPUs; allowed are 0 to ", count - 1);
  }
  check_cuda(cudaGetDeviceProperties(&properties_, index), "read the GPU's properties");
  require_architecture(properties_.name, properties_.major, properties_.minor);
  check_cuda(cudaDriverGetVersion(&driver_), "read the driver's version");
  use();
}

void Device::use() const { check_cuda(cudaSetDevice(index_), "select the GPU"); }

std::string Device::describe() const {
  const auto gib = static_cast<long>(properties_.totalGlobalMem >> 30);
  const auto library = static_cast<int>(cublasLtGetVersion());
  return std::string(properties_.name) + ", " + std::to_string(gib) + " GiB, " +
         std::to_string(properties_.multiProcessorCount) + " SMs, driver for CUDA " +
         version(driver_) + ", cuBLASLt " + std::to_string(library / 10000) + "." +
         std::to_string(library % 10000 / 100) + "." + std::to_string(library % 100);
}

std::string Device::tuning_file(const std::string& chosen, const std::string& mode) const {
  if (!chosen.empty()) return chosen;
  const std::string folder = cache_folder();
  if (folder.empty()) return {};
  return folder + "/matmul-" + file_name(properties_.name) + "-" + mode + ".txt";
}

}  // namespace openjev::cuda
