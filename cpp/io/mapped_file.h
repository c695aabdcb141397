// A whole file mapped for reading. Pages are loaded when they are touched. The file must not shrink
// while it is mapped: the system answers a read beyond the new end with SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace openjev {

class MappedFile {
 public:
  // Throws kBadCheckpoint when `path` is no readable regular file, kOutOfMemory when it cannot be
  // mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

  // Drops the pages that lie wholly inside bytes [begin, end). They are read from the file again
  // when touched.
  void release(std::size_t begin, std::size_t end) const;

 private:
  std::span<const std::byte> bytes_;  // empty: nothing is mapped
};

}  // namespace openjev
