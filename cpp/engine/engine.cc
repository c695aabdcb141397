#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "backend/registry.h"
#include "core/arena.h"
#include "io/checkpoint.h"
#include "model/decoder.h"
#include "plan/batch_plan.h"

namespace openjev {

struct Engine::Impl {
  // Order matters: weights may read the checkpoint's mapping, buffers belong to the backend.
  std::unique_ptr<Backend> backend;
  Checkpoint checkpoint;
  ModelConfig config;
  Manifest manifest;
  ModelWeights weights;
  Parameter readout_weight, readout_bias;
  Decoder decoder;
  std::unique_ptr<Buffer> workspace;
  std::mutex turn;
  EngineStats stats;
  mutable std::mutex stats_turn;

  Impl(const std::filesystem::path& folder, const EngineOptions& options)
      : backend(make_backend(options.device, options.backend)),
        checkpoint(folder),
        config(parse_model_config(checkpoint.config_text(), (folder / "config.json").string())),
        manifest(read_manifest(folder, config.hidden_size)),
        weights(load_weights(checkpoint, config, *backend, options.progress)),
        readout_weight(*backend, manifest.outputs, config.hidden_size, manifest.weight),
        decoder(config, weights, *backend) {
    if (!manifest.bias.empty())
      readout_bias = Parameter(*backend, 1, manifest.outputs, manifest.bias);
  }

  PlanOptions plan_options(const TokenBatch& batch, std::int32_t prefix_length) const {
    return {.vocab_size = config.vocab_size,
            .max_length = std::min(manifest.max_length, config.max_position_embeddings),
            .prefix_length = prefix_length,
            .keep_end_state = false,
            .share = batch.share};
  }

  View workspace_of(std::size_t bytes) {
    if (!workspace || workspace->bytes() < bytes) {
      workspace.reset();
      workspace = backend->allocate(bytes);
    }
    return View::contiguous(workspace->data(), DType::kF32, 1,
                            static_cast<std::int64_t>(bytes / 4));
  }

  // Runs the decoder and hands its hidden rows [leaves, H] and a scratch arena for what follows to
  // `finish`.
  template <class Finish>
  std::vector<float> run(const BatchPlan& plan, const PrefixViews& prefix, const PrefixViews* keep,
                         std::int64_t outputs, Finish&& finish) {
    const auto begin = std::chrono::steady_clock::now();
    const PlanView host = plan.view();
    Arena counting;
    lay_out_results(counting, host.leaves, outputs);
    const std::size_t results = counting.used(), pass = decoder.workspace_bytes(host);
    const View memory = workspace_of(results + pass);
    Arena arena(memory.data, results);
    const Results views = lay_out_results(arena, host.leaves, outputs);
    const PlanView device = backend->upload(host);
    decoder.forward(device, prefix, keep, static_cast<char*>(memory.data) + results, pass,
                    views.hidden);
    std::vector<float> out(static_cast<std::size_t>(host.leaves * outputs));
    finish(views.hidden, views.out);
    backend->copy_out(out.data(), views.out);
    count(plan, host, begin);
    return out;
  }

  struct Results {
    View hidden, out;
  };
  Results lay_out_results(Arena& arena, std::int64_t leaves, std::int64_t outputs) const {
    const View hidden = arena.matrix(backend->activation_dtype(), leaves, config.hidden_size);
    return {hidden, arena.matrix(DType::kF32, leaves, outputs)};
  }

  void count(const BatchPlan& plan, const PlanView& host,
             std::chrono::steady_clock::time_point begin) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::scoped_lock lock(stats_turn);
    stats.calls += 1;
    stats.sequences += host.leaves;
    stats.tokens += plan.total_tokens();
    stats.rows += host.rows;
    stats.seconds += took.count();
  }
};

Engine::Engine(const std::filesystem::path& folder, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}
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
  const BatchPlan plan(batch.tokens, batch.offsets,
                       m.plan_options(batch, prefix == nullptr ? 0 : prefix->length()));
  const std::scoped_lock lock(m.turn);
  return m.run(plan, prefix == nullptr ? PrefixViews{} : prefix->views(), nullptr,
               m.manifest.outputs, [&](View hidden, View out) {
                 m.backend->ops().readout(hidden, m.readout_weight.view(), m.readout_bias.view(),
                                          out);
               });
}

std::vector<float> Engine::last_hidden(const TokenBatch& batch, const Prefix* prefix) {
  check_owner(prefix, this);
  Impl& m = *impl_;
  check(m.backend->activation_dtype() == DType::kF32, "last_hidden: activations are not float32");
  const BatchPlan plan(batch.tokens, batch.offsets,
                       m.plan_options(batch, prefix == nullptr ? 0 : prefix->length()));
  const std::scoped_lock lock(m.turn);
  return m.run(plan, prefix == nullptr ? PrefixViews{} : prefix->views(), nullptr,
               m.config.hidden_size, [&](View hidden, View out) { m.backend->copy(hidden, out); });
}

std::shared_ptr<Prefix> Engine::keep_prefix(std::span<const std::int32_t> tokens) {
  Impl& m = *impl_;
  const std::int64_t offsets[] = {0, static_cast<std::int64_t>(tokens.size())};
  PlanOptions options = m.plan_options({tokens, offsets}, 0);
  options.keep_end_state = true;
  const BatchPlan plan(tokens, offsets, options);
  const auto length = static_cast<std::int32_t>(tokens.size());
  Arena counting;
  m.decoder.lay_out_prefix(counting, length);
  auto buffer = m.backend->allocate(counting.used());
  Arena arena(buffer->data(), buffer->bytes());
  PrefixViews views = m.decoder.lay_out_prefix(arena, length);
  const std::scoped_lock lock(m.turn);
  m.run(plan, {}, &views, 0, [](View, View) {});
  return std::make_shared<Prefix>(this, std::move(buffer), std::move(views), length);
}

const ModelConfig& Engine::config() const { return impl_->config; }
const Manifest& Engine::manifest() const { return impl_->manifest; }
const ModelWeights& Engine::weights() const { return impl_->weights; }
const Backend& Engine::backend() const { return *impl_->backend; }
EngineStats Engine::stats() const {
  const std::scoped_lock lock(impl_->stats_turn);
  return impl_->stats;
}

}  // namespace openjev
