#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "io/bad_checkpoint.h"

namespace openjev {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxRank = 64;
constexpr const char* kMetadataName = "__metadata__";

// Every element type of the format, with its bits. Tensors of types that the model cannot use may
// still be in the file.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 22> kDTypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"F64", 64},    {"C64", 64},
    {"I64", 64},        {"U64", 64},
}};

std::uint64_t bits_of(std::string_view dtype) {
  for (const auto& [name, bits] : kDTypes) {
    if (name == dtype) return bits;
  }
  return 0;
}

std::string dtype_names() {
  std::string out = "one of";
  for (const auto& [name, bits] : kDTypes) out.append(out == "one of" ? " " : ", ").append(name);
  return out;
}

// Offsets as the file gives them: from the start of the data.
struct Entry {
  std::string dtype;
  std::vector<std::uint64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Receives the parser's events. The place in the document decides what may come next, so nothing
// nests deeper than the format does, and memory is bounded by the length of the header.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::filesystem::path& file) : file_(file) {}

  std::map<std::string, Entry> take() { return std::move(entries_); }

  bool null() override { refuse_value("null"); }
  bool boolean(bool value) override { refuse_value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { refuse_value(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { refuse_value(text); }
  bool binary(binary_t&) override { refuse_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape && value <= std::numeric_limits<std::int64_t>::max()) {
      if (entry_->shape.size() == kMaxRank) {
        bad_checkpoint(file_, label(), "more than 64 dimensions", "at most 64");
      }
      entry_->shape.push_back(value);
    } else if (place_ == Place::kOffsets && entry_->offsets.size() < 2) {
      entry_->offsets.push_back(value);
    } else {
      refuse_value(std::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") refuse_value(text_label(value));
    entry_->dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader) {
      place_ = tensor_ == kMetadataName ? Place::kMetadata : Place::kTensor;
      field_.clear();
    } else {
      refuse_value("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::kHeader) {
      start_entry(name);
    } else if (place_ == Place::kMetadata) {
      field_ = name;
      if (!metadata_.insert(name).second) refuse_twice();
    } else {
      start_field(name);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_entry();
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      refuse_value("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && entry_->offsets.size() != 2) {
      bad_checkpoint(file_, label(), std::to_string(entry_->offsets.size()) + " elements",
                     "[begin, end]");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    bad_checkpoint(file_, "header", text_label(error.what()), "JSON text in UTF-8");
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

  std::string label() const {
    if (place_ == Place::kStart || place_ == Place::kEnd) return "header";
    const std::string name = tensor_ == kMetadataName ? tensor_ : tensor_label(tensor_);
    if (place_ == Place::kHeader || field_.empty()) return name;
    return name + (tensor_ == kMetadataName ? " " + text_label(field_) : " " + field_);
  }

  [[noreturn]] void refuse_value(const std::string& found) const {
    const char* allowed = "a JSON object";
    if (place_ == Place::kHeader && tensor_ != kMetadataName) {
      allowed = "an object with dtype, shape and data_offsets";
    } else if (place_ == Place::kMetadata) {
      allowed = "a string";
    } else if (place_ == Place::kTensor) {
      allowed = field_ == "dtype" ? "a string" : "a list of integers";
    } else if (place_ == Place::kShape) {
      allowed = "integers from 0 to 9223372036854775807";
    } else if (place_ == Place::kOffsets) {
      allowed = "two integers [begin, end], from 0 to 18446744073709551615";
    }
    bad_checkpoint(file_, label(), found, allowed);
  }

  [[noreturn]] void refuse_twice() const {
    bad_checkpoint(file_, label(), "the name twice", "each name once");
  }

  void start_entry(const std::string& name) {
    tensor_ = name;
    field_.clear();
    if (name == kMetadataName) {
      if (std::exchange(has_metadata_, true)) refuse_twice();
      return;
    }
    const auto [at, inserted] = entries_.try_emplace(name);
    if (!inserted) refuse_twice();
    entry_ = &at->second;
  }

  void start_field(const std::string& name) {
    bool* seen = name == "dtype"          ? &entry_->has_dtype
                 : name == "shape"        ? &entry_->has_shape
                 : name == "data_offsets" ? &entry_->has_offsets
                                          : nullptr;
    if (seen == nullptr) {
      bad_checkpoint(file_, tensor_label(tensor_), "the unknown field " + text_label(name),
                     "dtype, shape and data_offsets");
    }
    field_ = name;
    if (std::exchange(*seen, true)) refuse_twice();
  }

  void finish_entry() {
    const char* missing = !entry_->has_dtype     ? "dtype"
                          : !entry_->has_shape   ? "shape"
                          : !entry_->has_offsets ? "data_offsets"
                                                 : nullptr;
    if (missing != nullptr) {
      bad_checkpoint(file_, tensor_label(tensor_), "no field " + std::string(missing),
                     "dtype, shape and data_offsets");
    }
  }

  const std::filesystem::path& file_;
  std::map<std::string, Entry> entries_;
  std::set<std::string> metadata_;
  bool has_metadata_ = false;
  Place place_ = Place::kStart;
  std::string tensor_, field_;
  Entry* entry_ = nullptr;
};

// Bytes of a tensor: product of the shape times the size of an element, none of which may overflow.
std::uint64_t expected_bytes(const std::string& name, const Entry& entry,
                             const std::filesystem::path& file) {
  const std::uint64_t bits = bits_of(entry.dtype);
  if (bits == 0) {
    bad_checkpoint(file, tensor_label(name) + " dtype", text_label(entry.dtype), dtype_names());
  }
  std::uint64_t product = bits;
  for (const std::uint64_t dim : entry.shape) {
    if (dim != 0 && product > std::numeric_limits<std::uint64_t>::max() / dim) {
      bad_checkpoint(file, tensor_label(name) + " shape", "more bits than 64-bit numbers count",
                     "a tensor that fits the file");
    }
    product *= dim;
  }
  if (product % 8 != 0) {
    bad_checkpoint(file, tensor_label(name) + " shape", std::to_string(product) + " bits",
                   "whole bytes");
  }
  return product / 8;
}

std::string range(std::uint64_t begin, std::uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + "]";
}

void check_entry(const std::string& name, const Entry& entry, std::uint64_t data_bytes,
                 const std::filesystem::path& file) {
  const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  const std::string where = tensor_label(name) + " data_offsets";
  if (begin > end) bad_checkpoint(file, where, range(begin, end), "begin <= end");
  if (end > data_bytes) {
    bad_checkpoint(file, where, range(begin, end),
                   "at most " + std::to_string(data_bytes) + ", the bytes of data in the file");
  }
  const std::uint64_t bytes = expected_bytes(name, entry, file);
  if (end - begin != bytes) {
    bad_checkpoint(file, where, range(begin, end) + ", " + std::to_string(end - begin) + " bytes",
                   std::to_string(bytes) + " bytes by dtype and shape");
  }
}

// The format wants every byte of the data to belong to exactly one tensor.
void check_tiling(const std::map<std::string, Entry>& entries, std::uint64_t data_bytes,
                  const std::filesystem::path& file) {
  std::vector<const std::pair<const std::string, Entry>*> order;
  order.reserve(entries.size());
  for (const auto& item : entries) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return left->second.offsets < right->second.offsets;
  });
  std::uint64_t end = 0;
  const std::string* previous = nullptr;
  for (const auto* item : order) {
    const auto& offsets = item->second.offsets;
    if (offsets[0] != end) {
      const std::string reason = offsets[0] > end ? ": the bytes before it belong to no tensor"
                                                  : ": it overlaps " + tensor_label(*previous);
      bad_checkpoint(file, tensor_label(item->first) + " data_offsets",
                     range(offsets[0], offsets[1]), "begin " + std::to_string(end) + reason);
    }
    end = offsets[1];
    previous = &item->first;
  }
  if (end != data_bytes) {
    bad_checkpoint(file, "data", std::to_string(data_bytes) + " bytes",
                   std::to_string(end) + ", where the last tensor ends");
  }
}

}  // namespace

std::map<std::string, TensorInfo> parse_safetensors_header(std::string_view header,
                                                           std::size_t data_begin,
                                                           std::size_t file_size,
                                                           const std::filesystem::path& file) {
  if (header.empty() || header.front() != '{') {
    bad_checkpoint(file, "header", text_label(header.substr(0, 16)),
                   "a JSON object from byte 8 on");
  }
  // The parser takes a zero byte for the end of its input; what follows one must not be skipped
  // silently.
  if (const std::size_t zero = header.find('\0'); zero != std::string_view::npos) {
    bad_checkpoint(file, "header", "a zero byte at " + std::to_string(zero), "JSON text");
  }
  HeaderReader reader(file);
  Json::sax_parse(header.begin(), header.end(), &reader);
  const std::map<std::string, Entry> entries = reader.take();

  const std::uint64_t data_bytes = file_size - data_begin;
  for (const auto& [name, entry] : entries) check_entry(name, entry, data_bytes, file);
  check_tiling(entries, data_bytes, file);

  std::map<std::string, TensorInfo> out;
  for (const auto& [name, entry] : entries) {
    TensorInfo info;
    info.dtype = entry.dtype;
    for (const std::uint64_t dim : entry.shape)
      info.shape.push_back(static_cast<std::int64_t>(dim));
    info.begin = data_begin + entry.offsets[0];
    info.end = data_begin + entry.offsets[1];
    out.emplace_hint(out.end(), name, std::move(info));
  }
  return out;
}

}  // namespace openjev
