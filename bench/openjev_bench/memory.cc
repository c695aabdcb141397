// Where the device's memory goes.
#include <algorithm>

#include "openjev_bench/commands.h"
#include "openjev_bench/loading.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

double gib(double bytes) { return bytes / static_cast<double>(std::size_t{1} << 30); }
double gib(std::size_t bytes) { return gib(static_cast<double>(bytes)); }

std::vector<Cell> row_now(const std::string& when, const Engine& engine) {
  constexpr double kMiB = 1 << 20;
  const DeviceMemory memory = engine.backend().memory();
  const double before = gib(engine.memory_plan().free), free = gib(memory.free);
  const GraphStats graphs = engine.graph_stats();
  return {when, free, before - free, graphs.entries, static_cast<double>(graphs.bytes) / kMiB};
}

Table plan_table(const Report& report, const Engine& engine) {
  const MemoryPlan plan = engine.memory_plan();
  Table table = report.begin("memory plan", {{"what"}, {"GiB"}}, engine.backend());
  const auto add = [&](const std::string& what, std::size_t bytes) {
    table.rows.push_back({what, gib(bytes)});
  };
  add("weights, planned", plan.weights);
  add("weights, resident", static_cast<std::size_t>(engine.weights().bytes));
  add("workspace of " + std::to_string(engine.manifest().max_length) + " tokens, planned",
      plan.workspace);
  add("graphs and libraries, planned", plan.graphs);
  add("free before loading", plan.free);
  add("device", plan.total);
  return table;
}

}  // namespace

void bench_memory(const Arguments& arguments, Report& report) {
  const std::int32_t longest = *std::max_element(arguments.tokens.begin(), arguments.tokens.end());
  Loaded loaded = load(arguments);
  Engine& engine = *loaded.engine;
  report.end(plan_table(report, engine), engine.backend());

  Table table =
      report.begin("memory", {{"when"}, {"free GiB"}, {"taken GiB"}, {"graphs"}, {"graph MiB", 1}},
                   engine.backend());
  table.rows.push_back(
      {std::string("before loading"), gib(engine.memory_plan().free), 0.0, std::int64_t{0}, 0.0});
  table.rows.push_back(row_now("after loading", engine));
  warm_up(loaded, arguments, arguments.tokens);
  table.rows.push_back(row_now("after warm-up", engine));
  score(engine, random_tokens(longest, engine.config().vocab_size, arguments.seed, 1));
  table.rows.push_back(row_now("after a pass of " + std::to_string(longest) + " tokens", engine));
  if (engine.memory_plan().total == 0)
    table.facts.emplace_back("memory", "not managed by this backend: figures are 0");
  for (const Fact& fact : loaded.facts()) table.facts.push_back(fact);
  report.end(std::move(table), engine.backend());
}

}  // namespace openjev::bench
