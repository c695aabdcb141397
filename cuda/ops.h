// The operator interface on the GPU: kernels for everything but the matrix products.
#pragma once

#include "backend/ops.h"
#include "cuda/matmul.h"

namespace openjev::cuda {

class CudaOps final : public Ops {
 public:
  CudaOps(Matmul& matmul, cudaStream_t stream) : matmul_(matmul), stream_(stream) {}

  void embed(const Matrix& table, std::span<const std::int32_t> token, View out) override;
  void rms_norm(View x, View weight, float eps, View out) override;
  void add_rms_norm(View residual, View update, View weight, float eps, View out) override;
  void matmul(View x, const Matrix& weight, std::int64_t first, View out) override;
  void matmul_add_rms_norm(View x, const Matrix& weight, View residual, View update,
                           View norm_weight, float eps, View out) override;
  void delta_inputs(const DeltaInputsArgs& args) override;
  std::size_t delta_scratch_bytes(const DeltaShape& shape, const PlanView& plan) const override;
  void delta_rule(const DeltaRuleArgs& args, const PlanView& plan) override;
  void gated_rms_norm(View x, View z, View weight, float eps, View out) override;
  void norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape) override;
  void attention(const AttentionArgs& args, const PlanView& plan) override;
  void silu_mul(View gate_up, View out) override;
  void gather_rows(View x, std::span<const std::int32_t> rows, View out) override;
  void readout(View hidden, View weight, View bias, View out) override;

 private:
  Matmul& matmul_;
  cudaStream_t stream_;
};

}  // namespace openjev::cuda
