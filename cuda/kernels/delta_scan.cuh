// The part of the delta rule that is sequential along a path.
#pragma once

#include <cuda_runtime.h>

#include "backend/ops.h"
#include "plan/plan_view.h"

namespace openjev::cuda {

void prepare_delta_scan();

// One launch a level of the plan; reads the products that delta_chunks left in args.scratch.
void delta_scan(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream);

}  // namespace openjev::cuda
