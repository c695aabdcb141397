#include "openjev_bench/matmul_stack.h"

#include <algorithm>

#include "openjev_bench/device_data.h"
#include "openjev_bench/loading.h"

namespace openjev::bench {
namespace {

constexpr std::int32_t kKind = 0;  // of the replays

// In the order of a pass.
std::vector<const Matrix*> projections(const ModelWeights& weights) {
  std::vector<const Matrix*> out;
  for (const LayerWeights& layer : weights.layers) {
    const bool linear = layer.kind == LayerKind::kLinear;
    out.push_back(linear ? layer.linear.in_proj.get() : layer.full.qkv.get());
    out.push_back(linear ? layer.linear.out_proj.get() : layer.full.o_proj.get());
    out.push_back(layer.gate_up.get());
    out.push_back(layer.down.get());
  }
  return out;
}

}  // namespace

MatmulStack::MatmulStack(Engine& engine, std::int32_t most_rows, std::uint64_t seed, bool recorded)
    : engine_(engine), recorded_(recorded) {
  Backend& backend = engine.backend();
  const std::vector<const Matrix*> weights = projections(engine.weights());
  // Products of equal sizes share their buffers, as those of a pass do.
  const auto lay_out = [&](Arena& arena) {
    std::map<std::int64_t, View> inputs, outputs;
    const auto view = [&](std::map<std::int64_t, View>& views, std::int64_t cols) {
      const auto known = views.find(cols);
      if (known != views.end()) return known->second;
      return views[cols] = arena.matrix(backend.activation_dtype(), most_rows, cols);
    };
    products_.clear();
    for (const Matrix* weight : weights) {
      const View x = view(inputs, weight->cols());
      products_.push_back({weight, x, view(outputs, weight->rows())});
    }
    return inputs;
  };
  Arena counting;
  lay_out(counting);
  memory_ = backend.allocate(counting.used());
  Arena arena(memory_->data(), memory_->bytes());
  for (const auto& [cols, x] : lay_out(arena))
    fill_uniform(backend, x, seed + static_cast<std::uint64_t>(cols), 1.0f);
}

void MatmulStack::launch(std::int32_t rows) const {
  Ops& ops = engine_.backend().ops();
  for (const Product& p : products_)
    ops.matmul(p.x.first_rows(rows), *p.weight, 0, p.out.first_rows(rows));
}

void MatmulStack::prepare(std::int32_t rows) {
  record_all(engine_);  // what is recorded next must be the stack
  replays_.try_emplace(
      rows, engine_.backend(), kKind, rows, [this, rows] { launch(rows); }, recorded_);
}

void MatmulStack::run(std::int32_t rows) {
  const auto found = replays_.find(rows);
  check(found != replays_.end(), "matmul stack: ", rows, " rows were not prepared");
  found->second.run();
}

double MatmulStack::flops(std::int32_t rows) const {
  double out = 0;
  for (const Product& p : products_)
    out += 2.0 * rows * static_cast<double>(p.weight->rows() * p.weight->cols());
  return out;
}

bool room_for_recordings(const BackendOptions& options, std::size_t lengths) {
  constexpr std::size_t kStandardEntries = 128;
  if (options.graph_mode != "bucketed") return false;
  const std::size_t entries = options.graph_entries == 0
                                  ? kStandardEntries
                                  : static_cast<std::size_t>(options.graph_entries);
  return 2 * lengths <= entries;
}

}  // namespace openjev::bench
