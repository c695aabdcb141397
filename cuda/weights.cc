#include "cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/dtype.h"

namespace openjev::cuda {
namespace {

constexpr std::size_t kMostReaders = 8;
constexpr std::size_t kBytesPerReader = std::size_t{4} << 20;

// `count` elements of a host view's row-major memory as bfloat16. The source may be unaligned.
void read_elements(const std::byte* source, DType dtype, std::uint16_t* out, std::size_t count) {
  if (dtype == DType::kBF16) {
    std::memcpy(out, source, 2 * count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, source + 4 * i, 4);
    out[i] = f32_to_bf16(value);
  }
}

// Shares the elements out: page faults of a mapped file are what takes time.
void read_in_parallel(const std::byte* source, DType dtype, std::uint16_t* out, std::size_t count) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t readers =
      std::clamp<std::size_t>(2 * count / kBytesPerReader, 1, std::min(cores, kMostReaders));
  const std::size_t each = (count + readers - 1) / readers;
  std::vector<std::jthread> threads;
  for (std::size_t first = each; first < count; first += each) {
    threads.emplace_back([=] {
      read_elements(source + first * size_of(dtype), dtype, out + first,
                    std::min(each, count - first));
    });
  }
  read_elements(source, dtype, out, std::min(each, count));
}

}  // namespace

DeviceMatrix::DeviceMatrix(std::int64_t rows, std::int64_t cols)
    : memory_(allocate_device(static_cast<std::size_t>(rows * cols) * sizeof(std::uint16_t))),
      view_(View::contiguous(memory_.data(), DType::kBF16, rows, cols)) {}

WeightStream::WeightStream() : stream_(make_stream()) {}

WeightStream::Slot& WeightStream::next_slot() {
  Slot& slot = slots_[turn_];
  turn_ = (turn_ + 1) % kSlots;
  if (slot.memory.bytes() == 0) {
    slot.memory = allocate_pinned(kSlotBytes);
    slot.copied = make_event();
  } else {
    check_cuda(cudaEventSynchronize(slot.copied.get()), "copy weights");
  }
  return slot;
}

std::unique_ptr<DeviceMatrix> WeightStream::stack(std::span<const View> parts) {
  check(!parts.empty(), "a matrix needs at least one part");
  std::int64_t rows = 0;
  for (const View& part : parts) {
    check(part.cols == parts[0].cols && part.stride == part.cols && part.dtype != DType::kI32,
          "parts of one matrix differ in width or are not contiguous");
    rows += part.rows;
  }
  auto matrix = std::make_unique<DeviceMatrix>(rows, parts[0].cols);
  auto* to = static_cast<std::uint16_t*>(matrix->view().data);
  for (const View& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.data);
    auto left = static_cast<std::size_t>(part.rows * part.cols);
    while (left > 0) {
      Slot& slot = next_slot();
      const std::size_t count = std::min(left, kSlotBytes / sizeof(std::uint16_t));
      read_in_parallel(from, part.dtype, slot.memory.as<std::uint16_t>(), count);
      check_cuda(cudaMemcpyAsync(to, slot.memory.data(), count * sizeof(std::uint16_t),
                                 cudaMemcpyHostToDevice, stream_.get()),
                 "copy weights");
      check_cuda(cudaEventRecord(slot.copied.get(), stream_.get()), "copy weights");
      from += count * size_of(part.dtype);
      to += count;
      left -= count;
    }
  }
  return matrix;
}

void WeightStream::finish() {
  check_cuda(cudaStreamSynchronize(stream_.get()), "copy weights");
  for (Slot& slot : slots_) slot = {};
}

}  // namespace openjev::cuda
