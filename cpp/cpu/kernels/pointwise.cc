// Kernels that act on one row: norms, gates, activations, convolution, rotation, dot product.
// Sums run over four vector accumulators and are joined in a fixed order.
#include <cmath>

#include "cpu/kernels/simd.h"
#include "cpu/kernels/table.h"

namespace openjev::cpu::OPENJEV_ISA {
namespace {

float dot_of(const float* a, const float* b, std::int64_t cols) {
  Vec acc[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j)
      acc[j] = madd(load(a + i + j * kLanes), load(b + i + j * kLanes), acc[j]);
  }
  for_lanes(cols - i, [&](std::int64_t o, int n) {
    acc[0] = madd(load_some(a + i + o, n), load_some(b + i + o, n), acc[0]);
  });
  return sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

float inverse_rms(const float* x, float eps, std::int64_t cols) {
  return 1.0f / __builtin_sqrtf(dot_of(x, x, cols) / static_cast<float>(cols) + eps);
}

}  // namespace

float dot(const float* a, const float* b, std::int64_t cols) { return dot_of(a, b, cols); }

void rms_norm(const float* x, const float* weight, float eps, std::int64_t cols, float* out) {
  const Vec scale = splat(inverse_rms(x, eps, cols));
  for_lanes(cols, [&](std::int64_t i, int n) {
    store_some(out + i, load_some(x + i, n) * scale * (splat(1.0f) + load_some(weight + i, n)), n);
  });
}

void add(float* residual, const float* update, std::int64_t cols) {
  for_lanes(cols, [&](std::int64_t i, int n) {
    store_some(residual + i, load_some(residual + i, n) + load_some(update + i, n), n);
  });
}

void gated_rms_norm(const float* x, const float* z, const float* weight, float eps,
                    std::int64_t cols, float* out) {
  const Vec scale = splat(inverse_rms(x, eps, cols));
  for_lanes(cols, [&](std::int64_t i, int n) {
    const Vec normed = load_some(weight + i, n) * (load_some(x + i, n) * scale);
    store_some(out + i, normed * silu(load_some(z + i, n)), n);
  });
}

void silu_mul(const float* gate, const float* up, std::int64_t cols, float* out) {
  for_lanes(cols, [&](std::int64_t i, int n) {
    store_some(out + i, silu(load_some(gate + i, n)) * load_some(up + i, n), n);
  });
}

void sigmoid_row(const float* x, std::int64_t cols, float* out) {
  for_lanes(cols,
            [&](std::int64_t i, int n) { store_some(out + i, sigmoid(load_some(x + i, n)), n); });
}

void log_decay(const float* x, const float* a_log, const float* dt_bias, std::int64_t cols,
               float* out) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const float t = x[i] + dt_bias[i];
    const float softplus = t > 20.0f ? t : ::log1pf(::expf(t));
    out[i] = -::expf(a_log[i]) * softplus;
  }
}

void conv_silu(const ConvTask& c) {
  const float* w = c.conv;
  for_lanes(c.channels, [&](std::int64_t i, int n) {
    Vec sum = load_some(w + i, n) * load_some(c.taps[0] + i, n);
    for (int tap = 1; tap < 4; ++tap) {
      sum = madd(load_some(w + tap * c.channels + i, n), load_some(c.taps[tap] + i, n), sum);
    }
    store_some(c.out + i, silu(sum), n);
  });
}

void l2_norm(const float* x, float scale, std::int64_t cols, float* out) {
  const Vec factor = splat(1.0f / __builtin_sqrtf(dot_of(x, x, cols) + 1e-6f));
  for_lanes(cols, [&](std::int64_t i, int n) {
    store_some(out + i, load_some(x + i, n) * factor * splat(scale), n);
  });
}

void rotate(const float* x, const float* cos, const float* sin, int rotary, int head_dim,
            float* out) {
  const int half = rotary / 2;
  for_lanes(half, [&](std::int64_t i, int n) {
    const Vec a = load_some(x + i, n), b = load_some(x + half + i, n);
    const Vec c = load_some(cos + i, n), s = load_some(sin + i, n);
    store_some(out + i, a * c - b * s, n);
    store_some(out + half + i, b * c + a * s, n);
  });
  for (int i = rotary; i < head_dim; ++i) out[i] = x[i];
}

}  // namespace openjev::cpu::OPENJEV_ISA
