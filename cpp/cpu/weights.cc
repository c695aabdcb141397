#include "cpu/weights.h"

#include <cstring>
#include <vector>

#include "core/parallel.h"

namespace openjev::cpu {
namespace {

// One panel: out[k][j] = row j at k. Sources come from a mapped file and may be unaligned.
template <class T>
void pack_panel(std::span<const std::byte* const> rows, std::int64_t cols, int panel, T* out) {
  std::memset(out, 0, static_cast<std::size_t>(cols * panel) * sizeof(T));
  for (std::size_t j = 0; j < rows.size(); ++j) {
    for (std::int64_t k = 0; k < cols; ++k) {
      std::memcpy(out + k * panel + static_cast<std::int64_t>(j),
                  rows[j] + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
    }
  }
}

}  // namespace

PackedMatrix::PackedMatrix(std::span<const View> parts, int panel, int threads) {
  check(!parts.empty(), "a matrix needs at least one part");
  cols_ = parts[0].cols;
  dtype_ = parts[0].dtype;
  std::vector<const std::byte*> rows;
  for (const View& part : parts) {
    check(part.cols == cols_ && part.dtype == dtype_,
          "parts of one matrix differ in width or dtype");
    for (std::int64_t r = 0; r < part.rows; ++r) {
      rows.push_back(static_cast<const std::byte*>(part.data) +
                     static_cast<std::size_t>(r * part.stride) * size_of(dtype_));
    }
  }
  rows_ = static_cast<std::int64_t>(rows.size());
  const std::int64_t panels = (rows_ + panel - 1) / panel;
  const std::size_t panel_bytes = static_cast<std::size_t>(cols_ * panel) * size_of(dtype_);
  bytes_ = static_cast<std::size_t>(panels) * panel_bytes;
  data_ = allocate_host(bytes_);
  parallel_for(threads, panels, [&](std::int64_t p, int) {
    const std::int64_t first = p * panel;
    const std::span<const std::byte* const> some(
        rows.data() + first,
        static_cast<std::size_t>(std::min<std::int64_t>(panel, rows_ - first)));
    std::byte* out =
        static_cast<std::byte*>(data_.get()) + static_cast<std::size_t>(p) * panel_bytes;
    if (dtype_ == DType::kBF16) {
      pack_panel(some, cols_, panel, reinterpret_cast<std::uint16_t*>(out));
    } else {
      pack_panel(some, cols_, panel, reinterpret_cast<float*>(out));
    }
  });
}

void Table::copy_row(std::int64_t row, float* out) const {
  const std::size_t width = static_cast<std::size_t>(host_.cols);
  const std::byte* source = static_cast<const std::byte*>(host_.data) +
                            static_cast<std::size_t>(row * host_.stride) * size_of(host_.dtype);
  if (host_.dtype == DType::kF32) {
    std::memcpy(out, source, width * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < width; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, source + 2 * i, 2);
    out[i] = bf16_to_f32(bits);
  }
}

}  // namespace openjev::cpu
