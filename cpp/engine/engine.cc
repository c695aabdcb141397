#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "backend/registry.h"
#include "core/arena.h"
#include "core/parallel.h"
#include "core/random.h"
#include "engine/memory_plan.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "plan/batch_plan.h"

namespace openjev {
namespace {

void check_load_format(const std::string& format) {
  if (format != "auto" && format != "dummy") {
    fail(ErrorKind::kBadRequest, "load_format ", format, ": unknown; allowed are auto and dummy");
  }
}

// A model on a folder's files; without tensors when they are to be seeded.
struct Files {
  std::optional<Checkpoint> checkpoint;
  std::optional<Adapter> adapter;  // to be merged into the checkpoint
  ModelConfig config;
  Manifest manifest;
};

Files read_config(const std::filesystem::path& folder, const EngineOptions& options) {
  check_load_format(options.load_format);
  Files files;
  if (options.load_format == "auto") files.checkpoint.emplace(folder);
  const std::filesystem::path config = folder / "config.json";
  files.config = parse_model_config(
      files.checkpoint ? files.checkpoint->config_text() : read_text_file(config), config.string());
  return files;
}

Files read_files(const std::filesystem::path& folder, const EngineOptions& options) {
  Files files = read_config(folder, options);
  files.manifest = files.checkpoint || has_manifest(folder)
                       ? read_manifest(folder, files.config.hidden_size)
                       : seeded_manifest(files.config, options.seed);
  return files;
}

Files read_files(AdaptedModel model, const EngineOptions& options) {
  Files files = read_config(model.base, options);
  if (files.checkpoint) files.adapter.emplace(model.adapter, files.config);
  check_readout(model.manifest, files.config.hidden_size);
  files.manifest = std::move(model.manifest);
  return files;
}

// Threads that merge an adapter: those of the CPU backend, else what the machine has.
int merge_threads(const EngineOptions& options) {
  return options.backend.threads > 0 ? options.backend.threads : available_threads();
}

ModelWeights make_weights(const Files& files, Backend& backend, const EngineOptions& options) {
  if (files.adapter) {
    return load_merged_weights(*files.checkpoint, *files.adapter, files.config, backend,
                               merge_threads(options), options.progress);
  }
  return files.checkpoint ? load_weights(*files.checkpoint, files.config, backend, options.progress)
                          : seeded_weights(options.seed, files.config, backend, options.progress);
}

}  // namespace

struct Engine::Impl {
  // Order matters: weights may read the checkpoint's mapping, buffers belong to the backend.
  std::unique_ptr<Backend> backend;
  Files files;
  const ModelConfig& config;
  const Manifest& manifest;
  MemoryPlan memory;
  ModelWeights weights;
  Parameter readout_weight, readout_bias;
  Decoder decoder;
  std::unique_ptr<Buffer> workspace;
  std::mutex turn;
  EngineStats stats;
  mutable std::mutex stats_turn;

  Impl(Files model, const EngineOptions& options)
      : backend(make_backend(options.device, options.backend)),
        files(std::move(model)),
        config(files.config),
        manifest(files.manifest),
        memory(plan_memory(config, most_tokens(), *backend)),
        weights(make_weights(files, *backend, options)),
        readout_weight(*backend, manifest.outputs, config.hidden_size, manifest.weight),
        decoder(config, weights, *backend) {
    files.adapter.reset();  // it is in the weights
    if (!manifest.bias.empty())
      readout_bias = Parameter(*backend, 1, manifest.outputs, manifest.bias);
  }

  std::int32_t most_tokens() const {
    return std::min(manifest.max_length, config.max_position_embeddings);
  }

  PlanOptions plan_options(const TokenBatch& batch, const Prefix* prefix) const {
    return {.vocab_size = config.vocab_size,
            .max_length = most_tokens(),
            .prefix_length = prefix == nullptr ? 0 : prefix->length(),
            .keep_end_state = false,
            .share = batch.share};
  }

  void* workspace_of(std::size_t bytes) {
    if (!workspace || workspace->bytes() < bytes) {
      backend->buffers_moved();
      workspace.reset();
      workspace = backend->allocate(bytes);
    }
    return workspace->data();
  }

  // The results of a pass, at the start of the workspace.
  struct Results {
    View hidden;  // [leaves, H]
    View logits;  // [leaves, outputs] float32
  };

  Results lay_out_results(Arena& arena, std::int64_t leaves) const {
    const View hidden = arena.matrix(backend->activation_dtype(), leaves, config.hidden_size);
    return {hidden, arena.matrix(DType::kF32, leaves, manifest.outputs)};
  }

  // Makes room for a pass over `plan` and says where its results will be.
  Results make_room(const PlanView& plan) {
    Arena counting;
    lay_out_results(counting, plan.leaves);
    const std::size_t results = counting.used();
    Arena arena(workspace_of(results + decoder.workspace_bytes(plan)), results);
    return lay_out_results(arena, plan.leaves);
  }

  // Queues the decoder; the workspace is large enough.
  void forward(const PlanView& plan, const PrefixViews& prefix, const PrefixViews* keep,
               View hidden) {
    Arena counting;
    lay_out_results(counting, plan.leaves);
    char* rest = static_cast<char*>(workspace->data()) + counting.used();
    decoder.forward(plan, prefix, keep, rest, workspace->bytes() - counting.used(), hidden);
  }

  // Queues the decoder and the readout.
  void score_pass(const PlanView& plan, const PrefixViews& prefix) {
    Arena arena(workspace->data(), workspace->bytes());
    const Results results = lay_out_results(arena, plan.leaves);
    forward(plan, prefix, nullptr, results.hidden);
    backend->ops().readout(results.hidden, readout_weight.view(), readout_bias.view(),
                           results.logits);
  }

  std::vector<float> score(const BatchPlan& plan, const Prefix* prefix) {
    const PlanView device = backend->upload(plan.view(), true);
    const Results results = make_room(device);
    if (prefix == nullptr && backend->worth_recording(device))
      backend->run(device, [&] { score_pass(device, {}); });
    else
      score_pass(device, prefix == nullptr ? PrefixViews{} : prefix->views());
    const std::int64_t leaves = plan.view().leaves;
    std::vector<float> out(static_cast<std::size_t>(leaves * manifest.outputs));
    backend->copy_out(out.data(), results.logits.first_rows(leaves));
    return out;
  }

  std::vector<float> last_hidden(const BatchPlan& plan, const Prefix* prefix) {
    const PlanView device = backend->upload(plan.view(), false);
    const Results results = make_room(device);
    forward(device, prefix == nullptr ? PrefixViews{} : prefix->views(), nullptr, results.hidden);
    std::vector<float> out(static_cast<std::size_t>(device.leaves * config.hidden_size));
    if (backend->activation_dtype() == DType::kF32) {
      backend->copy_out(out.data(), results.hidden);
    } else {
      std::vector<std::uint16_t> bits(out.size());
      backend->copy_out(bits.data(), results.hidden);
      std::transform(bits.begin(), bits.end(), out.begin(), bf16_to_f32);
    }
    return out;
  }

  // Runs one call in turn and counts it.
  std::vector<float> call(const BatchPlan& plan, const std::function<std::vector<float>()>& pass) {
    const std::scoped_lock lock(turn);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<float> out = pass();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::scoped_lock stats_lock(stats_turn);
    stats.calls += 1;
    stats.sequences += plan.view().leaves;
    stats.tokens += plan.total_tokens();
    stats.rows += plan.view().rows;
    stats.seconds += took.count();
    return out;
  }

  void warm_up_length(std::int32_t length) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          static_cast<std::int32_t>(hash_of(0, i) % static_cast<std::uint64_t>(config.vocab_size));
    const std::int64_t offsets[] = {0, length};
    const TokenBatch batch{tokens, offsets};
    const BatchPlan plan(batch.tokens, batch.offsets, plan_options(batch, nullptr));
    score(plan, nullptr);
    while (record_missed()) {
    }
  }

  bool record_missed() {
    return backend->record_missed([&](const PlanView& plan) { score_pass(plan, {}); });
  }
};

Engine::Engine(const std::filesystem::path& folder, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(read_files(folder, options), options)) {}
Engine::Engine(AdaptedModel model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(read_files(std::move(model), options), options)) {}
Engine::Engine(const ModelConfig& config, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(
          Files{std::nullopt, std::nullopt, config, seeded_manifest(config, options.seed)},
          options)) {}
Engine::~Engine() = default;

namespace {

void check_owner(const Prefix* prefix, const Engine* engine) {
  if (prefix != nullptr && prefix->engine() != engine) {
    fail(ErrorKind::kBadRequest, "prefix: made by another engine");
  }
}

}  // namespace

std::vector<float> Engine::score(const TokenBatch& batch, const Prefix* prefix) {
  check_owner(prefix, this);
  Impl& m = *impl_;
  const BatchPlan plan(batch.tokens, batch.offsets, m.plan_options(batch, prefix));
  return m.call(plan, [&] { return m.score(plan, prefix); });
}

std::vector<float> Engine::last_hidden(const TokenBatch& batch, const Prefix* prefix) {
  check_owner(prefix, this);
  Impl& m = *impl_;
  const BatchPlan plan(batch.tokens, batch.offsets, m.plan_options(batch, prefix));
  return m.call(plan, [&] { return m.last_hidden(plan, prefix); });
}

std::shared_ptr<Prefix> Engine::keep_prefix(std::span<const std::int32_t> tokens) {
  Impl& m = *impl_;
  const std::int64_t offsets[] = {0, static_cast<std::int64_t>(tokens.size())};
  PlanOptions options = m.plan_options({tokens, offsets}, nullptr);
  options.keep_end_state = true;
  const BatchPlan plan(tokens, offsets, options);
  const auto length = static_cast<std::int32_t>(tokens.size());
  Arena counting;
  m.decoder.lay_out_prefix(counting, length);
  auto buffer = m.backend->allocate(counting.used());
  Arena arena(buffer->data(), buffer->bytes());
  PrefixViews views = m.decoder.lay_out_prefix(arena, length);
  m.call(plan, [&] {
    const PlanView device = m.backend->upload(plan.view(), false);
    m.forward(device, {}, &views, m.make_room(device).hidden);
    m.backend->synchronize();
    return std::vector<float>{};
  });
  return std::make_shared<Prefix>(this, std::move(buffer), std::move(views), length);
}

void Engine::warm_up(std::span<const std::int32_t> lengths, const Progress& progress) {
  Impl& m = *impl_;
  std::vector<std::int32_t> order(lengths.begin(), lengths.end());
  if (order.empty()) order = m.backend->warm_up_lengths(m.most_tokens());
  // Longest first: the workspace then never moves, which would drop what was recorded.
  std::sort(order.begin(), order.end(), std::greater<>());
  if (order.empty()) return;
  if (order.front() > m.most_tokens() || order.back() < 1) {
    fail(ErrorKind::kOutOfLimits, "warm-up: lengths ", order.back(), " to ", order.front(),
         "; allowed are 1 to ", m.most_tokens());
  }
  const std::scoped_lock lock(m.turn);
  m.backend->tune(order.front(), progress);
  const auto total = static_cast<std::int64_t>(order.size());
  for (std::int64_t i = 0; i < total; ++i) {
    const std::int32_t length = order[static_cast<std::size_t>(i)];
    m.warm_up_length(length);
    if (progress) progress(i + 1, total, std::to_string(length) + " tokens");
  }
}

bool Engine::record_missed() {
  const std::scoped_lock lock(impl_->turn);
  return impl_->record_missed();
}

const ModelConfig& Engine::config() const { return impl_->config; }
const Manifest& Engine::manifest() const { return impl_->manifest; }
const ModelWeights& Engine::weights() const { return impl_->weights; }
const Backend& Engine::backend() const { return *impl_->backend; }
Backend& Engine::backend() { return *impl_->backend; }
MemoryPlan Engine::memory_plan() const { return impl_->memory; }
GraphStats Engine::graph_stats() const {
  const std::scoped_lock lock(impl_->turn);
  return impl_->backend->graph_stats();
}
EngineStats Engine::stats() const {
  const std::scoped_lock lock(impl_->stats_turn);
  return impl_->stats;
}

}  // namespace openjev
