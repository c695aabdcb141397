// The price of a row's bits not depending on the other rows: every weight shape with algorithms of
// mode "invariant" and of mode "fast".
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backend/registry.h"
#include "openjev_bench/commands.h"
#include "openjev_bench/device_data.h"
#include "openjev_bench/loading.h"
#include "openjev_bench/replay.h"
#include "openjev_bench/timing.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

constexpr std::array kModes = {"invariant", "fast"};
constexpr double kBytesPerMb = 1e6, kUsPerMs = 1e3;
constexpr double kFlopsPerUs = 1e6;  // of 1 TFLOP/s
constexpr double kBytesPerUs = 1e3;  // of 1 GB/s
constexpr std::size_t kLeastCalls = 20;

struct WeightShape {
  std::string name;
  std::int64_t n, k;
  std::int64_t per_pass;  // layers that have it
};

std::vector<WeightShape> weight_shapes(const ModelConfig& config) {
  const DeltaShape& d = config.delta;
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const std::int64_t linear =
      std::count(config.layers.begin(), config.layers.end(), LayerKind::kLinear);
  return {{"in_proj", d.conv_channels() + d.values() + 2 * d.value_heads, hidden, linear},
          {"qkv", 2 * queries + 2 * kv, hidden, layers - linear},
          {"out", hidden, d.values(), linear},
          {"o", hidden, queries, layers - linear},
          {"gate_up", 2 * inner, hidden, layers},
          {"down", hidden, inner, layers}};
}

struct Measured {
  std::size_t n = 0;
  double median_us = 0, min_us = 0;
};

using ByShapeAndTokens = std::vector<std::vector<Measured>>;

using Copies = std::vector<std::unique_ptr<Matrix>>;

// At least two, together of `bytes` or more.
Copies make_copies(Backend& backend, const WeightShape& shape, double bytes, std::uint64_t seed) {
  Copies out;
  const double each = static_cast<double>(shape.n * shape.k) * size_of(DType::kBF16);
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.k));  // outputs like inputs
  while (out.size() < 2 || static_cast<double>(out.size()) * each < bytes)
    out.push_back(
        backend.make_random_matrix(shape.n, shape.k, seed + out.size(), static_cast<float>(scale)));
  return out;
}

// Microseconds of one product; each call of a replay reads the next copy.
Measured measure_product(Backend& backend, const Copies& weights, std::int32_t rows,
                         std::int32_t kind, const Arguments& arguments) {
  const Matrix& first = *weights.front();
  const auto lay_out = [&](Arena& arena) {
    const DType act = backend.activation_dtype();
    return std::pair(arena.matrix(act, rows, first.cols()), arena.matrix(act, rows, first.rows()));
  };
  Arena counting;
  lay_out(counting);
  const auto memory = backend.allocate(counting.used());
  Arena arena(memory->data(), memory->bytes());
  const auto [x, out] = lay_out(arena);
  fill_uniform(backend, x, arguments.seed, 1.0f);
  const std::size_t rounds = (kLeastCalls + weights.size() - 1) / weights.size();
  Replay replay(backend, kind, rows, [&, x = x, out = out] {
    for (std::size_t round = 0; round < rounds; ++round)
      for (const auto& weight : weights) backend.ops().matmul(x, *weight, 0, out);
  });
  const std::vector<double> times = measure(
      {.gaps = false, .repeats = arguments.repeats, .least = 10}, [] {}, [&] { replay.run(); });
  const double per_call = kUsPerMs / static_cast<double>(rounds * weights.size());
  return {times.size(), median_of(times) * per_call, least_of(times) * per_call};
}

ByShapeAndTokens measure_mode(Backend& backend, const Arguments& arguments,
                              const std::vector<WeightShape>& shapes) {
  constexpr double kColdMb = 256;
  const double cold = arguments.cold_mb < 0 ? kColdMb : static_cast<double>(arguments.cold_mb);
  std::vector<Copies> weights;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    weights.push_back(make_copies(backend, shapes[i], cold * kBytesPerMb, arguments.seed + i));
  backend.finish_weights();
  std::int32_t most = 0;
  for (const auto& lengths : {arguments.tokens, arguments.warmup_tokens})
    for (const std::int32_t length : lengths) most = std::max(most, length);
  backend.tune(most, show_progress());
  ByShapeAndTokens out;
  std::int32_t kind = 0;
  for (const Copies& copies : weights) {
    out.emplace_back();
    for (const std::int32_t tokens : arguments.tokens)
      out.back().push_back(measure_product(backend, copies, tokens, kind++, arguments));
  }
  return out;
}

double bytes_of(const WeightShape& shape, std::int64_t tokens, std::size_t activation) {
  return static_cast<double>(shape.n * shape.k) * size_of(DType::kBF16) +
         static_cast<double>(tokens * (shape.n + shape.k)) * static_cast<double>(activation);
}

void add_shape_rows(Table& table, const Arguments& arguments, const WeightShape& shape,
                    std::size_t activation, const std::vector<Measured>& invariant,
                    const std::vector<Measured>& fast) {
  for (std::size_t t = 0; t < arguments.tokens.size(); ++t) {
    const std::int64_t tokens = arguments.tokens[t];
    const double flops = 2.0 * static_cast<double>(tokens * shape.n * shape.k);
    const double bytes = bytes_of(shape, tokens, activation);
    std::vector<Cell> row = {shape.name, std::to_string(shape.n) + " x " + std::to_string(shape.k),
                             tokens, shape.per_pass, static_cast<std::int64_t>(invariant[t].n)};
    for (const Measured& m : {invariant[t], fast[t]})
      row.insert(row.end(), {m.median_us, m.min_us, flops / m.median_us / kFlopsPerUs,
                             bytes / m.median_us / kBytesPerUs});
    row.emplace_back(invariant[t].median_us / fast[t].median_us);
    table.rows.push_back(std::move(row));
  }
}

std::vector<Column> shape_columns() {
  std::vector<Column> out = {{"weight"}, {"N x K"}, {"tokens"}, {"launches"}, {"n"}};
  for (const char* mode : kModes) {
    const std::string name = mode;
    out.push_back({name + " us", 1});
    out.push_back({name + " min us", 1});
    out.push_back({name + " TFLOP/s", 1});
    out.push_back({name + " GB/s", 0});
  }
  out.push_back({"ratio"});
  return out;
}

double pass_ms(const std::vector<WeightShape>& shapes, const ByShapeAndTokens& measured,
               std::size_t token_index) {
  double out = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out += static_cast<double>(shapes[i].per_pass) * measured[i][token_index].median_us / kUsPerMs;
  return out;
}

BackendOptions options_of(const Arguments& arguments, const std::string& mode) {
  BackendOptions out = arguments.backend;
  out.matmul_mode = mode;
  if (!out.tuning_file.empty()) out.tuning_file += "." + mode;  // each mode measures its own
  return out;
}

}  // namespace

void bench_matmul(const Arguments& arguments, Report& report) {
  const std::vector<WeightShape> shapes = weight_shapes(model_config(arguments));
  std::vector<ByShapeAndTokens> measured;
  Table table, sums;
  for (const char* mode : kModes) {
    const auto backend = make_backend(arguments.device, options_of(arguments, mode));
    if (measured.empty()) {
      table = report.begin("matmul, weights cold", shape_columns(), *backend);
      sums = report.begin(
          "matmul, all of one pass",
          {{"tokens"}, {"n"}, {"invariant ms"}, {"fast ms"}, {"price of invariance"}}, *backend);
    }
    measured.push_back(measure_mode(*backend, arguments, shapes));
    if (measured.size() < kModes.size()) continue;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      add_shape_rows(table, arguments, shapes[i], size_of(backend->activation_dtype()),
                     measured[0][i], measured[1][i]);
    for (std::size_t t = 0; t < arguments.tokens.size(); ++t) {
      const double invariant = pass_ms(shapes, measured[0], t),
                   fast = pass_ms(shapes, measured[1], t);
      sums.rows.push_back({std::int64_t{arguments.tokens[t]},
                           static_cast<std::int64_t>(measured[0][0][t].n), invariant, fast,
                           invariant / fast});
    }
    for (Table* each : {&table, &sums}) {
      for (auto& [name, text] : each->facts)
        if (name == "matmul mode") text = "invariant, then fast";
      report.end(std::move(*each), *backend);
    }
  }
}

}  // namespace openjev::bench
