#include "model/decoder.h"

#include <algorithm>

namespace openjev {

// Buffers of one pass. `rows` matrices hold R rows; the last layer works on the leaves only, which
// are more than the rows where sequences repeat: Q = max(R, leaves).
struct Decoder::Workspace {
  View residual, normed, update;                 // [R, H]
  View projection;                               // [R, widest input projection]
  View q, k;                                     // [Q, widest], [R, widest]
  View values;                                   // [R, Hv * dv], then the gated norm's output
  View beta, log_decay;                          // [R, Hv] float32
  View mixed;                                    // [Q, widest mixer output]
  View gate_up, activation;                      // [Q, 2 I], [Q, I]
  View states;                                   // [slots, state] float32
  View delta_scratch;                            // the backend's own
  View leaf_residual, leaf_normed, leaf_update;  // [leaves, H]
  View leaf_queries;                             // [leaves, 2 * heads * head_dim]
};

struct Decoder::Pass {
  const PlanView& plan;
  const PrefixViews& prefix;
  const PrefixViews* keep;
  Workspace buffers;
  bool last = false;
};

Decoder::Decoder(const ModelConfig& config, const ModelWeights& weights, Backend& backend)
    : config_(config), weights_(weights), backend_(backend) {}

Decoder::Workspace Decoder::lay_out(Arena& arena, const PlanView& plan) const {
  const DeltaShape& d = config_.delta;
  const DType act = backend_.activation_dtype();
  const std::int64_t rows = plan.rows, hidden = config_.hidden_size;
  const std::int64_t most = std::max(plan.rows, plan.leaves);
  const std::int64_t queries = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv = std::int64_t{config_.kv_heads} * config_.head_dim;
  Workspace w;
  w.residual = arena.matrix(act, rows, hidden);
  w.normed = arena.matrix(act, rows, hidden);
  w.update = arena.matrix(act, rows, hidden);
  w.projection = arena.matrix(
      act, rows,
      std::max(d.conv_channels() + d.values() + 2 * d.value_heads, 2 * queries + 2 * kv));
  w.q = arena.matrix(act, most, std::max(d.keys(), queries));
  w.k = arena.matrix(act, rows, std::max(d.keys(), kv));
  w.values = arena.matrix(act, rows, d.values());
  w.beta = arena.matrix(DType::kF32, rows, d.value_heads);
  w.log_decay = arena.matrix(DType::kF32, rows, d.value_heads);
  w.mixed = arena.matrix(act, most, std::max(d.values(), queries));
  w.gate_up = arena.matrix(act, most, 2 * std::int64_t{config_.intermediate_size});
  w.activation = arena.matrix(act, most, config_.intermediate_size);
  w.states = arena.matrix(DType::kF32, plan.states, d.state());
  const auto scratch = static_cast<std::int64_t>(backend_.ops().delta_scratch_bytes(d, plan));
  w.delta_scratch = arena.matrix(DType::kF32, 1, (scratch + 3) / 4);
  w.leaf_residual = arena.matrix(act, plan.leaves, hidden);
  w.leaf_normed = arena.matrix(act, plan.leaves, hidden);
  w.leaf_update = arena.matrix(act, plan.leaves, hidden);
  w.leaf_queries = arena.matrix(act, plan.leaves, 2 * queries);
  return w;
}

std::size_t Decoder::workspace_bytes(const PlanView& plan) const {
  Arena counting;
  lay_out(counting, plan);
  return counting.used();
}

PrefixViews Decoder::lay_out_prefix(Arena& arena, std::int64_t length) const {
  const DType act = backend_.activation_dtype();
  const std::int64_t kv = std::int64_t{config_.kv_heads} * config_.head_dim;
  PrefixViews out;
  for (const LayerKind kind : config_.layers) {
    LayerPrefix layer;
    if (kind == LayerKind::kLinear) {
      layer.state = arena.matrix(DType::kF32, 1, config_.delta.state());
      layer.tail = arena.matrix(act, 3, config_.delta.conv_channels());
    } else {
      layer.keys = arena.matrix(act, length, kv);
      layer.values = arena.matrix(act, length, kv);
    }
    out.push_back(layer);
  }
  return out;
}

namespace {

// The same memory, holding elements of another type of the same width.
View as(View view, DType dtype) {
  check(size_of(view.dtype) == size_of(dtype), "a view of ", name_of(view.dtype), " as ",
        name_of(dtype));
  view.dtype = dtype;
  return view;
}

LayerPrefix prefix_of(const PrefixViews& prefix, std::size_t layer) {
  return prefix.empty() ? LayerPrefix{} : prefix[layer];
}

}  // namespace

void Decoder::mix_linear(const Pass& pass, std::size_t layer) const {
  const Workspace& b = pass.buffers;
  const DeltaShape& d = config_.delta;
  const LinearAttentionWeights& w = weights_.layers[layer].linear;
  const LayerPrefix prefix = prefix_of(pass.prefix, layer);
  Ops& ops = backend_.ops();

  const View projection =
      b.projection.columns(0, d.conv_channels() + d.values() + 2 * d.value_heads);
  ops.matmul(b.normed, *w.in_proj, 0, projection);
  const View mixed = projection.columns(0, d.conv_channels());
  const View z = projection.columns(d.conv_channels(), d.values());
  const std::int64_t rows = pass.plan.rows;
  const DType narrow = backend_.delta_dtype();
  const View q = as(b.q.first_rows(rows).columns(0, d.keys()), narrow),
             k = as(b.k.columns(0, d.keys()), narrow), v = as(b.values, narrow),
             out = b.mixed.first_rows(rows).columns(0, d.values());
  ops.delta_inputs({.shape = d,
                    .mixed = mixed,
                    .beta_logit = projection.columns(d.conv_channels() + d.values(), d.value_heads),
                    .decay_logit = projection.columns(
                        d.conv_channels() + d.values() + d.value_heads, d.value_heads),
                    .tail = prefix.tail,
                    .conv = w.conv.view(),
                    .a_log = w.a_log.view(),
                    .dt_bias = w.dt_bias.view(),
                    .parent_row = pass.plan.parent_row,
                    .q = q,
                    .k = k,
                    .v = v,
                    .beta = b.beta,
                    .log_decay = b.log_decay});
  ops.delta_rule({.shape = d,
                  .q = q,
                  .k = k,
                  .v = v,
                  .beta = b.beta,
                  .log_decay = b.log_decay,
                  .start = prefix.state,
                  .states = b.states,
                  .out = out,
                  .scratch = b.delta_scratch},
                 pass.plan);
  if (pass.keep != nullptr) {
    backend_.copy(b.states.first_rows(1), (*pass.keep)[layer].state);
    backend_.copy(mixed.rows_from(mixed.rows - 3, 3), (*pass.keep)[layer].tail);
  }
  ops.gated_rms_norm(out, z, w.norm.view(), config_.rms_norm_eps, b.values);
  ops.matmul_add_rms_norm(b.values, *w.out_proj, b.residual, b.update,
                          weights_.layers[layer].post_norm.view(), config_.rms_norm_eps, b.normed);
  if (pass.last) {
    ops.gather_rows(b.residual, pass.plan.leaf_row, b.leaf_residual);
    ops.gather_rows(b.normed, pass.plan.leaf_row, b.leaf_normed);
  }
}

void Decoder::attend(const Pass& pass, std::size_t layer, View queries, View keys_values,
                     std::span<const std::int32_t> position, std::span<const QueryTile> tiles,
                     const Stream& stream) const {
  const Workspace& b = pass.buffers;
  const FullAttentionWeights& w = weights_.layers[layer].full;
  const LayerPrefix prefix = prefix_of(pass.prefix, layer);
  const std::int64_t width = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv_width = std::int64_t{config_.kv_heads} * config_.head_dim;
  const View q = b.q.first_rows(queries.rows).columns(0, width), k = b.k.columns(0, kv_width);
  const View v = keys_values.columns(kv_width, kv_width);
  const View out = b.mixed.first_rows(queries.rows).columns(0, width);
  Ops& ops = backend_.ops();

  const NormRopeJob jobs[] = {{.in = queries,
                               .heads = config_.heads,
                               .head_stride = 2 * config_.head_dim,
                               .weight = w.q_norm.view(),
                               .position = position,
                               .out = q},
                              {.in = keys_values.columns(0, kv_width),
                               .heads = config_.kv_heads,
                               .head_stride = config_.head_dim,
                               .weight = w.k_norm.view(),
                               .position = pass.plan.position,
                               .out = k}};
  ops.norm_rope(jobs, {.head_dim = config_.head_dim,
                       .rotary_dim = config_.rotary_dim,
                       .theta = config_.rope_theta,
                       .eps = config_.rms_norm_eps});
  if (pass.keep != nullptr) {
    backend_.copy(k, (*pass.keep)[layer].keys);
    backend_.copy(v, (*pass.keep)[layer].values);
  }
  ops.attention({.heads = config_.heads,
                 .kv_heads = config_.kv_heads,
                 .head_dim = config_.head_dim,
                 .q = q,
                 .k = k,
                 .v = v,
                 .prefix_k = prefix.keys,
                 .prefix_v = prefix.values,
                 .gate = queries.columns(config_.head_dim, queries.cols - config_.head_dim),
                 .gate_stride = 2 * config_.head_dim,
                 .tiles = tiles,
                 .out = out},
                pass.plan);
  ops.matmul_add_rms_norm(out, *w.o_proj, stream.residual, stream.update,
                          weights_.layers[layer].post_norm.view(), config_.rms_norm_eps,
                          stream.normed);
}

void Decoder::mix_full(const Pass& pass, std::size_t layer) const {
  const Workspace& b = pass.buffers;
  const std::int64_t queries = 2 * std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv = 2 * std::int64_t{config_.kv_heads} * config_.head_dim;
  const View projection = b.projection.columns(0, queries + kv);
  backend_.ops().matmul(b.normed, *weights_.layers[layer].full.qkv, 0, projection);
  attend(pass, layer, projection.columns(0, queries), projection.columns(queries, kv),
         pass.plan.position, pass.plan.row_tiles, {b.residual, b.update, b.normed});
}

// Only the leaves' rows of the last layer are read: keys and values of every row, the rest for the
// leaves.
void Decoder::mix_last_full(const Pass& pass, std::size_t layer) const {
  const Workspace& b = pass.buffers;
  const Matrix& qkv = *weights_.layers[layer].full.qkv;
  const std::int64_t queries = 2 * std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t kv = 2 * std::int64_t{config_.kv_heads} * config_.head_dim;
  Ops& ops = backend_.ops();
  const View keys_values = b.projection.columns(0, kv);
  ops.matmul(b.normed, qkv, queries, keys_values);
  ops.gather_rows(b.residual, pass.plan.leaf_row, b.leaf_residual);
  ops.gather_rows(b.normed, pass.plan.leaf_row, b.leaf_normed);
  ops.matmul(b.leaf_normed, qkv, 0, b.leaf_queries);
  attend(pass, layer, b.leaf_queries, keys_values, pass.plan.leaf_position, pass.plan.leaf_tiles,
         {b.leaf_residual, b.leaf_update, b.leaf_normed});
}

void Decoder::mlp(const Pass& pass, std::size_t layer, const Stream& stream, View next_norm,
                  View out) const {
  const Workspace& b = pass.buffers;
  const std::int64_t rows = stream.normed.rows;
  const View gate_up = b.gate_up.first_rows(rows), activation = b.activation.first_rows(rows);
  Ops& ops = backend_.ops();
  ops.matmul(stream.normed, *weights_.layers[layer].gate_up, 0, gate_up);
  ops.silu_mul(gate_up, activation);
  ops.matmul_add_rms_norm(activation, *weights_.layers[layer].down, stream.residual, stream.update,
                          next_norm, config_.rms_norm_eps, out);
}

void Decoder::forward(const PlanView& plan, const PrefixViews& prefix, const PrefixViews* keep,
                      void* workspace, std::size_t bytes, View hidden) const {
  Arena arena(workspace, bytes);
  Pass pass{plan, prefix, keep, lay_out(arena, plan)};
  const Workspace& b = pass.buffers;
  const float eps = config_.rms_norm_eps;
  const std::size_t layers = weights_.layers.size();
  Ops& ops = backend_.ops();

  ops.embed(*weights_.embedding, plan.token, b.residual);
  ops.rms_norm(b.residual, weights_.layers[0].input_norm.view(), eps, b.normed);
  for (std::size_t i = 0; i < layers; ++i) {
    const LayerWeights& w = weights_.layers[i];
    pass.last = i + 1 == layers;
    if (w.kind == LayerKind::kLinear) {
      mix_linear(pass, i);
    } else if (pass.last) {
      mix_last_full(pass, i);
    } else {
      mix_full(pass, i);
    }
    const Stream stream = pass.last ? Stream{b.leaf_residual, b.leaf_update, b.leaf_normed}
                                    : Stream{b.residual, b.update, b.normed};
    const Parameter& next = pass.last ? weights_.final_norm : weights_.layers[i + 1].input_norm;
    mlp(pass, i, stream, next.view(), pass.last ? hidden : b.normed);
  }
}

}  // namespace openjev
