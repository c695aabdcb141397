// Operators that act on rows one by one, and the matrix product.
#include "cpu/ops.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "cpu/weights.h"

namespace openjev::cpu {

CpuOps::CpuOps(const KernelTable& kernels, int threads)
    : kernels_(kernels), threads_(threads), scratch_(static_cast<std::size_t>(threads)) {}

float* CpuOps::Scratch::at_least(std::int64_t floats) {
  if (floats > floats_) {
    data_.reset();
    data_ = allocate_host(static_cast<std::size_t>(floats) * sizeof(float));
    floats_ = floats;
  }
  return static_cast<float*>(data_.get());
}

// Called before a parallel region for every thread of it: kernels never allocate.
float* CpuOps::thread_scratch(int thread, std::int64_t floats) {
  return scratch_[static_cast<std::size_t>(thread)].at_least(floats);
}

void CpuOps::embed(const Matrix& table, std::span<const std::int32_t> token, View out) {
  const auto& rows = dynamic_cast<const Table&>(table);
  parallel_ranges(threads_, out.rows, rows_at_once(out.cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      rows.copy_row(token[static_cast<std::size_t>(r)], out.row<float>(r));
                    }
                  });
}

void CpuOps::rms_norm(View x, View weight, float eps, View out) {
  parallel_ranges(
      threads_, x.rows, rows_at_once(x.cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
          kernels_.rms_norm(x.row<float>(r), weight.row<float>(0), eps, x.cols, out.row<float>(r));
        }
      });
}

void CpuOps::add_rms_norm(View residual, View update, View weight, float eps, View out) {
  parallel_ranges(threads_, residual.rows, rows_at_once(residual.cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      kernels_.add(residual.row<float>(r), update.row<float>(r), residual.cols);
                      kernels_.rms_norm(residual.row<float>(r), weight.row<float>(0), eps,
                                        residual.cols, out.row<float>(r));
                    }
                  });
}

void CpuOps::matmul_add_rms_norm(View x, const Matrix& weight, View residual, View update,
                                 View norm_weight, float eps, View out) {
  matmul(x, weight, 0, update);
  add_rms_norm(residual, update, norm_weight, eps, out);
}

void CpuOps::matmul(View x, const Matrix& weight, std::int64_t first, View out) {
  const auto& packed = dynamic_cast<const PackedMatrix&>(weight);
  check(x.cols == packed.cols() && first % kernels_.panel == 0 &&
            first + out.cols <= packed.rows() && x.rows == out.rows,
        "matmul: x [", x.rows, ", ", x.cols, "], W [", packed.rows(), ", ", packed.cols(),
        "] from row ", first, ", out [", out.rows, ", ", out.cols, "]");
  const GemmTask task{.x = {x.row<float>(0), x.stride},
                      .packed = packed.data(),
                      .bf16 = packed.dtype() == DType::kBF16,
                      .m = x.rows,
                      .n = out.cols,
                      .k = x.cols,
                      .first_panel = first / kernels_.panel,
                      .out = {out.row<float>(0), out.stride}};
  const std::int64_t panels = (out.cols + kernels_.panel - 1) / kernels_.panel;
  constexpr std::int64_t kRangesPerThread = 4;                 // evens out threads that are held up
  constexpr std::int64_t kWorthRange = std::int64_t{1} << 21;  // multiply-adds, about 50 us
  const std::int64_t work = std::max<std::int64_t>(1, x.rows * out.cols * x.cols / kWorthRange);
  const std::int64_t ranges =
      std::min({panels, work, threads_ == 1 ? 1 : threads_ * kRangesPerThread});
  for (int t = 0; t < threads_; ++t) thread_scratch(t, kernels_.gemm_scratch);
  parallel_for(threads_, ranges, [&](std::int64_t i, int thread) {
    kernels_.gemm(task, panels * i / ranges, panels * (i + 1) / ranges,
                  thread_scratch(thread, kernels_.gemm_scratch));
  });
}

void CpuOps::gated_rms_norm(View x, View z, View weight, float eps, View out) {
  const std::int64_t width = weight.cols, heads = x.cols / width;
  parallel_ranges(threads_, x.rows, rows_at_once(x.cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      for (std::int64_t h = 0; h < heads; ++h) {
                        kernels_.gated_rms_norm(x.row<float>(r) + h * width,
                                                z.row<float>(r) + h * width, weight.row<float>(0),
                                                eps, width, out.row<float>(r) + h * width);
                      }
                    }
                  });
}

void CpuOps::norm_rope_row(const NormRopeJob& job, const RopeShape& shape,
                           std::span<const float> inverse, std::int64_t row, float* scratch) {
  float* cos = scratch;
  float* sin = cos + inverse.size();
  float* normed = sin + inverse.size();
  const float position = static_cast<float>(job.position[static_cast<std::size_t>(row)]);
  for (std::size_t f = 0; f < inverse.size(); ++f) {
    cos[f] = std::cos(position * inverse[f]);
    sin[f] = std::sin(position * inverse[f]);
  }
  for (std::int64_t h = 0; h < job.heads; ++h) {
    kernels_.rms_norm(job.in.row<float>(row) + h * job.head_stride, job.weight.row<float>(0),
                      shape.eps, shape.head_dim, normed);
    kernels_.rotate(normed, cos, sin, shape.rotary_dim, shape.head_dim,
                    job.out.row<float>(row) + h * shape.head_dim);
  }
}

// Angles are float32 products of the position and 1 / theta^(2 f / rotary), as the reference
// computes them.
void CpuOps::norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape) {
  std::vector<float> inverse(static_cast<std::size_t>(shape.rotary_dim / 2));
  for (std::size_t f = 0; f < inverse.size(); ++f) {
    const double exponent = 2.0 * static_cast<double>(f) / shape.rotary_dim;
    inverse[f] = 1.0f / static_cast<float>(std::pow(shape.theta, exponent));
  }
  const std::int64_t floats = shape.rotary_dim + shape.head_dim;
  for (int t = 0; t < threads_; ++t) thread_scratch(t, floats);
  for (const NormRopeJob& job : jobs) {
    parallel_ranges(threads_, job.in.rows, rows_at_once(job.out.cols),
                    [&](std::int64_t begin, std::int64_t end, int thread) {
                      for (std::int64_t r = begin; r < end; ++r) {
                        norm_rope_row(job, shape, inverse, r, thread_scratch(thread, floats));
                      }
                    });
  }
}

void CpuOps::silu_mul(View gate_up, View out) {
  parallel_ranges(threads_, out.rows, rows_at_once(out.cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      kernels_.silu_mul(gate_up.row<float>(r), gate_up.row<float>(r) + out.cols,
                                        out.cols, out.row<float>(r));
                    }
                  });
}

void CpuOps::gather_rows(View x, std::span<const std::int32_t> rows, View out) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    const float* source = x.row<float>(rows[static_cast<std::size_t>(i)]);
    std::copy(source, source + out.cols, out.row<float>(i));
  }
}

void CpuOps::readout(View hidden, View weight, View bias, View out) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.cols; ++j) {
      const float dot = kernels_.dot(hidden.row<float>(i), weight.row<float>(j), hidden.cols);
      out.row<float>(i)[j] = bias.empty() ? dot : dot + bias.row<float>(0)[j];
    }
  }
}

}  // namespace openjev::cpu
