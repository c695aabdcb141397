#include "model/manifest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <unordered_set>

#include "core/random.h"
#include "io/bad_checkpoint.h"
#include "io/file_name.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace openjev {
namespace {

constexpr const char* kDecisionFile = "decision.json";
constexpr const char* kDecisionFormat = "qwen35-decision/1";
constexpr const char* kReadoutFile = "readout.safetensors";
constexpr const char* kExportFile = "open_jev_export.json";
constexpr const char* kExportFormat = "open-jev-text-merged/1";
constexpr double kMaxTemperature = 1e6;
constexpr std::int64_t kMaxLength = 262144;
constexpr std::size_t kMaxLetters = 26;
constexpr std::int64_t kMaxTokenId = (1 << 24) - 1;

void require_format(const Fields& fields, const std::string& format) {
  if (const std::string found = fields.text("format"); found != format) {
    fields.refuse("format", text_label(found), text_label(format));
  }
}

Identity read_identity(const Fields& fields, const std::string& name) {
  if (fields.find(name) == nullptr) return {};
  const Fields identity = fields.object(name);
  return {identity.text("id"), identity.text_or("revision", "")};
}

std::vector<std::int32_t> read_token_ids(const Fields& readout) {
  const Json& list = readout.array("token_ids");
  if (list.empty() || list.size() > kMaxLetters) {
    readout.refuse("token_ids", shown(list), "1 to 26 token ids");
  }
  std::vector<std::int32_t> out;
  std::unordered_set<std::int32_t> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = "token_ids[" + std::to_string(i) + "]";
    if (!integer_in(list[i], 0, kMaxTokenId)) {
      readout.refuse(where, shown(list[i]), "an integer from 0 to " + std::to_string(kMaxTokenId));
    }
    out.push_back(list[i].get<std::int32_t>());
    if (!seen.insert(out.back()).second) {
      readout.refuse(where, "token " + std::to_string(out.back()) + " again", "each token once");
    }
  }
  return out;
}

void read_readout(const Fields& readout, Manifest& out) {
  const std::string kind = readout.text("kind");
  if (kind == "scalar") {
    if (const Json* ids = readout.find("token_ids")) {
      readout.refuse("token_ids", shown(*ids), "no such field with kind \"scalar\"");
    }
    out.readout = ReadoutKind::kScalar;
    out.outputs = 1;
    out.temperature = readout.positive("temperature", kMaxTemperature);
  } else if (kind == "letters") {
    const Json* temperature = readout.find("temperature");
    if (temperature != nullptr && *temperature != 1) {
      readout.refuse("temperature", shown(*temperature),
                     "1 or no such field with kind \"letters\"");
    }
    out.readout = ReadoutKind::kLetters;
    out.token_ids = read_token_ids(readout);
    out.outputs = static_cast<std::int32_t>(out.token_ids.size());
  } else {
    readout.refuse("kind", text_label(kind), "\"scalar\" or \"letters\"");
  }
}

void check_hash(const Fields& entry) {
  const std::string hash = entry.text_or("sha256", std::string(64, '0'));
  if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos) {
    entry.refuse("sha256", text_label(hash), "64 lower-case hexadecimal digits");
  }
}

// An interrupted copy or download shows in the sizes.
void check_files(const Fields& fields, const std::filesystem::path& folder) {
  const Json& files = fields.require("files", "an object: file name -> {bytes, sha256}");
  const Fields list = fields.object("files");
  for (const auto& [name, entry] : files.items()) {
    if (!is_plain_file_name(name)) {
      list.refuse(text_label(name), "a path", "the plain name of a file in this folder");
    }
    const Fields file = list.object(name);
    const std::int64_t bytes = file.integer("bytes", 0, std::numeric_limits<std::int64_t>::max());
    check_hash(file);
    std::error_code error;
    const bool regular = std::filesystem::is_regular_file(folder / name, error);
    const std::uintmax_t size = regular ? std::filesystem::file_size(folder / name, error) : 0;
    if (!regular || error || size != static_cast<std::uintmax_t>(bytes)) {
      bad_checkpoint(folder / name, "file",
                     regular && !error ? std::to_string(size) + " bytes" : "no such file",
                     std::to_string(bytes) + " bytes, as " + kDecisionFile + " says");
    }
  }
}

std::vector<float> read_floats(const SafetensorsFile& file, const std::string& name,
                               const std::vector<std::int64_t>& shape) {
  const auto at = file.tensors().find(name);
  std::string wanted = "F32 of shape [" + std::to_string(shape[0]);
  if (shape.size() > 1) wanted += ", " + std::to_string(shape[1]);
  wanted += "]";
  if (at == file.tensors().end()) {
    bad_checkpoint(file.path(), tensor_label(name), "no such tensor", wanted);
  }
  const TensorInfo& info = at->second;
  if (info.dtype != "F32" || info.shape != shape) {
    std::string found = info.dtype + " of shape [";
    for (std::size_t i = 0; i < info.shape.size(); ++i) {
      found += (i > 0 ? ", " : "") + std::to_string(info.shape[i]);
    }
    bad_checkpoint(file.path(), tensor_label(name), found + "]", wanted);
  }
  const std::span<const std::byte> bytes = file.bytes(info);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      bad_checkpoint(file.path(), tensor_label(name),
                     std::to_string(out[i]) + " at element " + std::to_string(i), "finite numbers");
    }
  }
  return out;
}

void read_weights(const std::filesystem::path& folder, std::int32_t hidden_size, Manifest& out) {
  const SafetensorsFile file(folder / kReadoutFile);
  for (const auto& [name, info] : file.tensors()) {
    if (name != "weight" && name != "bias") {
      bad_checkpoint(file.path(), tensor_label(name), "an unknown tensor", "weight and bias");
    }
  }
  out.weight = read_floats(file, "weight", {out.outputs, hidden_size});
  if (file.tensors().contains("bias")) out.bias = read_floats(file, "bias", {out.outputs});
}

Manifest read_decision(const std::filesystem::path& folder, std::int32_t hidden_size) {
  const std::filesystem::path file = folder / kDecisionFile;
  const Json json = parse_json(read_text_file(file), file);
  const Fields fields(json, file);
  require_format(fields, kDecisionFormat);

  Manifest out;
  out.format = kDecisionFormat;
  out.base = read_identity(fields, "base");
  out.checkpoint = read_identity(fields, "checkpoint");
  read_readout(fields.object("readout"), out);
  const Fields prompt = fields.object("prompt");
  out.prompt_prefix = prompt.text("prefix");
  out.prompt_suffix = prompt.text("suffix");
  out.strip = prompt.boolean_or("strip", true);
  out.max_length = static_cast<std::int32_t>(fields.integer("max_length", 1, kMaxLength));
  check_files(fields, folder);
  read_weights(folder, hidden_size, out);
  return out;
}

float finite_float(const Fields& fields, const std::string& where, const Json& value) {
  const bool fits =
      value.is_number() && std::abs(value.get<double>()) <= std::numeric_limits<float>::max();
  if (!fits) fields.refuse(where, shown(value), "a number in the range of float32");
  return value.get<float>();
}

Manifest read_export(const std::filesystem::path& folder, std::int32_t hidden_size) {
  const std::filesystem::path file = folder / kExportFile;
  const Json json = parse_json(read_text_file(file), file);
  const Fields fields(json, file);
  require_format(fields, kExportFormat);

  Manifest out;
  out.format = kExportFormat;
  out.base = {fields.text("model_id"), fields.text("base_revision")};
  out.checkpoint = {"", fields.text("checkpoint_revision")};
  out.outputs = 1;
  out.temperature = fields.positive("temperature", kMaxTemperature);
  out.max_length = static_cast<std::int32_t>(fields.integer("max_length", 1, kMaxLength));
  out.prompt_prefix = fields.text("chat_prefix");
  out.prompt_suffix = fields.text("chat_suffix");
  const Json& weight = fields.array("head_weight");
  if (weight.size() != static_cast<std::size_t>(hidden_size)) {
    fields.refuse("head_weight", shown(weight),
                  std::to_string(hidden_size) + ", the model's hidden size");
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    out.weight.push_back(finite_float(fields, "head_weight[" + std::to_string(i) + "]", weight[i]));
  }
  out.bias = {finite_float(fields, "head_bias", fields.require("head_bias", "a number"))};
  return out;
}

}  // namespace

Manifest read_manifest(const std::filesystem::path& folder, std::int32_t hidden_size) {
  static_assert(std::endian::native == std::endian::little, "safetensors data are little endian");
  std::error_code error;
  if (std::filesystem::exists(folder / kDecisionFile, error)) {
    return read_decision(folder, hidden_size);
  }
  if (std::filesystem::exists(folder / kExportFile, error)) return read_export(folder, hidden_size);
  bad_checkpoint(folder, "decision manifest",
                 std::string("neither ") + kDecisionFile + " nor " + kExportFile +
                     " (a base model, which has no readout to decide with)",
                 std::string("an exported decision checkpoint: ") + kDecisionFile + " (format " +
                     kDecisionFormat + ") with " + kReadoutFile + ", or " + kExportFile +
                     " (format " + kExportFormat + ")");
}

bool has_manifest(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kDecisionFile) ||
         std::filesystem::exists(folder / kExportFile);
}

void check_readout(const Manifest& manifest, std::int32_t hidden_size) {
  const std::filesystem::path name = manifest.checkpoint.id;
  const auto outputs = static_cast<std::size_t>(manifest.outputs);
  const std::size_t wanted = outputs * static_cast<std::size_t>(hidden_size);
  if (manifest.outputs < 1 || manifest.weight.size() != wanted) {
    bad_checkpoint(name, "readout weight", std::to_string(manifest.weight.size()) + " numbers",
                   std::to_string(manifest.outputs) + " times the model's hidden size of " +
                       std::to_string(hidden_size));
  }
  if (!manifest.bias.empty() && manifest.bias.size() != outputs) {
    bad_checkpoint(name, "readout bias", std::to_string(manifest.bias.size()) + " numbers",
                   std::to_string(outputs));
  }
  if (!(manifest.temperature > 0) || manifest.temperature > kMaxTemperature) {
    bad_checkpoint(name, "temperature", manifest.temperature, "greater than 0, at most 1e6");
  }
  if (manifest.max_length < 1 || manifest.max_length > kMaxLength) {
    bad_checkpoint(name, "max_length", manifest.max_length, "1 to " + std::to_string(kMaxLength));
  }
}

// Final-norm vectors have elements of size 1, so weights of variance 1 / H give logits of size 1.
Manifest seeded_manifest(const ModelConfig& config, std::uint64_t seed) {
  constexpr std::int32_t kLength = 4096;
  Manifest out;
  out.format = "seeded";
  out.max_length = std::min(kLength, config.max_position_embeddings);
  out.outputs = 1;
  const float scale = std::sqrt(3.0f / static_cast<float>(config.hidden_size));
  for (std::int32_t i = 0; i < config.hidden_size; ++i)
    out.weight.push_back(uniform_of(~seed, static_cast<std::uint64_t>(i), scale));
  out.bias.assign(1, 0.0f);
  return out;
}

}  // namespace openjev
