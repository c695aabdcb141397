// The device side of cpp/backend/ops.h: one function an operator, its launches queued on `stream`.
// Views and spans lie in device memory, activations are bfloat16. Formulas: docs/numerics.md.
// Nothing here allocates, waits, or looks at device memory from the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/ops.h"
#include "plan/plan_view.h"

namespace openjev::cuda {

// The sizes that kernels are compiled for.
inline constexpr std::int32_t kDeltaDim = 128;      // key_dim and value_dim of the delta rule
inline constexpr std::int32_t kAttentionDim = 256;  // head_dim of attention

void embed(View table, std::span<const std::int32_t> token, View out, cudaStream_t stream);
void rms_norm(View x, View weight, float eps, View out, cudaStream_t stream);
void add_rms_norm(View residual, View update, View weight, float eps, View out,
                  cudaStream_t stream);
// residual += the sum of `count` float32 parts [count * rows, cols], then its norm.
void add_parts_rms_norm(View residual, View parts, int count, View weight, float eps, View out,
                        cudaStream_t stream);
// out = the sum of `count` float32 parts [count * rows, cols], contiguous (+ out, `accumulate`).
void sum_parts(View parts, int count, View out, bool accumulate, cudaStream_t stream);
void delta_inputs(const DeltaInputsArgs& args, cudaStream_t stream);
std::size_t delta_scratch_bytes(const DeltaShape& shape, const PlanView& plan);
void delta_rule(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream);
void gated_rms_norm(View x, View z, View weight, float eps, View out, cudaStream_t stream);
void norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape, cudaStream_t stream);
void attention(const AttentionArgs& args, const PlanView& plan, cudaStream_t stream);
void silu_mul(View gate_up, View out, cudaStream_t stream);
void gather_rows(View x, std::span<const std::int32_t> rows, View out, cudaStream_t stream);
void readout(View hidden, View weight, View bias, View out, cudaStream_t stream);

// out (bfloat16 or float32, contiguous) element i = uniform_of(seed, i, scale), core/random.h.
void fill_random(View out, std::uint64_t seed, float scale, cudaStream_t stream);
// Contiguous float32 -> bfloat16 (to nearest even) and back, `count` elements.
void narrow(const float* in, std::uint16_t* out, std::int64_t count, cudaStream_t stream);
void widen(const std::uint16_t* in, float* out, std::int64_t count, cudaStream_t stream);

// *differ = 1 where the arrays do not hold the same bits. `bytes` is even, the arrays aligned to 2.
void mark_difference(const void* a, const void* b, std::size_t bytes, std::uint32_t* differ,
                     cudaStream_t stream);

// Asks for the shared memory that the kernels above need; once, before the first launch.
void prepare_delta_rule();
void prepare_attention();

}  // namespace openjev::cuda
