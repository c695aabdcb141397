#include "backend/registry.h"

#include <dlfcn.h>

#include "core/error.h"
#include "cpu/backend.h"

namespace openjev {
namespace {

constexpr const char* kCudaPlugin = "libopenjev_cuda.so";
constexpr const char* kFactorySymbol = "openjev_make_backend";

// The plugin lies beside the library that holds this function.
std::string beside_this_library(const std::string& file) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&backends), &info) == 0 || info.dli_fname == nullptr)
    return file;
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? file : path.substr(0, slash + 1) + file;
}

struct PluginFactory {
  BackendFactory make = nullptr;
  std::string reason;
};

// The handle stays open for the life of the process: backends made from it may outlive any scope
// here.
PluginFactory open_cuda() {
  PluginFactory out;
  const std::string path = beside_this_library(kCudaPlugin);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    const std::string why = text == nullptr ? "unknown reason" : text;
    out.reason =
        why.find(kCudaPlugin) != std::string::npos && why.find("No such file") != std::string::npos
            ? "this build has no CUDA backend (no CUDA toolkit was found when it was built)"
            : why;
    return out;
  }
  out.make = reinterpret_cast<BackendFactory>(dlsym(handle, kFactorySymbol));
  if (out.make == nullptr) out.reason = path + ": symbol " + kFactorySymbol + " is missing";
  return out;
}

BackendStatus cuda_status() {
  const PluginFactory plugin = open_cuda();
  if (plugin.make == nullptr) return {"cuda", false, plugin.reason};
  try {
    const BackendOptions options;
    return {"cuda", true, std::unique_ptr<Backend>(plugin.make(&options))->describe()};
  } catch (const Error& error) {
    return {"cuda", false, error.what()};
  }
}

std::unique_ptr<Backend> make_cuda(const BackendOptions& options) {
  const PluginFactory plugin = open_cuda();
  if (plugin.make == nullptr) fail(ErrorKind::kDeviceUnavailable, "device cuda: ", plugin.reason);
  return std::unique_ptr<Backend>(plugin.make(&options));
}

}  // namespace

std::vector<BackendStatus> backends() {
  return {{"cpu", true, cpu::make_cpu_backend({})->describe()}, cuda_status()};
}

std::unique_ptr<Backend> make_backend(const std::string& device, const BackendOptions& options) {
  if (device == "cpu") return cpu::make_cpu_backend(options);
  if (device == "cuda") return make_cuda(options);
  if (device == "auto")
    return cuda_status().usable ? make_cuda(options) : cpu::make_cpu_backend(options);
  fail(ErrorKind::kBadRequest, "device ", device, ": unknown; allowed are auto, cpu and cuda");
}

}  // namespace openjev
