// A whole request inside the library: plan, upload, pass, readout, logit back on the host.
#include <algorithm>
#include <optional>

#include "openjev_bench/commands.h"
#include "openjev_bench/forward_rows.h"
#include "openjev_bench/matmul_stack.h"
#include "openjev_bench/timing.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

constexpr double kFlopsPerMs = 1e9;  // of 1 TFLOP/s

Pace pace_of(const Arguments& arguments) {
  return {.gaps = arguments.gaps, .repeats = arguments.repeats, .least = 7};
}

std::string launched(const GraphStats& before, const GraphStats& after) {
  return std::to_string(after.hits - before.hits) + " replayed, " +
         std::to_string(after.misses - before.misses) + " launched kernel by kernel, " +
         std::to_string(after.evictions - before.evictions) + " recordings dropped";
}

void add_facts(Table& table, const Arguments& arguments, const Loaded& loaded, bool recorded) {
  table.facts.emplace_back("pace", arguments.gaps ? "gaps of 40 ms" : "sustained");
  const bool replays = recorded && loaded.engine->backend().name() != "cpu";
  table.facts.emplace_back("matmul stack", replays ? "replayed" : "launched one by one");
  for (const Fact& fact : loaded.facts()) table.facts.push_back(fact);
}

// Fresh random tokens for each pass.
class Prompts {
 public:
  Prompts(Engine& engine, std::uint64_t seed) : engine_(engine), seed_(seed) {}

  void next(std::int32_t length) {
    tokens_ = random_tokens(length, engine_.config().vocab_size, seed_, stream_++);
  }
  void run() { score(engine_, tokens_); }

 private:
  Engine& engine_;
  std::uint64_t seed_;
  std::uint64_t stream_ = 1;
  std::vector<std::int32_t> tokens_;
};

using PassTimes = std::vector<std::vector<double>>;  // [pass][request] ms

// The first pass over the lengths does not count.
PassTimes time_in_order(const Pace& pace, const std::vector<std::int32_t>& lengths,
                        const std::function<void(std::int32_t)>& prepare,
                        const std::function<void(std::int32_t)>& run) {
  constexpr std::int32_t kPasses = 2;
  PassTimes out;
  for (std::int32_t pass = 0; pass <= (pace.repeats > 0 ? pace.repeats : kPasses); ++pass) {
    std::vector<double> times;
    for (const std::int32_t length : lengths) {
      prepare(length);
      pause_before_pass(pace);
      times.push_back(milliseconds([&] { run(length); }));
    }
    if (pass > 0) out.push_back(std::move(times));
  }
  return out;
}

// For the record: what each request took.
Table by_request(const Report& report, const Backend& backend,
                 const std::vector<std::int32_t>& lengths, const PassTimes& passes,
                 const PassTimes& stacks) {
  Table table = report.begin(
      "forward, by request",
      {{"request"}, {"tokens"}, {"n"}, {"median ms"}, {"min ms"}, {"stack ms"}, {"ratio"}},
      backend);
  table.printed = false;
  const auto of_request = [](const PassTimes& all, std::size_t request) {
    std::vector<double> out;
    for (const auto& pass : all) out.push_back(pass[request]);
    return out;
  };
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<double> times = of_request(passes, i);
    const double stack = median_of(of_request(stacks, i));
    table.rows.push_back({static_cast<std::int64_t>(i), std::int64_t{lengths[i]},
                          static_cast<std::int64_t>(times.size()), median_of(times),
                          least_of(times), stack, median_of(times) / stack});
  }
  return table;
}

}  // namespace

void forward_by_length(const Arguments& arguments, Loaded& loaded, Report& report) {
  Engine& engine = *loaded.engine;
  const std::vector<std::int32_t>& lengths = arguments.tokens;
  const bool recorded = room_for_recordings(arguments.backend, distinct(lengths).size());
  MatmulStack stack(engine, *std::max_element(lengths.begin(), lengths.end()), arguments.seed,
                    recorded);
  for (const std::int32_t length : distinct(lengths)) stack.prepare(length);
  Prompts prompts(engine, arguments.seed);
  const Pace pace = pace_of(arguments);

  Table table = report.begin("forward",
                             {{"tokens"},
                              {"n"},
                              {"median ms"},
                              {"min ms"},
                              {"stack ms"},
                              {"ratio"},
                              {"TFLOP/s", 1},
                              {"stack TFLOP/s", 1}},
                             engine.backend());
  add_facts(table, arguments, loaded, recorded);
  const GraphStats before = engine.graph_stats();
  for (const std::int32_t length : lengths) {
    const std::vector<double> times =
        measure(pace, [&] { prompts.next(length); }, [&] { prompts.run(); });
    const double alone = median_of(measure(pace, [] {}, [&] { stack.run(length); }));
    const double flops = stack.flops(length), time = median_of(times);
    table.rows.push_back({std::int64_t{length}, static_cast<std::int64_t>(times.size()), time,
                          least_of(times), alone, time / alone, flops / time / kFlopsPerMs,
                          flops / alone / kFlopsPerMs});
  }
  table.facts.emplace_back("passes and stacks", launched(before, engine.graph_stats()));
  report.end(std::move(table), engine.backend());
}

void forward_in_order(const Arguments& arguments, Loaded& loaded,
                      const std::vector<std::int32_t>& lengths, Report& report) {
  Engine& engine = *loaded.engine;
  const std::vector<std::int32_t> each = distinct(lengths);
  const bool recorded = room_for_recordings(arguments.backend, each.size());
  const Pace pace = pace_of(arguments);
  Prompts prompts(engine, arguments.seed);
  Table table = report.begin("forward, " + std::to_string(lengths.size()) + " lengths in order",
                             {{"pass"},
                              {"n"},
                              {"mean ms"},
                              {"p50 ms"},
                              {"p95 ms"},
                              {"stack mean ms"},
                              {"ratio"},
                              {"TFLOP/s", 1}},
                             engine.backend());
  add_facts(table, arguments, loaded, recorded);
  const GraphStats before = engine.graph_stats();
  const PassTimes passes = time_in_order(
      pace, lengths, [&](std::int32_t length) { prompts.next(length); },
      [&](std::int32_t) { prompts.run(); });
  table.facts.emplace_back("passes", launched(before, engine.graph_stats()));

  MatmulStack stack(engine, each.back(), arguments.seed, recorded);
  for (const std::int32_t length : each) stack.prepare(length);
  const PassTimes stacks = time_in_order(
      pace, lengths, [](std::int32_t) {}, [&](std::int32_t length) { stack.run(length); });
  double flops = 0;
  for (const std::int32_t length : lengths) flops += stack.flops(length);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const double mean = mean_of(passes[i]), alone = mean_of(stacks[i]);
    const auto n = static_cast<std::int64_t>(lengths.size());
    table.rows.push_back({static_cast<std::int64_t>(i + 1), n, mean, median_of(passes[i]),
                          p95_of(passes[i]), alone, mean / alone,
                          flops / (mean * static_cast<double>(n)) / kFlopsPerMs});
  }
  report.end(std::move(table), engine.backend());
  report.end(by_request(report, engine.backend(), lengths, passes, stacks), engine.backend());
}

void bench_forward(const Arguments& arguments, Report& report) {
  std::vector<std::int32_t> lengths;
  if (!arguments.lengths_file.empty()) lengths = read_lengths(arguments.lengths_file);
  Loaded loaded = load(arguments);
  warm_up(loaded, arguments, lengths.empty() ? arguments.tokens : lengths);
  if (!lengths.empty()) {
    forward_in_order(arguments, loaded, lengths, report);
    return;
  }
  forward_by_length(arguments, loaded, report);
  if (arguments.unseen) forward_unseen(arguments, loaded, report);
}

}  // namespace openjev::bench
