#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "io/bad_checkpoint.h"

namespace openjev {
namespace {

class Descriptor {
 public:
  // O_NONBLOCK: opening a FIFO must not wait for its writer. It changes nothing for a regular file.
  explicit Descriptor(const std::filesystem::path& path)
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }

 private:
  int value_;
};

void* address_of(std::span<const std::byte> bytes) {
  // The system calls take void*, though nothing is ever written through it.
  return const_cast<std::byte*>(bytes.data());
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path);
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    bad_checkpoint(path, "file", std::generic_category().message(errno), "a readable regular file");
  }
  if (!S_ISREG(status.st_mode)) {
    bad_checkpoint(path, "file", "no regular file", "a readable regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // mmap refuses an empty range
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    fail(ErrorKind::kOutOfMemory, path.string(), ": mapping ", size,
         " bytes: ", std::generic_category().message(errno));
  }
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(address_of(bytes_), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::release(std::size_t begin, std::size_t end) const {
  check(begin <= end && end <= bytes_.size(), "release of bytes [", begin, ", ", end, ") of ",
        bytes_.size());
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = (begin + page - 1) / page * page;
  const std::size_t last = end / page * page;
  // A hint: the pages stay readable whether or not the system takes it.
  if (first < last) ::madvise(address_of(bytes_.subspan(first)), last - first, MADV_DONTNEED);
}

}  // namespace openjev
