// The operator interface on the CPU: float32 arithmetic, weights in float32 or bfloat16. Work is
// shared out by rows, panels, heads and segments, never inside one sum, so the number of threads
// does not change a bit.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "cpu/kernels/table.h"
#include "cpu/memory.h"

namespace openjev::cpu {

class CpuOps final : public Ops {
 public:
  CpuOps(const KernelTable& kernels, int threads);

  void embed(const Matrix& table, std::span<const std::int32_t> token, View out) override;
  void rms_norm(View x, View weight, float eps, View out) override;
  void add_rms_norm(View residual, View update, View weight, float eps, View out) override;
  void matmul(View x, const Matrix& weight, std::int64_t first, View out) override;
  void matmul_add_rms_norm(View x, const Matrix& weight, View residual, View update,
                           View norm_weight, float eps, View out) override;
  void delta_inputs(const DeltaInputsArgs& args) override;
  std::size_t delta_scratch_bytes(const DeltaShape&, const PlanView&) const override { return 0; }
  void delta_rule(const DeltaRuleArgs& args, const PlanView& plan) override;
  void gated_rms_norm(View x, View z, View weight, float eps, View out) override;
  void norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape) override;
  void attention(const AttentionArgs& args, const PlanView& plan) override;
  void silu_mul(View gate_up, View out) override;
  void gather_rows(View x, std::span<const std::int32_t> rows, View out) override;
  void readout(View hidden, View weight, View bias, View out) override;

 private:
  // Grows only; contents are not kept.
  class Scratch {
   public:
    float* at_least(std::int64_t floats);

   private:
    HostPointer data_;
    std::int64_t floats_ = 0;
  };

  void norm_rope_row(const NormRopeJob& job, const RopeShape& shape, std::span<const float> inverse,
                     std::int64_t row, float* scratch);
  void gather_keys(const AttentionArgs& args, const PlanView& plan);
  void run_delta_unit(const DeltaRuleArgs& args, const PlanView& plan, const Segment& segment,
                      int value_head, float* scratch);
  std::int64_t state_floats(const DeltaShape& shape) const;
  void attend(const AttentionArgs& args, const PlanView& plan, const QueryTile& tile, int head,
              float* scratch);
  float* thread_scratch(int thread, std::int64_t floats);

  const KernelTable& kernels_;
  int threads_;
  std::vector<Scratch> scratch_;  // one a thread
  Scratch keys_, values_;  // [prefix chunks + chunks][kv head]: transposed keys, gathered values
};

}  // namespace openjev::cpu
