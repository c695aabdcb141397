#include "openjev_bench/operators.h"

#include "openjev_bench/device_data.h"
#include "openjev_bench/operator_values.h"

namespace openjev::bench {
namespace {

struct RowViews {
  View token;                  // [1, R] int32
  View residual, update, out;  // [R, H]
  View leaf, logit;            // [leaves, H], [leaves, 1]
};

RowViews lay_out_rows(const OperatorContext& c, Arena& arena) {
  const DType act = c.backend.activation_dtype();
  const std::int64_t rows = c.plan.rows, leaves = c.plan.leaves, hidden = c.config.hidden_size;
  RowViews v;
  v.token = arena.matrix(DType::kI32, 1, rows);
  v.residual = arena.matrix(act, rows, hidden);
  v.update = arena.matrix(act, rows, hidden);
  v.out = arena.matrix(act, rows, hidden);
  v.leaf = arena.matrix(act, leaves, hidden);
  v.logit = arena.matrix(DType::kF32, leaves, 1);
  return v;
}

Sets<RowViews> make_row_sets(const OperatorContext& c) {
  const double touched = 2.0 * c.plan.rows * c.config.hidden_size *
                         static_cast<double>(size_of(c.backend.activation_dtype()));
  auto sets = make_sets<RowViews>(c.backend, touched, c.cold_bytes,
                                  [&](Arena& arena) { return lay_out_rows(c, arena); });
  for (std::size_t i = 0; i < sets.each.size(); ++i) {
    const RowViews& v = sets.each[i];
    fill_indices(c.backend, v.token, seed_of(c, Stream::kIndices, i), c.config.vocab_size);
    fill_uniform(c.backend, v.residual, seed_of(c, Stream::kInputs, i), 1.0f);
    // Added up by every launch: the sum must stay finite.
    fill_uniform(c.backend, v.update, seed_of(c, Stream::kUpdates, i), 1e-2f);
  }
  return sets;
}

}  // namespace

void use_row_operators(const OperatorContext& c, const Matrix& embedding, const UseOperator& use) {
  const Sets<RowViews> sets = make_row_sets(c);
  const std::size_t count = sets.each.size();
  const RowViews& any = sets.each.front();
  const auto rows = static_cast<std::size_t>(c.plan.rows);
  const float eps = c.config.rms_norm_eps;
  const std::int64_t layers = count_layers(c.config);
  const Parameter norm = parameter(c, 1, c.config.hidden_size, 0.0f, 0.1f);
  const Parameter readout = parameter(c, 1, c.config.hidden_size, 0.0f, 0.1f);
  const Parameter bias = parameter(c, 1, 1, 0.0f, 0.1f);
  Ops& ops = c.backend.ops();
  const double table_bytes =
      static_cast<double>(c.plan.rows * embedding.cols()) * size_of(DType::kBF16);

  use({"embed", count,
       [&](std::size_t i) {
         const RowViews& v = sets.each[i];
         ops.embed(embedding, {v.token.row<const std::int32_t>(0), rows}, v.out);
       },
       table_bytes + bytes_of(any.token, any.out), 0, 1});
  use({"rms_norm", count,
       [&](std::size_t i) {
         ops.rms_norm(sets.each[i].residual, norm.view(), eps, sets.each[i].out);
       },
       bytes_of(any.residual, any.out, norm.view()), 0, 1});
  use({"add_rms_norm", count,
       [&](std::size_t i) {
         const RowViews& v = sets.each[i];
         ops.add_rms_norm(v.residual, v.update, norm.view(), eps, v.out);
       },
       bytes_of(any.residual, any.update, any.residual, any.out, norm.view()), 0,
       2 * (layers - 1)});
  use({"gather_rows", count,
       [&](std::size_t i) {
         ops.gather_rows(sets.each[i].residual, c.plan.leaf_row, sets.each[i].leaf);
       },
       2 * bytes_of(any.leaf), 0, 2});
  use({"readout", count,
       [&](std::size_t i) {
         ops.readout(sets.each[i].leaf, readout.view(), bias.view(), sets.each[i].logit);
       },
       bytes_of(any.leaf, readout.view(), any.logit), 0, 1});
}

void use_mlp_operators(const OperatorContext& c, const UseOperator& use) {
  struct Views {
    View gate_up, activation;
  };
  const DType act = c.backend.activation_dtype();
  const std::int64_t rows = c.plan.rows, inner = c.config.intermediate_size;
  const double touched =
      3.0 * static_cast<double>(rows * inner) * static_cast<double>(size_of(act));
  const auto sets = make_sets<Views>(c.backend, touched, c.cold_bytes, [&](Arena& arena) {
    const View gate_up = arena.matrix(act, rows, 2 * inner);
    return Views{gate_up, arena.matrix(act, rows, inner)};
  });
  for (std::size_t i = 0; i < sets.each.size(); ++i)
    fill_uniform(c.backend, sets.each[i].gate_up, seed_of(c, Stream::kInputs, i), 2.0f);
  use({"silu_mul", sets.each.size(),
       [&](std::size_t i) {
         c.backend.ops().silu_mul(sets.each[i].gate_up, sets.each[i].activation);
       },
       touched, 0, count_layers(c.config) - 1});
}

}  // namespace openjev::bench
