// The engine: a loaded decision model on one device. Token ids in, float32 logits out; one call at
// a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/prefix.h"
#include "model/config.h"
#include "model/manifest.h"
#include "model/weights.h"

namespace openjev {

struct EngineOptions {
  std::string device = "cpu";
  BackendOptions backend;
  Progress progress;  // called while weights load
  // "auto": the checkpoint's tensors. "dummy": seeded ones of the shapes in config.json; the folder
  // needs no tensors, and no readout either.
  std::string load_format = "auto";
  std::uint64_t seed = 0;  // of dummy weights
};

// A base model's folder, and the adapter that makes it a decision model: merged while it loads.
struct AdaptedModel {
  std::filesystem::path base;
  std::filesystem::path adapter;  // folder of adapter_config.json and adapter_model.safetensors
  Manifest manifest;              // with the readout's weights
};

// Device bytes of a loaded model, known before its weights are read. All 0 where the backend does
// not manage memory of its own.
struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t workspace = 0;  // of one prompt of the model's largest length
  std::size_t graphs = 0;     // set aside for recorded passes and the libraries
  std::size_t free = 0;       // before loading
  std::size_t total = 0;
};

struct EngineStats {
  std::int64_t calls = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // before sharing
  std::int64_t rows = 0;    // after
  double seconds = 0;       // inside calls
};

// Sequence i is tokens[offsets[i]] ... tokens[offsets[i + 1] - 1].
struct TokenBatch {
  std::span<const std::int32_t> tokens;
  std::span<const std::int64_t> offsets;
  bool share = true;
};

class Engine {
 public:
  // Throws Error: kBadCheckpoint, kDeviceUnavailable, kOutOfMemory (with the memory plan, before
  // any weight is read), kBadRequest for an unknown device or option.
  Engine(const std::filesystem::path& folder, const EngineOptions& options);
  // Throws the same.
  Engine(AdaptedModel model, const EngineOptions& options);
  // Seeded weights of these shapes and a seeded scalar readout, without any file.
  Engine(const ModelConfig& config, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Logits [n, manifest().outputs], row-major. Throws kBadRequest or kOutOfLimits for bad tokens;
  // the engine stays usable. Safe to call from several threads: calls take turns.
  std::vector<float> score(const TokenBatch& batch, const Prefix* prefix = nullptr);

  // Final-norm vectors of the last tokens, [n, hidden_size].
  std::vector<float> last_hidden(const TokenBatch& batch, const Prefix* prefix = nullptr);

  // `tokens`: a multiple of 64 of them. Sequences scored with the result continue after them. The
  // engine must outlive it.
  std::shared_ptr<Prefix> keep_prefix(std::span<const std::int32_t> tokens);

  // Prepares for prompts of these lengths: measures matmul algorithms and records their passes, as
  // far as the backend does either. None given: those that the backend finds worth it. Lengths
  // beyond the model's limit are an error of kOutOfLimits.
  void warm_up(std::span<const std::int32_t> lengths, const Progress& progress);

  // Records the pass of one plan shape that was missed, between requests. False: none is left.
  bool record_missed();

  const ModelConfig& config() const;
  const Manifest& manifest() const;
  const ModelWeights& weights() const;
  const Backend& backend() const;
  Backend& backend();  // for benchmarks; calls of the engine must not run meanwhile
  EngineStats stats() const;
  MemoryPlan memory_plan() const;
  GraphStats graph_stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openjev
