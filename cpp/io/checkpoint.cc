#include "io/checkpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "io/bad_checkpoint.h"
#include "io/file_name.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace openjev {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kSuffix = ".safetensors";
constexpr const char* kProbe = "embed_tokens.weight";
constexpr std::array<const char*, 4> kPrefixes = {"model.language_model.", "model.",
                                                  "language_model.", ""};

using ShardOf = std::unordered_map<std::string, std::string>;  // tensor -> file name

ShardOf read_index(const std::filesystem::path& file) {
  const Json json = parse_json(read_text_file(file), file);
  const Json& map = Fields(json, file).require("weight_map", "an object: tensor -> file");
  if (!map.is_object()) {
    bad_checkpoint(file, "weight_map", shown(map), "an object: tensor -> file");
  }
  ShardOf out;
  for (const auto& [tensor, shard] : map.items()) {
    const std::string where = "weight_map " + tensor_label(tensor);
    if (!shard.is_string()) bad_checkpoint(file, where, shown(shard), "a file name");
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(name) || !name.ends_with(kSuffix)) {
      bad_checkpoint(file, where, text_label(name),
                     "the plain name of a .safetensors file in this folder");
    }
    out.emplace(tensor, name);
  }
  return out;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (const std::int64_t dim : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(dim);
  return out + "]";
}

}  // namespace

struct Checkpoint::Impl {
  std::filesystem::path folder;
  std::string config_text;
  std::string prefix;
  std::filesystem::path listing;  // the file that says which tensors there are
  ShardOf shard_of;
  std::mutex mutex;                             // guards `open`
  std::map<std::string, SafetensorsFile> open;  // by file name; entries are never removed

  void list_tensors();
  void find_prefix();
  const SafetensorsFile& shard(const std::string& name);
};

void Checkpoint::Impl::list_tensors() {
  std::error_code error;
  if (std::filesystem::exists(folder / kSingleFile, error)) {
    listing = folder / kSingleFile;
    const SafetensorsFile& file = open.try_emplace(kSingleFile, listing).first->second;
    for (const auto& [tensor, info] : file.tensors()) shard_of.emplace(tensor, kSingleFile);
  } else if (std::filesystem::exists(folder / kIndexFile, error)) {
    listing = folder / kIndexFile;
    shard_of = read_index(listing);
  } else {
    bad_checkpoint(folder, "weights", "neither file",
                   std::string(kSingleFile) + " or " + kIndexFile);
  }
}

void Checkpoint::Impl::find_prefix() {
  for (const char* candidate : kPrefixes) {
    if (shard_of.contains(std::string(candidate) + kProbe)) {
      prefix = candidate;
      return;
    }
  }
  bad_checkpoint(
      listing, tensor_label(kProbe), "no such tensor",
      "it, with the prefix \"model.language_model.\", \"model.\", \"language_model.\" or "
      "none");
}

// Opens a shard when it is first asked for, so one that holds only unused tensors is never touched.
const SafetensorsFile& Checkpoint::Impl::shard(const std::string& name) {
  const std::lock_guard lock(mutex);
  if (const auto at = open.find(name); at != open.end()) return at->second;
  SafetensorsFile file(folder / name);
  for (const auto& [tensor, info] : file.tensors()) {
    const auto listed = shard_of.find(tensor);
    if (listed != shard_of.end() && listed->second != name) {
      bad_checkpoint(file.path(), tensor_label(tensor), "a second one in this file",
                     "only the one in " + text_label(listed->second) + ", as the index says");
    }
  }
  return open.emplace(name, std::move(file)).first->second;
}

Checkpoint::Checkpoint(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    bad_checkpoint(folder, "checkpoint", "no such folder",
                   "a folder with config.json and safetensors files");
  }
  impl_->config_text = read_text_file(folder / "config.json");
  impl_->list_tensors();
  impl_->find_prefix();
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const std::filesystem::path& Checkpoint::folder() const { return impl_->folder; }
const std::string& Checkpoint::config_text() const { return impl_->config_text; }
const std::string& Checkpoint::prefix() const { return impl_->prefix; }

HostTensor Checkpoint::tensor(const std::string& name, std::span<const std::int64_t> shape) const {
  const std::string full = impl_->prefix + name;
  const std::string where = tensor_label(full);
  const std::string wanted = "F32 or BF16 of shape " + shape_text(shape);
  const auto listed = impl_->shard_of.find(full);
  if (listed == impl_->shard_of.end()) {
    bad_checkpoint(impl_->listing, where, "no such tensor", wanted);
  }
  const SafetensorsFile& file = impl_->shard(listed->second);
  const auto at = file.tensors().find(full);
  if (at == file.tensors().end()) {
    bad_checkpoint(file.path(), where, "no such tensor, though the index puts it here", wanted);
  }
  const TensorInfo& info = at->second;
  if (info.dtype != "F32" && info.dtype != "BF16") {
    bad_checkpoint(file.path(), where, info.dtype + " of shape " + shape_text(info.shape), wanted);
  }
  if (!std::ranges::equal(info.shape, shape)) {
    bad_checkpoint(file.path(), where, "shape " + shape_text(info.shape), shape_text(shape));
  }
  return {full, file.path(), info.dtype == "F32" ? DType::kF32 : DType::kBF16, info.shape,
          file.bytes(info)};
}

void Checkpoint::release(const HostTensor& tensor) const {
  const SafetensorsFile& file = impl_->shard(tensor.file.filename().string());
  file.release(file.tensors().at(tensor.name));
}

}  // namespace openjev
