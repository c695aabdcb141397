#include "cuda/ops.h"

#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/weights.h"

namespace openjev::cuda {
namespace {

const DeviceMatrix& on_device(const Matrix& matrix) {
  return static_cast<const DeviceMatrix&>(matrix);
}

}  // namespace

void CudaOps::embed(const Matrix& table, std::span<const std::int32_t> token, View out) {
  cuda::embed(on_device(table).view(), token, out, stream_);
}
void CudaOps::rms_norm(View x, View weight, float eps, View out) {
  cuda::rms_norm(x, weight, eps, out, stream_);
}
void CudaOps::add_rms_norm(View residual, View update, View weight, float eps, View out) {
  cuda::add_rms_norm(residual, update, weight, eps, out, stream_);
}
void CudaOps::matmul(View x, const Matrix& weight, std::int64_t first, View out) {
  matmul_.run(x, on_device(weight).view().rows_from(first, out.cols), out, false);
}
// One part: the product's epilogue adds it to the residual, unrounded. Several: the norm's kernel
// adds them up as it reads them.
void CudaOps::matmul_add_rms_norm(View x, const Matrix& weight, View residual, View,
                                  View norm_weight, float eps, View out) {
  const View& w = on_device(weight).view();
  const int parts = matmul_.parts(w);
  if (parts == 1) {
    matmul_.run(x, w, residual, true);
    cuda::rms_norm(residual, norm_weight, eps, out, stream_);
    return;
  }
  const std::int64_t slab = matmul_.slab_rows(w);
  for (std::int64_t first = 0; first < x.rows; first += slab) {
    const std::int64_t count = std::min(slab, x.rows - first);
    cuda::add_parts_rms_norm(residual.rows_from(first, count),
                             matmul_.run_parts(x.rows_from(first, count), w), parts, norm_weight,
                             eps, out.rows_from(first, count), stream_);
  }
}
void CudaOps::delta_inputs(const DeltaInputsArgs& args) { cuda::delta_inputs(args, stream_); }
std::size_t CudaOps::delta_scratch_bytes(const DeltaShape& shape, const PlanView& plan) const {
  return cuda::delta_scratch_bytes(shape, plan);
}
void CudaOps::delta_rule(const DeltaRuleArgs& args, const PlanView& plan) {
  cuda::delta_rule(args, plan, stream_);
}
void CudaOps::gated_rms_norm(View x, View z, View weight, float eps, View out) {
  cuda::gated_rms_norm(x, z, weight, eps, out, stream_);
}
void CudaOps::norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape) {
  cuda::norm_rope(jobs, shape, stream_);
}
void CudaOps::attention(const AttentionArgs& args, const PlanView& plan) {
  cuda::attention(args, plan, stream_);
}
void CudaOps::silu_mul(View gate_up, View out) { cuda::silu_mul(gate_up, out, stream_); }
void CudaOps::gather_rows(View x, std::span<const std::int32_t> rows, View out) {
  cuda::gather_rows(x, rows, out, stream_);
}
void CudaOps::readout(View hidden, View weight, View bias, View out) {
  cuda::readout(hidden, weight, bias, out, stream_);
}

}  // namespace openjev::cuda
