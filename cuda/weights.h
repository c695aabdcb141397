// Weights in device memory: one resident copy, bfloat16, row-major as in the checkpoint.
//
// A checkpoint's bytes go from its mapping through a ring of pinned buffers: while the copy engine
// moves one buffer to the device, host threads read the file into the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/ops.h"
#include "cuda/raii.h"

namespace openjev::cuda {

class DeviceMatrix final : public Matrix {
 public:
  // Uninitialized bfloat16 [rows, cols].
  DeviceMatrix(std::int64_t rows, std::int64_t cols);
  std::int64_t rows() const override { return view_.rows; }
  std::int64_t cols() const override { return view_.cols; }
  std::size_t bytes() const override { return memory_.bytes(); }
  const View& view() const { return view_; }

 private:
  DeviceMemoryBlock memory_;
  View view_;
};

class WeightStream {
 public:
  WeightStream();

  // Stacks the rows of host views (bfloat16, or float32 rounded to nearest even) into one matrix.
  // On return the views have been read; the copy to the device may still be under way.
  std::unique_ptr<DeviceMatrix> stack(std::span<const View> parts);

  // Waits until everything is on the device.
  void finish();

 private:
  static constexpr std::size_t kSlots = 3;
  static constexpr std::size_t kSlotBytes = std::size_t{64} << 20;

  struct Slot {
    PinnedMemoryBlock memory;
    Event copied;
  };

  Slot& next_slot();

  Stream stream_;
  std::array<Slot, kSlots> slots_;
  std::size_t turn_ = 0;
};

}  // namespace openjev::cuda
