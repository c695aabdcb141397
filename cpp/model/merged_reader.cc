#include "model/merged_reader.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/tensor.h"
#include "io/bad_checkpoint.h"
#include "model/merge.h"

namespace openjev {
namespace {

// The two that the published files store in F32 beside BF16 matrices.
bool may_be_wider(const std::string& name) {
  return name.ends_with("linear_attn.A_log") || name.ends_with("linear_attn.norm.weight");
}

std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::int64_t out = 1;
  for (const std::int64_t dim : shape) out *= dim;
  return out;
}

void round_to_bf16(std::span<const std::byte> floats, std::byte* out) {
  for (std::size_t i = 0; i < floats.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + sizeof(float) * i, sizeof(float));
    const std::uint16_t bits = f32_to_bf16(value);
    std::memcpy(out + sizeof(bits) * i, &bits, sizeof(bits));
  }
}

DType dtype_of(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::vector<std::int64_t> shape = {config.vocab_size, config.hidden_size};
  return checkpoint.tensor("embed_tokens.weight", shape).dtype;
}

}  // namespace

MergedReader::MergedReader(const std::filesystem::path& base,
                           const std::optional<std::filesystem::path>& adapter)
    : checkpoint_(base),
      config_(parse_model_config(checkpoint_.config_text(), (base / "config.json").string())),
      dtype_(dtype_of(checkpoint_, config_)) {
  if (adapter) adapter_.emplace(*adapter, config_);
}

HostTensor MergedReader::tensor(const std::string& name,
                                std::span<const std::int64_t> shape) const {
  HostTensor found = checkpoint_.tensor(name, shape);
  if (found.dtype != dtype_ && !(may_be_wider(name) && found.dtype == DType::kF32)) {
    bad_checkpoint(found.file, tensor_label(found.name), name_of(found.dtype),
                   std::string(name_of(dtype_)) + ", the dtype of embed_tokens.weight");
  }
  return found;
}

void MergedReader::read(const std::string& name, std::span<const std::int64_t> shape, RowRange rows,
                        std::byte* out, int threads) const {
  const HostTensor found = tensor(name, shape);
  const std::int64_t all = shape.empty() ? 0 : shape[0];
  check(rows.first >= 0 && rows.count >= 0 && rows.first + rows.count <= all, name, ": rows ",
        rows.first, "+", rows.count, " of ", all);
  const std::int64_t width = all == 0 ? 0 : elements_of(shape) / all;
  const std::size_t item = size_of(found.dtype);
  const auto bytes = found.bytes.subspan(static_cast<std::size_t>(rows.first * width) * item,
                                         static_cast<std::size_t>(rows.count * width) * item);
  if (found.dtype != dtype_) {
    round_to_bf16(bytes, out);
  } else if (const LowRank* update = adapter_ ? adapter_->find(name) : nullptr) {
    const View view =
        View::contiguous(const_cast<std::byte*>(bytes.data()), found.dtype, rows.count, width);
    merge(view, update->some_rows(rows.first, rows.count), out, threads);
  } else {
    std::memcpy(out, bytes.data(), bytes.size());
  }
}

std::optional<std::int64_t> MergedReader::first_not_finite(
    const std::string& name, std::span<const std::int64_t> shape) const {
  const HostTensor found = tensor(name, shape);
  const std::size_t item = size_of(found.dtype);
  // An infinity and a NaN have every bit of the exponent set; it lies in the upper half of either
  // dtype.
  for (std::size_t i = 0; i < found.bytes.size() / item; ++i) {
    std::uint16_t high = 0;
    std::memcpy(&high, found.bytes.data() + i * item + item - sizeof(high), sizeof(high));
    if ((high & 0x7f80u) == 0x7f80u) return static_cast<std::int64_t>(i);
  }
  return std::nullopt;
}

void MergedReader::release(const std::string& name, std::span<const std::int64_t> shape) const {
  checkpoint_.release(checkpoint_.tensor(name, shape));
}

}  // namespace openjev
