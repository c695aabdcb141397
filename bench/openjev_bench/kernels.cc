// Time of every operator but the matrix products, over one prompt.
//
// A replay launches an operator many times over sets of buffers in turn, so that the host's part
// vanishes and inputs come from memory. In a pass an operator's input was often written just
// before and is still in the L2 cache: --cold-mb 0 measures that end.
#include <algorithm>
#include <cmath>

#include "backend/registry.h"
#include "openjev_bench/commands.h"
#include "openjev_bench/operators.h"
#include "openjev_bench/replay.h"
#include "openjev_bench/timing.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

constexpr double kUsPerMs = 1e3;
constexpr double kFlopsPerUs = 1e6;  // of 1 TFLOP/s
constexpr double kBytesPerUs = 1e3;  // of 1 GB/s
constexpr double kBytesPerMb = 1e6;

// Launches of one replay: about a millisecond's worth where launching costs anything, and each set
// as often as the others.
std::size_t calls_of(const Operator& op, const Backend& backend) {
  constexpr double kLeast = 20, kMost = 400, kWorthBytes = 2e9;
  const bool device = backend.memory().total > 0;
  const double wanted =
      device ? std::clamp(std::ceil(kWorthBytes / op.bytes), kLeast, kMost) : kLeast;
  return (static_cast<std::size_t>(wanted) + op.sets - 1) / op.sets * op.sets;
}

class KernelTable {
 public:
  KernelTable(const Arguments& arguments, Backend& backend, Table& table)
      : arguments_(arguments), backend_(backend), table_(table) {}

  void begin(std::int32_t tokens, std::int32_t rows) {
    tokens_ = tokens;
    rows_ = rows;
    total_ms_ = 0;
  }

  void add(const Operator& op) {
    const std::size_t calls = calls_of(op, backend_);
    Replay replay(backend_, kind_++, tokens_, [&] {
      for (std::size_t i = 0; i < calls; ++i) op.launch(i % op.sets);
    });
    const std::vector<double> times = measure(
        {.gaps = false, .repeats = arguments_.repeats, .least = 10}, [] {}, [&] { replay.run(); });
    const double per_call = kUsPerMs / static_cast<double>(calls);
    const double us = median_of(times) * per_call;
    const double pass_ms = us / kUsPerMs * static_cast<double>(op.per_pass);
    total_ms_ += pass_ms;
    const Cell flops = op.flops > 0 ? Cell{op.flops / us / kFlopsPerUs} : Cell{};
    table_.rows.push_back({op.name, std::int64_t{tokens_}, std::int64_t{rows_},
                           static_cast<std::int64_t>(times.size()),
                           static_cast<std::int64_t>(calls), us, least_of(times) * per_call,
                           op.bytes / us / kBytesPerUs, flops, op.per_pass, pass_ms});
  }

  void end() {
    table_.rows.push_back({std::string("all"), std::int64_t{tokens_}, std::int64_t{rows_}, Cell{},
                           Cell{}, Cell{}, Cell{}, Cell{}, Cell{}, Cell{}, total_ms_});
  }

 private:
  const Arguments& arguments_;
  Backend& backend_;
  Table& table_;
  std::int32_t kind_ = 0;  // of the next replay
  std::int32_t tokens_ = 0, rows_ = 0;
  double total_ms_ = 0;
};

std::vector<Column> columns() {
  return {{"op"},        {"tokens"},  {"rows"},       {"n"},        {"calls"},      {"us", 2},
          {"min us", 2}, {"GB/s", 0}, {"TFLOP/s", 1}, {"launches"}, {"ms per pass"}};
}

}  // namespace

void bench_kernels(const Arguments& arguments, Report& report) {
  constexpr double kColdMb = 64;
  const ModelConfig config = model_config(arguments);
  const auto backend = make_backend(arguments.device, arguments.backend);
  const auto embedding =
      backend->make_random_table(config.vocab_size, config.hidden_size, arguments.seed, 1.0f);
  backend->finish_weights();
  const double cold_mb = arguments.cold_mb < 0 ? kColdMb : static_cast<double>(arguments.cold_mb);

  Table table = report.begin("kernels", columns(), *backend);
  table.facts.emplace_back("buffers in turn",
                           std::to_string(static_cast<std::int64_t>(cold_mb)) + " MB");
  KernelTable kernels(arguments, *backend, table);
  const auto use = [&](const Operator& op) { kernels.add(op); };
  for (const std::int32_t tokens : arguments.tokens) {
    const BatchPlan plan = plan_of_prompt(tokens, config.vocab_size, arguments.seed);
    const PlanView uploaded = backend->upload(plan.view(), true);
    const OperatorContext context{*backend,      config, uploaded, tokens, cold_mb * kBytesPerMb,
                                  arguments.seed};
    kernels.begin(tokens, uploaded.rows);
    use_row_operators(context, *embedding, use);
    use_mlp_operators(context, use);
    use_delta_operators(context, use);
    use_attention_operators(context, use);
    kernels.end();
  }
  const GraphStats graphs = backend->graph_stats();
  table.facts.emplace_back("graphs", std::to_string(graphs.captures) + " recorded, " +
                                         std::to_string(graphs.hits) + " replays, " +
                                         std::to_string(graphs.fallbacks) + " failed");
  report.end(std::move(table), *backend);
}

}  // namespace openjev::bench
