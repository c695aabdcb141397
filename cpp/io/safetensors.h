// One safetensors file, memory-mapped: u64 header length, JSON header, data. Every number of the
// header is checked before it is used; a hostile file gives an Error that names file, tensor, found
// and allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace openjev {

struct TensorInfo {
  std::string dtype;  // as written: "BF16", "F32", ...
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;  // bytes, from the start of the file
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::filesystem::path& path() const;
  const std::map<std::string, TensorInfo>& tensors() const;

  // The bytes of a tensor; valid while the file is open. No alignment is promised.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  // Tells the system that these pages are not needed any more (they stay readable).
  void release(const TensorInfo& tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openjev
