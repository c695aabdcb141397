// THE operator interface: everything the decoder asks of a device. A backend implements it and
// nothing else; the decoder contains no device word.
//
// Conventions
//   Every View lies in the backend's memory. Activations have the backend's activation dtype
//   (float32 on the CPU), small parameters, decays, states and readouts are float32. Work is queued
//   in call order; Backend::synchronize waits. R rows of the plan, Q query rows (R, or the leaves
//   in the last layer), H hidden size, heads and dims as in Shape structs. Linear weights are [out,
//   in] without bias: y = x W^T. Outputs never alias inputs unless said. A row's result does not
//   depend on how many other rows there are, nor on the number of threads. Formulas and rounding
//   points: docs/numerics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "plan/plan_view.h"

namespace openjev {

// A weight matrix [rows, cols] in whatever layout the backend prefers.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual std::size_t bytes() const = 0;  // resident for this matrix
};

struct DeltaShape {
  std::int32_t key_heads;    // Hk
  std::int32_t value_heads;  // Hv, a multiple of Hk; value head h reads key head h / (Hv / Hk)
  std::int32_t key_dim;      // dk
  std::int32_t value_dim;    // dv

  std::int64_t keys() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t values() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t conv_channels() const { return 2 * keys() + values(); }
  std::int64_t state() const { return values() * key_dim; }  // floats of one layer's state
};

// Inputs of the delta rule from one merged projection.
struct DeltaInputsArgs {
  DeltaShape shape;
  View mixed;        // [R, conv_channels] query heads | key heads | value heads, before the conv
  View beta_logit;   // [R, Hv]
  View decay_logit;  // [R, Hv]
  View tail;  // [3, conv_channels] `mixed` of the three tokens before the roots; empty: zeros
  View conv;  // [4, conv_channels] float32; tap 3 multiplies the current token
  View a_log, dt_bias;  // [1, Hv] float32
  std::span<const std::int32_t> parent_row;
  // Of Backend::delta_dtype.
  View q, k;       // out [R, Hk * dk], l2-normalized per head, q scaled by dk^-1/2
  View v;          // out [R, Hv * dv]
  View beta;       // out [R, Hv] float32, sigmoid(beta_logit)
  View log_decay;  // out [R, Hv] float32, <= 0
};

struct DeltaRuleArgs {
  DeltaShape shape;
  View q, k, v, beta, log_decay;  // as above
  View start;                     // [1, state()] float32 of the prefix; empty: zero
  View states;  // [plan.states, state()] float32, slots that segments name; a state is [Hv][dk][dv]
  View out;     // [R, Hv * dv]
  View scratch;  // at least Ops::delta_scratch_bytes of any dtype; may be empty when that is 0
};

// One tensor of heads to normalize (1 + w form) and rotate.
struct NormRopeJob {
  View in;  // head h of a row stands at columns [h * head_stride, h * head_stride + head_dim)
  std::int32_t heads;
  std::int32_t head_stride;
  View weight;                             // [1, head_dim] float32
  std::span<const std::int32_t> position;  // [rows of in]
  View out;                                // [rows, heads * head_dim]
};

struct RopeShape {
  std::int32_t head_dim;
  std::int32_t rotary_dim;  // even, <= head_dim; dims beyond it pass through
  double theta;
  float eps;
};

struct AttentionArgs {
  std::int32_t heads, kv_heads, head_dim;  // query head h reads kv head h / (heads / kv_heads)
  View q;                                  // [Q, heads * head_dim]
  View k, v;                               // [R, kv_heads * head_dim]
  View prefix_k, prefix_v;                 // [prefix_length, kv_heads * head_dim] or empty
  View gate;  // head h at columns [h * gate_stride, ... + head_dim) of query row
  std::int32_t gate_stride;
  std::span<const QueryTile> tiles;  // plan.row_tiles or plan.leaf_tiles
  View out;                          // [Q, heads * head_dim], attention times sigmoid(gate)
};

class Ops {
 public:
  virtual ~Ops() = default;

  // out[r] = table[token[r]]                                              out [R, H]
  virtual void embed(const Matrix& table, std::span<const std::int32_t> token, View out) = 0;

  // out = x * rsqrt(mean(x^2) + eps) * (1 + weight), by row               weight [1, cols]
  virtual void rms_norm(View x, View weight, float eps, View out) = 0;

  // residual += update; out = rms_norm(residual)
  virtual void add_rms_norm(View residual, View update, View weight, float eps, View out) = 0;

  // out = x W'^T, W' = rows [first, first + out.cols) of `weight`. `first` is a multiple of 32.
  virtual void matmul(View x, const Matrix& weight, std::int64_t first, View out) = 0;

  // residual += x W^T; out = rms_norm(residual). `update` [rows, H] is scratch. Whether the product
  // is rounded before it is added is the backend's choice, the same for every number of rows.
  virtual void matmul_add_rms_norm(View x, const Matrix& weight, View residual, View update,
                                   View norm_weight, float eps, View out) = 0;

  // c = causal 4-tap depthwise convolution along parent rows; s = silu(c); q, k, v, beta and log
  // decay from s.
  virtual void delta_inputs(const DeltaInputsArgs& args) = 0;

  // Bytes of DeltaRuleArgs::scratch for a plan of these counts.
  virtual std::size_t delta_scratch_bytes(const DeltaShape& shape, const PlanView& plan) const = 0;

  // The gated delta rule in chunks of kChunk over the plan's segments, level by level.
  virtual void delta_rule(const DeltaRuleArgs& args, const PlanView& plan) = 0;

  // Per head of value_dim: out = weight * rms_normalized(x) * silu(z)     x, z, out [R, Hv * dv],
  // weight [1, dv]
  virtual void gated_rms_norm(View x, View z, View weight, float eps, View out) = 0;

  virtual void norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape) = 0;

  // Causal softmax attention with scale head_dim^-1/2 over the chunk tree, times sigmoid(gate).
  virtual void attention(const AttentionArgs& args, const PlanView& plan) = 0;

  // out = silu(gate_up[:, :I]) * gate_up[:, I:]                           gate_up [R, 2 I], out [R,
  // I]
  virtual void silu_mul(View gate_up, View out) = 0;

  // out[i] = x[rows[i]]
  virtual void gather_rows(View x, std::span<const std::int32_t> rows, View out) = 0;

  // out = hidden weight^T + bias in float32      hidden [n, H], weight [k, H] f32, bias [1, k] f32
  // or empty, out [n, k] f32
  virtual void readout(View hidden, View weight, View bias, View out) = 0;
};

}  // namespace openjev
