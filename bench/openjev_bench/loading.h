// An engine of seeded weights for the command line, and what loading took.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "openjev_bench/arguments.h"
#include "openjev_bench/report.h"

namespace openjev::bench {

struct Loaded {
  std::unique_ptr<Engine> engine;
  double load_seconds = 0;
  double warm_up_seconds = 0;

  std::vector<Fact> facts() const;
};

// Shows progress where the standard error is a terminal.
Progress show_progress();

Loaded load(const Arguments& arguments);

// Prepares for `lengths` and --warmup-tokens.
void warm_up(Loaded& loaded, const Arguments& arguments, std::span<const std::int32_t> lengths);

// Scores one prompt; waits for its logit.
void score(Engine& engine, std::span<const std::int32_t> tokens);

// Records what is still missed. True: something was.
bool record_all(Engine& engine);

}  // namespace openjev::bench
