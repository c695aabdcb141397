#include "model/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "io/bad_checkpoint.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace openjev {
namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";
constexpr const char* kRoot = "base_model.model.";
constexpr std::array<const char*, 4> kPrefixes = {"model.language_model.", "model.",
                                                  "language_model.", ""};
constexpr std::int64_t kMostRank = 1024;
constexpr double kMostAlpha = 1e6;

// Fields that change nothing about what B A is or what it is added to.
constexpr std::array kIgnored = {"auto_mapping",        "base_model_name_or_path",
                                 "ensure_weight_tying", "inference_mode",
                                 "layers_pattern",      "lora_dropout",
                                 "megatron_core",       "peft_version",
                                 "qalora_group_size",   "revision",
                                 "runtime_config",      "task_type"};
// Read below.
constexpr std::array kRead = {"bias", "init_lora_weights", "lora_alpha",
                              "r",    "target_modules",    "peft_type"};
// Initializations that leave the base as it is; the others (pissa, olora, ...) change it.
constexpr std::array kPlainInits = {"gaussian", "orthogonal", "eva"};

struct MatrixShape {
  std::int64_t rows, cols;
};
using Modules = std::map<std::string, MatrixShape>;  // "layers.0.self_attn.q_proj" -> [out, in]

Modules backbone_modules(const ModelConfig& config) {
  const DeltaShape& d = config.delta;
  const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size;
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;
  Modules out;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    if (config.layers[i] == LayerKind::kLinear) {
      const std::string p = layer + "linear_attn.";
      out[p + "in_proj_qkv"] = {d.conv_channels(), hidden};
      out[p + "in_proj_z"] = {d.values(), hidden};
      out[p + "in_proj_b"] = {d.value_heads, hidden};
      out[p + "in_proj_a"] = {d.value_heads, hidden};
      out[p + "out_proj"] = {hidden, d.values()};
    } else {
      const std::string p = layer + "self_attn.";
      out[p + "q_proj"] = {2 * queries, hidden};
      out[p + "k_proj"] = {keys, hidden};
      out[p + "v_proj"] = {keys, hidden};
      out[p + "o_proj"] = {hidden, queries};
    }
    out[layer + "mlp.gate_proj"] = {wide, hidden};
    out[layer + "mlp.up_proj"] = {wide, hidden};
    out[layer + "mlp.down_proj"] = {hidden, wide};
  }
  return out;
}

// As PEFT matches a listed target: the module's whole name, or its end after a dot.
bool matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

bool is_neutral(const Json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::ranges::any_of(names, [&](std::string_view known) { return known == name; });
}

void check_initialization(const Fields& fields) {
  const Json* init = fields.find("init_lora_weights");
  if (init == nullptr || init->is_boolean()) return;
  if (init->is_string() && contains(kPlainInits, init->get_ref<const std::string&>())) return;
  fields.refuse("init_lora_weights", shown(*init),
                "true, false, \"gaussian\", \"orthogonal\" or \"eva\" (others change the base)");
}

struct Key {
  std::string module;
  bool is_a = false;
};

// base_model.model.PREFIX MODULE .lora_A.weight, or nothing when it is not of this form.
std::optional<Key> parse_key(const std::string& name, const std::string& prefix) {
  const std::string start = kRoot + prefix;
  for (const bool is_a : {true, false}) {
    const std::string end = is_a ? ".lora_A.weight" : ".lora_B.weight";
    if (name.starts_with(start) && name.ends_with(end) && name.size() > start.size() + end.size())
      return Key{name.substr(start.size(), name.size() - start.size() - end.size()), is_a};
  }
  return std::nullopt;
}

std::string shape_text(const TensorInfo& info) {
  std::string out = info.dtype + " of shape [";
  for (std::size_t i = 0; i < info.shape.size(); ++i)
    out += (i > 0 ? ", " : "") + std::to_string(info.shape[i]);
  return out + "]";
}

std::vector<float> read_matrix(const SafetensorsFile& file, const std::string& name,
                               MatrixShape shape) {
  const std::string wanted =
      "F32 of shape [" + std::to_string(shape.rows) + ", " + std::to_string(shape.cols) + "]";
  const auto at = file.tensors().find(name);
  if (at == file.tensors().end())
    bad_checkpoint(file.path(), tensor_label(name), "no such tensor", wanted);
  const TensorInfo& info = at->second;
  if (info.dtype != "F32" || info.shape != std::vector{shape.rows, shape.cols})
    bad_checkpoint(file.path(), tensor_label(name), shape_text(info), wanted);
  const std::span<const std::byte> bytes = file.bytes(info);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  const auto bad = std::ranges::find_if_not(out, [](float v) { return std::isfinite(v); });
  if (bad != out.end()) {
    bad_checkpoint(file.path(), tensor_label(name),
                   std::to_string(*bad) + " at element " + std::to_string(bad - out.begin()),
                   "finite numbers");
  }
  return out;
}

std::string find_prefix(const SafetensorsFile& file) {
  for (const auto& [name, info] : file.tensors()) {
    for (const char* prefix : kPrefixes) {
      if (name.starts_with(std::string(kRoot) + prefix + "layers.")) return prefix;
    }
  }
  const std::string first =
      file.tensors().empty() ? "no tensor" : tensor_label(file.tensors().begin()->first);
  bad_checkpoint(file.path(), "tensors", first,
                 "base_model.model.[model.]layers.N.MODULE.lora_A.weight and lora_B.weight");
}

// Every module that a target names. A target that names nothing is an error, and so is no target.
std::set<std::string> named_modules(const Modules& modules, const std::vector<std::string>& targets,
                                    const std::filesystem::path& folder) {
  std::set<std::string> out;
  for (const std::string& target : targets) {
    bool used = false;
    for (const auto& [module, shape] : modules) {
      if (!matches(module, target)) continue;
      used = true;
      out.insert(module);
    }
    if (!used) {
      bad_checkpoint(folder / kConfigFile, "target_modules", text_label(target),
                     "names of projections of this text backbone");
    }
  }
  if (out.empty()) bad_checkpoint(folder / kConfigFile, "target_modules", "none", "one or more");
  return out;
}

}  // namespace

Adapter::Adapter(const std::filesystem::path& folder, const ModelConfig& config) {
  read_config(folder / kConfigFile);
  read_tensors(folder / kTensorFile, config);
}

void Adapter::read_config(const std::filesystem::path& file) {
  const Json json = parse_json(read_text_file(file), file);
  const Fields fields(json, file);
  if (const std::string type = fields.text("peft_type"); type != "LORA")
    fields.refuse("peft_type", text_label(type), "\"LORA\"");
  for (const auto& [name, value] : json.items()) {
    if (!contains(kIgnored, name) && !contains(kRead, name) && !is_neutral(value))
      fields.refuse(name, shown(value), "false, null or empty: this variant of LoRA is not merged");
  }
  if (const std::string bias = fields.text_or("bias", "none"); bias != "none")
    fields.refuse("bias", text_label(bias), "\"none\"");
  check_initialization(fields);
  rank_ = fields.integer("r", 1, kMostRank);
  alpha_ = fields.positive("lora_alpha", kMostAlpha);
  const Json& targets = fields.require("target_modules", "a list of module names");
  if (targets.is_string()) {
    targets_by_pattern_ = true;
    return;
  }
  for (const Json& target : fields.array("target_modules")) {
    if (!target.is_string()) fields.refuse("target_modules", shown(target), "names of modules");
    targets_.push_back(target.get<std::string>());
  }
  std::ranges::sort(targets_);
}

void Adapter::read_tensors(const std::filesystem::path& path, const ModelConfig& config) {
  const SafetensorsFile file(path);
  const Modules modules = backbone_modules(config);
  const std::string prefix = find_prefix(file);
  std::set<std::string> found;
  for (const auto& [name, info] : file.tensors()) {
    const std::optional<Key> key = parse_key(name, prefix);
    if (!key || !modules.contains(key->module)) {
      bad_checkpoint(path, tensor_label(name), "a tensor without a home in this text backbone",
                     std::string(kRoot) + prefix +
                         "layers.N.MODULE.lora_A.weight and .lora_B.weight of its projections");
    }
    found.insert(key->module);
  }
  if (targets_by_pattern_) {
    std::set<std::string> ends;
    for (const std::string& module : found) ends.insert(module.substr(module.rfind('.') + 1));
    targets_.assign(ends.begin(), ends.end());
  }
  const std::set<std::string> expected = named_modules(modules, targets_, path.parent_path());
  for (const std::string& module : found) {
    if (!expected.contains(module)) {
      bad_checkpoint(path, tensor_label(kRoot + prefix + module + ".lora_A.weight"),
                     "a tensor of a module that target_modules does not name",
                     "modules that it names");
    }
  }
  const auto scale = static_cast<float>(alpha_ / static_cast<double>(rank_));
  for (const std::string& module : expected) {
    const MatrixShape shape = modules.at(module);
    const std::string start = kRoot + prefix + module;
    Update& update = updates_[module + ".weight"];
    update.a = read_matrix(file, start + ".lora_A.weight", {rank_, shape.cols});
    update.b = read_matrix(file, start + ".lora_B.weight", {shape.rows, rank_});
    update.view = {shape.rows, shape.cols, rank_, update.a, update.b, scale};
    parameters_ += static_cast<std::int64_t>(update.a.size() + update.b.size());
  }
}

const LowRank* Adapter::find(const std::string& tensor) const {
  const auto at = updates_.find(tensor);
  return at == updates_.end() ? nullptr : &at->second.view;
}

}  // namespace openjev
