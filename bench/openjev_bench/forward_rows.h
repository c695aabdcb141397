// The three tables of `forward`.
#pragma once

#include "openjev_bench/arguments.h"
#include "openjev_bench/loading.h"
#include "openjev_bench/report.h"

namespace openjev::bench {

// One row a length of --tokens.
void forward_by_length(const Arguments& arguments, Loaded& loaded, Report& report);

// All lengths of --lengths in order, one row a pass over them.
void forward_in_order(const Arguments& arguments, Loaded& loaded,
                      const std::vector<std::int32_t>& lengths, Report& report);

// The first pass of lengths that were never run, against later ones of the same length.
void forward_unseen(const Arguments& arguments, Loaded& loaded, Report& report);

}  // namespace openjev::bench
