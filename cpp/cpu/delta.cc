// The gated delta net's operators: inputs by row, the rule by segment and value head.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "cpu/ops.h"

namespace openjev::cpu {
namespace {

// Rows of `mixed` that feed the convolution at `row`: three ancestors (the tail beyond a root),
// then the row itself.
std::array<const float*, 4> conv_taps(const DeltaInputsArgs& a, std::int64_t row,
                                      const float* zeros) {
  std::array<const float*, 4> taps{};
  taps[3] = a.mixed.row<float>(row);
  std::int64_t current = row, tail = 2;
  for (int tap = 2; tap >= 0; --tap) {
    if (current >= 0) current = a.parent_row[static_cast<std::size_t>(current)];
    if (current >= 0) {
      taps[static_cast<std::size_t>(tap)] = a.mixed.row<float>(current);
    } else {
      taps[static_cast<std::size_t>(tap)] = a.tail.empty() ? zeros : a.tail.row<float>(tail--);
    }
  }
  return taps;
}

}  // namespace

void CpuOps::delta_inputs(const DeltaInputsArgs& a) {
  const DeltaShape& s = a.shape;
  const std::int64_t channels = s.conv_channels();
  const float query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.key_dim)));
  const std::vector<float> zeros(static_cast<std::size_t>(channels), 0.0f);
  for (int t = 0; t < threads_; ++t) thread_scratch(t, channels);
  const auto one_row = [&](std::int64_t r, int thread) {
    float* mixed = thread_scratch(thread, channels);
    const auto taps = conv_taps(a, r, zeros.data());
    kernels_.conv_silu({.taps = {taps[0], taps[1], taps[2], taps[3]},
                        .conv = a.conv.row<float>(0),
                        .channels = channels,
                        .out = mixed});
    for (std::int64_t h = 0; h < s.key_heads; ++h) {
      kernels_.l2_norm(mixed + h * s.key_dim, query_scale, s.key_dim,
                       a.q.row<float>(r) + h * s.key_dim);
      kernels_.l2_norm(mixed + s.keys() + h * s.key_dim, 1.0f, s.key_dim,
                       a.k.row<float>(r) + h * s.key_dim);
    }
    std::copy(mixed + 2 * s.keys(), mixed + channels, a.v.row<float>(r));
    kernels_.sigmoid(a.beta_logit.row<float>(r), s.value_heads, a.beta.row<float>(r));
    kernels_.log_decay(a.decay_logit.row<float>(r), a.a_log.row<float>(0), a.dt_bias.row<float>(0),
                       s.value_heads, a.log_decay.row<float>(r));
  };
  parallel_ranges(threads_, a.mixed.rows, rows_at_once(channels),
                  [&](std::int64_t begin, std::int64_t end, int thread) {
                    for (std::int64_t r = begin; r < end; ++r) one_row(r, thread);
                  });
}

std::int64_t CpuOps::state_floats(const DeltaShape& s) const {
  return std::int64_t{s.key_dim} * s.value_dim;
}

void CpuOps::run_delta_unit(const DeltaRuleArgs& a, const PlanView& plan, const Segment& segment,
                            int value_head, float* scratch) {
  const DeltaShape& s = a.shape;
  const std::int64_t floats = state_floats(s);
  const std::int64_t head_state = value_head * floats;
  const int key_head = value_head / (s.value_heads / s.key_heads);
  float* state = scratch;
  if (segment.start_state >= 0) {
    std::memcpy(state, a.states.row<float>(segment.start_state) + head_state,
                static_cast<std::size_t>(floats) * sizeof(float));
  } else if (!a.start.empty()) {
    std::memcpy(state, a.start.row<float>(0) + head_state,
                static_cast<std::size_t>(floats) * sizeof(float));
  } else {
    std::fill(state, state + floats, 0.0f);
  }
  const float *q[kChunk], *k[kChunk], *v[kChunk];
  float *out[kChunk], beta[kChunk], log_decay[kChunk];
  for (std::int32_t c = segment.first_chunk; c < segment.first_chunk + segment.chunk_count; ++c) {
    const auto index = static_cast<std::size_t>(c);
    const std::int32_t length = plan.chunk_length[index];
    for (std::int32_t i = 0; i < length; ++i) {
      const std::int64_t row = plan.chunk_rows[index * kChunk + static_cast<std::size_t>(i)];
      q[i] = a.q.row<float>(row) + key_head * s.key_dim;
      k[i] = a.k.row<float>(row) + key_head * s.key_dim;
      v[i] = a.v.row<float>(row) + value_head * s.value_dim;
      out[i] = a.out.row<float>(row) + value_head * s.value_dim;
      beta[i] = a.beta.row<float>(row)[value_head];
      log_decay[i] = a.log_decay.row<float>(row)[value_head];
    }
    kernels_.delta_chunk({.length = length,
                          .owned = plan.chunk_owned[index],
                          .dk = s.key_dim,
                          .dv = s.value_dim,
                          .q = q,
                          .k = k,
                          .v = v,
                          .beta = beta,
                          .log_decay = log_decay,
                          .out = out,
                          .state = state},
                         scratch + floats);
  }
  if (segment.end_state >= 0) {
    std::memcpy(a.states.row<float>(segment.end_state) + head_state, state,
                static_cast<std::size_t>(floats) * sizeof(float));
  }
}

void CpuOps::delta_rule(const DeltaRuleArgs& a, const PlanView& plan) {
  const std::int64_t floats =
      state_floats(a.shape) + kernels_.delta_scratch(a.shape.key_dim, a.shape.value_dim);
  for (int t = 0; t < threads_; ++t) thread_scratch(t, floats);
  const std::int64_t heads = a.shape.value_heads;
  for (std::size_t level = 0; level + 1 < plan.level_begin.size(); ++level) {
    const std::int64_t first = plan.level_begin[level], last = plan.level_begin[level + 1];
    parallel_for(threads_, (last - first) * heads, [&](std::int64_t unit, int thread) {
      run_delta_unit(a, plan, plan.segments[static_cast<std::size_t>(first + unit / heads)],
                     static_cast<int>(unit % heads), thread_scratch(thread, floats));
    });
  }
}

}  // namespace openjev::cpu
