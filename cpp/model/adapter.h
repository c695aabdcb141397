// A LoRA adapter in PEFT's files (adapter_config.json, adapter_model.safetensors) for one backbone.
// Everything in it must have a place in the backbone, and everything that it says it adapts must be
// in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/merge.h"

namespace openjev {

class Adapter {
 public:
  // Throws kBadCheckpoint naming file, field or tensor, for: DoRA, rsLoRA, biases, ranks by
  // pattern, modules saved whole and any other variant; a tensor without a home; a missing tensor;
  // another rank, shape or dtype than the configuration and `config` say; values that are not
  // finite.
  Adapter(const std::filesystem::path& folder, const ModelConfig& config);
  Adapter(Adapter&&) noexcept = default;
  Adapter& operator=(Adapter&&) noexcept = default;

  // The update of a backbone tensor, named without prefix ("layers.3.self_attn.q_proj.weight");
  // nullptr: it is not adapted.
  const LowRank* find(const std::string& tensor) const;

  std::int64_t rank() const { return rank_; }
  double alpha() const { return alpha_; }
  const std::vector<std::string>& targets() const { return targets_; }  // names of modules, sorted
  std::size_t modules() const { return updates_.size(); }
  std::int64_t parameters() const { return parameters_; }

 private:
  struct Update {
    std::vector<float> a, b;
    LowRank view;
  };

  void read_config(const std::filesystem::path& file);
  void read_tensors(const std::filesystem::path& file, const ModelConfig& config);

  std::int64_t rank_ = 0;
  double alpha_ = 0;
  std::vector<std::string> targets_;
  bool targets_by_pattern_ = false;  // a regular expression: the tensors say which modules it took
  std::map<std::string, Update> updates_;  // by tensor
  std::int64_t parameters_ = 0;
};

}  // namespace openjev
