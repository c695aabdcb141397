// The commands: each measures, prints its tables and leaves them in the report.
#pragma once

#include "openjev_bench/arguments.h"
#include "openjev_bench/report.h"

namespace openjev::bench {

// All throw openjev::Error.
void bench_forward(const Arguments& arguments, Report& report);
void bench_kernels(const Arguments& arguments, Report& report);
void bench_matmul(const Arguments& arguments, Report& report);
void bench_memory(const Arguments& arguments, Report& report);

}  // namespace openjev::bench
