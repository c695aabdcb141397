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
  // Throws Error: kBadCheckpoint, kDeviceUnavailable, kOutOfMemory, kBadRequest for an unknown
  // device.
  Engine(const std::filesystem::path& folder, const EngineOptions& options);
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

  const ModelConfig& config() const;
  const Manifest& manifest() const;
  const ModelWeights& weights() const;
  const Backend& backend() const;
  EngineStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openjev
