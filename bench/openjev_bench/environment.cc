#include "openjev_bench/environment.h"

#include <array>
#include <cstdio>
#include <memory>

namespace openjev::bench {
namespace {

constexpr const char* kUnknown = "unknown";

struct ClosePipe {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

}  // namespace

std::string version() { return OPENJEV_VERSION; }

std::string commit() {
  const std::string text = OPENJEV_COMMIT;
  return text.empty() ? kUnknown : text;
}

std::string clocks(const Backend& backend, int device_index) {
  if (backend.name() != "cuda") return kUnknown;
  const std::string command =
      "nvidia-smi -i " + std::to_string(device_index) +
      " --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader"
      " 2>/dev/null";
  const std::unique_ptr<std::FILE, ClosePipe> pipe(popen(command.c_str(), "r"));
  if (!pipe) return kUnknown;
  std::array<char, 256> line{};
  if (std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) == nullptr)
    return kUnknown;
  std::string text = line.data();
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  // Without a driver it explains itself on the standard output.
  if (text.find("MHz") == std::string::npos) return kUnknown;
  return text + " C (SM, memory, power, temperature)";
}

}  // namespace openjev::bench
