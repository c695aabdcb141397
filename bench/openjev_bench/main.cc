// Measures the library on seeded weights of the published sizes, without a checkpoint or Python.
// Status: 0; 1 when the library refuses or fails; 2 for a wrong command line.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "openjev_bench/arguments.h"
#include "openjev_bench/commands.h"
#include "openjev_bench/report.h"

namespace openjev::bench {
namespace {

constexpr int kFailed = 1, kUsage = 2;

void run(const Arguments& arguments) {
  Report report(arguments);
  const auto write = [&] {
    if (!arguments.json_file.empty()) report.write_json(arguments.json_file);
  };
  write();  // a file that cannot be written is better known before the measurements
  switch (arguments.command) {
    case Command::kForward:
      bench_forward(arguments, report);
      break;
    case Command::kKernels:
      bench_kernels(arguments, report);
      break;
    case Command::kMatmul:
      bench_matmul(arguments, report);
      break;
    case Command::kMemory:
      bench_memory(arguments, report);
      break;
  }
  write();
}

int guarded(const std::vector<std::string>& words) {
  try {
    const Arguments arguments = parse_arguments(words);
    if (arguments.help)
      std::cout << help_text();
    else
      run(arguments);
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "openjev-bench: " << error.what() << "\n";
    return kUsage;
  } catch (const std::exception& error) {
    std::cerr << "openjev-bench: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace
}  // namespace openjev::bench

int main(int argc, char** argv) {
  return openjev::bench::guarded(std::vector<std::string>(argv + 1, argv + argc));
}
