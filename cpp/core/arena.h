// A bump allocator over one block of memory it does not own. Without a block it only counts, so the
// same code first measures and then lays out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace openjev {

class Arena {
 public:
  static constexpr std::size_t kAlign = 256;  // bytes; what a device's widest copies want

  Arena() = default;  // counts only
  Arena(void* base, std::size_t bytes) : base_(static_cast<char*>(base)), bytes_(bytes) {}

  View matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
    const std::size_t size = static_cast<std::size_t>(rows * cols) * size_of(dtype);
    void* data = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (size + kAlign - 1) / kAlign * kAlign;
    check(base_ == nullptr || used_ <= bytes_, "arena of ", bytes_, " bytes is too small: ", used_,
          " needed");
    return View::contiguous(data, dtype, rows, cols);
  }

  std::size_t used() const { return used_; }

 private:
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
};

}  // namespace openjev
