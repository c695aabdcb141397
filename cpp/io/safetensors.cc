#include "io/safetensors.h"

#include <string_view>
#include <utility>

#include "io/bad_checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors_header.h"

namespace openjev {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The length of the header, from the file's first eight bytes (little endian).
std::size_t header_length(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  if (bytes.size() < kLengthBytes) {
    bad_checkpoint(path, "file", std::to_string(bytes.size()) + " bytes", "8 or more");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    bad_checkpoint(path, "header length", length, kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    bad_checkpoint(path, "header length", length,
                   "at most " + std::to_string(bytes.size() - kLengthBytes) +
                       ", the bytes that follow in the file");
  }
  return static_cast<std::size_t>(length);
}

}  // namespace

struct SafetensorsFile::Impl {
  std::filesystem::path path;
  MappedFile file;
  std::map<std::string, TensorInfo> tensors;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : impl_(std::make_unique<Impl>(Impl{path, MappedFile(path), {}})) {
  const std::span<const std::byte> bytes = impl_->file.bytes();
  const std::size_t length = header_length(bytes, path);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  impl_->tensors = parse_safetensors_header(header, kLengthBytes + length, bytes.size(), path);
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::filesystem::path& SafetensorsFile::path() const { return impl_->path; }

const std::map<std::string, TensorInfo>& SafetensorsFile::tensors() const { return impl_->tensors; }

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  const std::span<const std::byte> all = impl_->file.bytes();
  check(tensor.begin <= tensor.end && tensor.end <= all.size(), impl_->path.string(),
        ": tensor bytes [", tensor.begin, ", ", tensor.end, ") of ", all.size());
  return all.subspan(tensor.begin, tensor.end - tensor.begin);
}

void SafetensorsFile::release(const TensorInfo& tensor) const {
  impl_->file.release(tensor.begin, tensor.end);
}

}  // namespace openjev
