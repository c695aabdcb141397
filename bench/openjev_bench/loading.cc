#include "openjev_bench/loading.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "openjev_bench/timing.h"
#include "openjev_bench/workload.h"

namespace openjev::bench {
namespace {

constexpr double kMsPerSecond = 1e3;

std::string seconds(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f s", value);
  return text.data();
}

}  // namespace

std::vector<Fact> Loaded::facts() const {
  return {{"loading", seconds(load_seconds)}, {"warm-up", seconds(warm_up_seconds)}};
}

Progress show_progress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [](std::int64_t done, std::int64_t total, const std::string& what) {
    const double share =
        total > 0 ? static_cast<double>(done) / static_cast<double>(total) * 100 : 100;
    std::fprintf(stderr, "\r%5.1f%% %-60.60s%s", share, what.c_str(), done == total ? "\n" : "");
  };
}

Loaded load(const Arguments& arguments) {
  EngineOptions options;
  options.device = arguments.device;
  options.backend = arguments.backend;
  options.progress = show_progress();
  options.seed = arguments.seed;
  const ModelConfig config = model_config(arguments);
  Loaded out;
  out.load_seconds =
      milliseconds([&] { out.engine = std::make_unique<Engine>(config, options); }) / kMsPerSecond;
  return out;
}

void warm_up(Loaded& loaded, const Arguments& arguments, std::span<const std::int32_t> lengths) {
  std::vector<std::int32_t> wanted(lengths.begin(), lengths.end());
  wanted.insert(wanted.end(), arguments.warmup_tokens.begin(), arguments.warmup_tokens.end());
  wanted = distinct(std::move(wanted));
  loaded.warm_up_seconds =
      milliseconds([&] { loaded.engine->warm_up(wanted, show_progress()); }) / kMsPerSecond;
}

void score(Engine& engine, std::span<const std::int32_t> tokens) {
  const std::array<std::int64_t, 2> offsets = {0, static_cast<std::int64_t>(tokens.size())};
  engine.score({tokens, offsets});
}

bool record_all(Engine& engine) {
  bool any = false;
  while (engine.record_missed()) any = true;
  return any;
}

}  // namespace openjev::bench
