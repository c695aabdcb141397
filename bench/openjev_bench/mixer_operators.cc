// The operators of the two kinds of token mixers.
#include <algorithm>
#include <array>
#include <utility>

#include "openjev_bench/device_data.h"
#include "openjev_bench/operator_values.h"
#include "openjev_bench/operators.h"

namespace openjev::bench {
namespace {

struct DeltaViews {
  View projection;  // [R, channels + values + 2 Hv], the merged projection
  View q, k, v, beta, log_decay, out, normed;
};

DeltaViews lay_out_delta(const OperatorContext& c, Arena& arena) {
  const DeltaShape& d = c.config.delta;
  const DType act = c.backend.activation_dtype();
  const std::int64_t rows = c.plan.rows;
  DeltaViews v;
  v.projection = arena.matrix(act, rows, d.conv_channels() + d.values() + 2 * d.value_heads);
  const DType narrow = c.backend.delta_dtype();
  v.q = arena.matrix(narrow, rows, d.keys());
  v.k = arena.matrix(narrow, rows, d.keys());
  v.v = arena.matrix(narrow, rows, d.values());
  v.beta = arena.matrix(DType::kF32, rows, d.value_heads);
  v.log_decay = arena.matrix(DType::kF32, rows, d.value_heads);
  v.out = arena.matrix(act, rows, d.values());
  v.normed = arena.matrix(act, rows, d.values());
  return v;
}

// The chunked form with C tokens a chunk: the products k k^T and q k^T, the solved triangle with k
// and v, the masked scores with v (each 2 C^2 a column), and three products with the state (each
// 2 C dk dv).
double delta_flops(const DeltaShape& d, std::int64_t tokens) {
  const double chunk = kChunk, dk = d.key_dim, dv = d.value_dim;
  const double per_chunk = 2 * chunk * chunk * (3 * dk + 2 * dv) + 6 * chunk * dk * dv;
  return per_chunk * d.value_heads * static_cast<double>(tokens) / chunk;
}

// Causal scores and their product with the values.
double attention_flops(const ModelConfig& config, std::int64_t tokens) {
  const double pairs = static_cast<double>(tokens * (tokens + 1)) / 2;
  return 4.0 * config.head_dim * config.heads * pairs;
}

class DeltaOperators {
 public:
  explicit DeltaOperators(const OperatorContext& c)
      : c_(c),
        d_(c.config.delta),
        sets_(make_sets<DeltaViews>(c.backend, touched(), c.cold_bytes,
                                    [&](Arena& arena) { return lay_out_delta(c, arena); })),
        conv_(parameter(c, 4, d_.conv_channels(), 0.0f, 0.5f)),
        a_log_(parameter(c, 1, d_.value_heads, 0.0f, 0.1f)),
        dt_bias_(parameter(c, 1, d_.value_heads, kBias, 0.1f)),
        norm_(parameter(c, 1, d_.value_dim, 1.0f, 0.1f)) {
    Arena counting;
    lay_out_rest(counting);
    rest_ = c.backend.allocate(std::max(counting.used(), Arena::kAlign));
    Arena arena(rest_->data(), rest_->bytes());
    lay_out_rest(arena);
    for (std::size_t i = 0; i < sets_.each.size(); ++i) {
      fill_uniform(c.backend, sets_.each[i].projection, seed_of(c, Stream::kInputs, i), 1.0f);
      inputs(i);  // unit keys, betas and decays for the rule
      rule(i);    // and its outputs for the norm
    }
  }

  void use(const UseOperator& use) const {
    const DeltaViews& s = sets_.each.front();
    const std::size_t count = sets_.each.size();
    const std::int64_t layers = count_layers(c_.config, LayerKind::kLinear);
    const double made = bytes_of(s.q, s.k, s.v, s.beta, s.log_decay);
    use({"delta_inputs", count, [this](std::size_t i) { inputs(i); },
         made + bytes_of(mixed(s), logits(s, 0), logits(s, 1), conv_.view()), 0, layers});
    use({"delta_rule", count, [this](std::size_t i) { rule(i); }, made + bytes_of(s.out),
         delta_flops(d_, c_.tokens), layers});
    use({"gated_rms_norm", count, [this](std::size_t i) { norm(i); },
         bytes_of(s.out, z(s), s.normed), 0, layers});
  }

 private:
  // Log decays around -0.2: softplus of about -1.5, times a rate of 1.
  static constexpr float kBias = -1.5f;

  // By the operator that touches least, the norm.
  double touched() const {
    return 3.0 * static_cast<double>(c_.plan.rows * d_.values()) *
           static_cast<double>(size_of(c_.backend.activation_dtype()));
  }
  View mixed(const DeltaViews& s) const { return s.projection.columns(0, d_.conv_channels()); }
  View z(const DeltaViews& s) const {
    return s.projection.columns(d_.conv_channels(), d_.values());
  }
  View logits(const DeltaViews& s, std::int64_t which) const {
    return s.projection.columns(d_.conv_channels() + d_.values() + which * d_.value_heads,
                                d_.value_heads);
  }

  void lay_out_rest(Arena& arena) {
    const std::size_t bytes = c_.backend.ops().delta_scratch_bytes(d_, c_.plan);
    states_ = arena.matrix(DType::kF32, c_.plan.states, d_.state());
    scratch_ = arena.matrix(DType::kF32, 1, static_cast<std::int64_t>((bytes + 3) / 4));
  }

  void inputs(std::size_t i) const {
    const DeltaViews& s = sets_.each[i];
    c_.backend.ops().delta_inputs({.shape = d_,
                                   .mixed = mixed(s),
                                   .beta_logit = logits(s, 0),
                                   .decay_logit = logits(s, 1),
                                   .tail = {},
                                   .conv = conv_.view(),
                                   .a_log = a_log_.view(),
                                   .dt_bias = dt_bias_.view(),
                                   .parent_row = c_.plan.parent_row,
                                   .q = s.q,
                                   .k = s.k,
                                   .v = s.v,
                                   .beta = s.beta,
                                   .log_decay = s.log_decay});
  }

  void rule(std::size_t i) const {
    const DeltaViews& s = sets_.each[i];
    c_.backend.ops().delta_rule({.shape = d_,
                                 .q = s.q,
                                 .k = s.k,
                                 .v = s.v,
                                 .beta = s.beta,
                                 .log_decay = s.log_decay,
                                 .start = {},
                                 .states = states_,
                                 .out = s.out,
                                 .scratch = scratch_},
                                c_.plan);
  }

  void norm(std::size_t i) const {
    const DeltaViews& s = sets_.each[i];
    c_.backend.ops().gated_rms_norm(s.out, z(s), norm_.view(), c_.config.rms_norm_eps, s.normed);
  }

  const OperatorContext& c_;
  const DeltaShape d_;
  Sets<DeltaViews> sets_;
  Parameter conv_, a_log_, dt_bias_, norm_;
  std::unique_ptr<Buffer> rest_;
  View states_, scratch_;
};

struct AttentionViews {
  View projection;  // [R, 2 queries + 2 kv]: per head query | gate, then keys, then values
  View q, k, out;
};

class AttentionOperators {
 public:
  explicit AttentionOperators(const OperatorContext& c)
      : c_(c),
        queries_(std::int64_t{c.config.heads} * c.config.head_dim),
        kv_(std::int64_t{c.config.kv_heads} * c.config.head_dim),
        sets_(make_sets<AttentionViews>(c.backend, touched(), c.cold_bytes,
                                        [&](Arena& arena) { return lay_out(arena); })),
        q_norm_(parameter(c, 1, c.config.head_dim, 0.0f, 0.1f)),
        k_norm_(parameter(c, 1, c.config.head_dim, 0.0f, 0.1f)) {
    for (std::size_t i = 0; i < sets_.each.size(); ++i) {
      fill_uniform(c.backend, sets_.each[i].projection, seed_of(c, Stream::kInputs, i), 1.0f);
      norm_rope(i);  // queries and keys for attention
    }
  }

  void use(const UseOperator& use) const {
    const AttentionViews& s = sets_.each.front();
    const std::size_t count = sets_.each.size();
    const std::int64_t layers = count_layers(c_.config, LayerKind::kFull);
    // A last layer of this kind attends for the last row only, but needs every key.
    const bool last = layers > 0 && c_.config.layers.back() == LayerKind::kFull;
    const std::int64_t all_rows = layers - (last ? 1 : 0);
    use({"norm_rope", count, [this](std::size_t i) { norm_rope(i); }, 2 * bytes_of(s.q, s.k), 0,
         all_rows});
    use({"attention", count, [this](std::size_t i) { attend(i); },
         bytes_of(s.q, s.k, values(s), s.q /* the gate */, s.out),
         attention_flops(c_.config, c_.tokens), all_rows});
  }

 private:
  double touched() const {
    return 2.0 * static_cast<double>(c_.plan.rows * (queries_ + kv_)) *
           static_cast<double>(size_of(c_.backend.activation_dtype()));
  }
  AttentionViews lay_out(Arena& arena) const {
    const DType act = c_.backend.activation_dtype();
    const std::int64_t rows = c_.plan.rows;
    AttentionViews v;
    v.projection = arena.matrix(act, rows, 2 * queries_ + 2 * kv_);
    v.q = arena.matrix(act, rows, queries_);
    v.k = arena.matrix(act, rows, kv_);
    v.out = arena.matrix(act, rows, queries_);
    return v;
  }
  View values(const AttentionViews& s) const {
    return s.projection.columns(2 * queries_ + kv_, kv_);
  }

  void norm_rope(std::size_t i) const {
    const AttentionViews& s = sets_.each[i];
    const ModelConfig& config = c_.config;
    const std::array jobs = {NormRopeJob{.in = s.projection.columns(0, 2 * queries_),
                                         .heads = config.heads,
                                         .head_stride = 2 * config.head_dim,
                                         .weight = q_norm_.view(),
                                         .position = c_.plan.position,
                                         .out = s.q},
                             NormRopeJob{.in = s.projection.columns(2 * queries_, kv_),
                                         .heads = config.kv_heads,
                                         .head_stride = config.head_dim,
                                         .weight = k_norm_.view(),
                                         .position = c_.plan.position,
                                         .out = s.k}};
    c_.backend.ops().norm_rope(jobs, {.head_dim = config.head_dim,
                                      .rotary_dim = config.rotary_dim,
                                      .theta = config.rope_theta,
                                      .eps = config.rms_norm_eps});
  }

  void attend(std::size_t i) const {
    const AttentionViews& s = sets_.each[i];
    const ModelConfig& config = c_.config;
    c_.backend.ops().attention(
        {.heads = config.heads,
         .kv_heads = config.kv_heads,
         .head_dim = config.head_dim,
         .q = s.q,
         .k = s.k,
         .v = values(s),
         .prefix_k = {},
         .prefix_v = {},
         .gate = s.projection.columns(config.head_dim, 2 * queries_ - config.head_dim),
         .gate_stride = 2 * config.head_dim,
         .tiles = c_.plan.row_tiles,
         .out = s.out},
        c_.plan);
  }

  const OperatorContext& c_;
  std::int64_t queries_, kv_;
  Sets<AttentionViews> sets_;
  Parameter q_norm_, k_norm_;
};

}  // namespace

void use_delta_operators(const OperatorContext& context, const UseOperator& use) {
  DeltaOperators(context).use(use);
}

void use_attention_operators(const OperatorContext& context, const UseOperator& use) {
  AttentionOperators(context).use(use);
}

}  // namespace openjev::bench
