// What makes a backbone a decision model: readout, temperature, prompt wrapper, limits and
// identity. Read from decision.json (format qwen35-decision/1, weights in readout.safetensors) or
// from the older open_jev_export.json (format open-jev-text-merged/1, weights inside).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/config.h"

namespace openjev {

enum class ReadoutKind : std::uint8_t { kScalar, kLetters };

constexpr const char* name_of(ReadoutKind kind) noexcept {
  return kind == ReadoutKind::kScalar ? "scalar" : "letters";
}

struct Identity {
  std::string id, revision;  // empty when the file does not say
};

struct Manifest {
  std::string format;
  Identity base, checkpoint;
  ReadoutKind readout = ReadoutKind::kScalar;
  double temperature = 1.0;             // scalar: > 0; letters: 1
  std::vector<std::int32_t> token_ids;  // letters: the option tokens, in order
  std::string prompt_prefix, prompt_suffix;
  bool strip = true;
  std::int32_t max_length = 0;  // tokens of one prompt
  std::int32_t outputs = 0;     // k: 1 for scalar, token_ids.size() for letters
  std::vector<float> weight;    // [outputs, hidden_size]
  std::vector<float> bias;      // [outputs] or empty
};

// `hidden_size` is what the weight must match. decision.json wins when both files are there. Throws
// kBadCheckpoint; a folder with neither file is refused, so a plain base model is never scored by
// mistake. Files that decision.json lists must exist with the size it gives; their hashes are not
// computed.
Manifest read_manifest(const std::filesystem::path& folder, std::int32_t hidden_size);

// Whether `folder` holds one of the two files.
bool has_manifest(const std::filesystem::path& folder);

// Refuses, as kBadCheckpoint, a manifest whose readout has not `hidden_size` weights an output, or
// a temperature or length that no manifest may have: for one that was not read from a file.
void check_readout(const Manifest& manifest, std::int32_t hidden_size);

// A scalar readout of seeded weights for models without one: logits of size 1, temperature 1.
Manifest seeded_manifest(const ModelConfig& config, std::uint64_t seed);

}  // namespace openjev
