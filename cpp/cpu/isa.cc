// Which kernel table runs on this processor.
#include <string_view>

#include "core/error.h"
#include "cpu/kernels/table.h"

namespace openjev::cpu {
namespace {

struct Candidate {
  const KernelTable* table;
  bool supported;
};

bool is(const KernelTable* table, std::string_view name) { return name == table->name; }

}  // namespace

const KernelTable& select_kernels(const char* isa) {
#if defined(OPENJEV_X86)
  __builtin_cpu_init();
  const Candidate candidates[] = {
      {&avx512::kTable, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq")},
      {&avx2::kTable, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
      {&generic::kTable, true}};
#else
  const Candidate candidates[] = {{&generic::kTable, true}};
#endif
  const std::string_view wanted = isa;
  for (const Candidate& candidate : candidates) {
    if (wanted.empty() && candidate.supported) return *candidate.table;
    if (!wanted.empty() && is(candidate.table, wanted)) {
      if (!candidate.supported) {
        fail(ErrorKind::kDeviceUnavailable, "cpu_isa ", wanted,
             ": this processor does not support it");
      }
      return *candidate.table;
    }
  }
  fail(ErrorKind::kBadRequest, "cpu_isa ", wanted,
       ": unknown; allowed are generic, avx2 and avx512 (x86-64) or empty for the best available");
}

}  // namespace openjev::cpu
