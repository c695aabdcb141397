// The numpy arguments of one operator call as memory of a backend.
//
// An argument is copied in together with the whole array that it is a view of: strides, alignment
// and what lies around it on the device are those of the caller. Outputs are copied back in the
// same way, so a write outside of one shows. Activations are float32 in numpy and have the
// backend's activation dtype in its memory, rounded to nearest even. An output must not share
// memory with another argument of the call.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace openjev {

using Ints = pybind11::array_t<std::int32_t, pybind11::array::c_style | pybind11::array::forcecast>;

// The array where it lies: float32, or uint16 holding bfloat16 bits, with contiguous rows; a 1-D
// array is one row. Throws kBadRequest otherwise.
View host_view(const pybind11::array& array);

std::span<const std::int32_t> host_span(const Ints& array);

class DeviceArrays {
 public:
  explicit DeviceArrays(Backend& backend) : backend_(backend) {}

  // Activations and float32 values that are read. With `rows` the view has that many: those beyond
  // the array's are NaN.
  View activations(const pybind11::array& array, std::int64_t rows = 0);
  View activations(const std::optional<pybind11::array>& array);
  View floats(const pybind11::array& array, std::int64_t rows = 0);
  View floats(const std::optional<pybind11::array>& array);
  // Queries, keys and values of the delta rule: Backend::delta_dtype.
  View delta(const pybind11::array& array, std::int64_t rows = 0);
  std::span<const std::int32_t> ints(const Ints& array);

  // The same for what is written, or read and written.
  View activations_out(const pybind11::array& array, std::int64_t rows = 0);
  View delta_out(const pybind11::array& array);
  View floats_out(const pybind11::array& array, std::int64_t rows = 0);

  // Memory for intermediate values, every element of it NaN.
  View scratch(std::size_t bytes);

  // Waits for the work queued so far and writes every output to its numpy array.
  void copy_back();

 private:
  // `count` float32 of the caller from `host`. The device has `gap` more elements from `gap_at` on:
  // the rows that the view has and the array has not.
  struct Argument {
    float* host;
    std::int64_t count, gap_at, gap;
    DType dtype;
    std::unique_ptr<Buffer> buffer;
    std::vector<char> staged;  // the device's bytes on the host
    bool output;
  };

  View add(const pybind11::array& array, std::int64_t rows, DType dtype, bool output);
  View memory_of(const Argument& argument) const;

  Backend& backend_;
  std::vector<Argument> arguments_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace openjev
