#include "bindings/device_arrays.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"

namespace py = pybind11;

namespace openjev {
namespace {

constexpr unsigned char kNanByte = 0xFF;  // all bits set are a NaN in float32 and in bfloat16

DType dtype_of(const py::array& array) {
  if (array.dtype().is(py::dtype::of<float>())) return DType::kF32;
  if (array.dtype().is(py::dtype::of<std::uint16_t>())) return DType::kBF16;
  fail(ErrorKind::kBadRequest, "array: found dtype ", std::string(py::str(array.dtype())),
       ", allowed are float32 and uint16 (bfloat16 bits)");
}

// Elements from the first of a view to behind its last.
std::int64_t extent(const View& view) {
  return view.rows == 0 ? 0 : (view.rows - 1) * view.stride + view.cols;
}

struct Whole {
  float* data;
  std::int64_t count;
};

// The contiguous array that a view was cut out of; the view's own extent where it owns its memory
// or something else than an array does.
Whole whole_of(const py::array& array, const View& view) {
  const py::object base = array.base();
  if (base && py::isinstance<py::array>(base)) {
    const auto root = py::reinterpret_borrow<py::array>(base);
    if ((root.flags() & py::array::c_style) != 0) {
      return {static_cast<float*>(const_cast<void*>(root.data())),
              root.nbytes() / static_cast<py::ssize_t>(sizeof(float))};
    }
  }
  return {static_cast<float*>(view.data), extent(view)};
}

void to_device_dtype(const float* from, std::int64_t count, DType dtype, char* to) {
  if (dtype == DType::kBF16) {
    std::transform(from, from + count, reinterpret_cast<std::uint16_t*>(to), f32_to_bf16);
  } else if (dtype == DType::kF16) {
    std::transform(from, from + count, reinterpret_cast<std::uint16_t*>(to), f32_to_f16);
  } else if (count > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
}

void from_device_dtype(const char* from, std::int64_t count, DType dtype, float* to) {
  if (dtype == DType::kBF16) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
    std::transform(bits, bits + count, to, bf16_to_f32);
  } else if (dtype == DType::kF16) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
    std::transform(bits, bits + count, to, f16_to_f32);
  } else if (count > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
}

std::ptrdiff_t bytes_of(std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

View host_view(const py::array& array) {
  const DType dtype = dtype_of(array);
  const auto item = static_cast<py::ssize_t>(size_of(dtype));
  if (array.ndim() < 1 || array.ndim() > 2 ||
      (array.size() > 0 && array.strides(array.ndim() - 1) != item)) {
    fail(ErrorKind::kBadRequest, "array: found ", array.ndim(),
         " dimensions, allowed are 1 or 2 with contiguous rows");
  }
  auto* data = const_cast<void*>(array.data());
  if (array.ndim() == 1) return View::contiguous(data, dtype, 1, array.shape(0));
  const View view{data, dtype, array.shape(0), array.shape(1), array.strides(0) / item};
  if (view.rows > 1 && view.stride < view.cols) {
    fail(ErrorKind::kBadRequest, "array: found rows ", view.stride, " elements apart, allowed are ",
         view.cols, " (the columns) and more");
  }
  return view;
}

std::span<const std::int32_t> host_span(const Ints& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

View DeviceArrays::memory_of(const Argument& argument) const {
  return View::contiguous(argument.buffer->data(), argument.dtype, 1,
                          argument.count + argument.gap);
}

View DeviceArrays::add(const py::array& array, std::int64_t rows, DType dtype, bool output) {
  View view = host_view(array);
  if (view.dtype != DType::kF32) {
    fail(ErrorKind::kBadRequest, "array: found uint16, allowed for this argument is float32");
  }
  if (output) static_cast<void>(const_cast<py::array&>(array).mutable_data());  // writeable?
  const Whole whole = whole_of(array, view);
  const std::int64_t first = static_cast<float*>(view.data) - whole.data;
  const std::int64_t missing = std::max<std::int64_t>(rows - view.rows, 0);
  Argument argument{.host = whole.data,
                    .count = whole.count,
                    .gap_at = first + extent(view),
                    .gap = missing * view.stride,
                    .dtype = dtype,
                    .buffer = nullptr,
                    .staged = {},
                    .output = output};
  const std::int64_t size = bytes_of(argument.count + argument.gap, dtype);
  argument.staged.assign(static_cast<std::size_t>(size), static_cast<char>(kNanByte));
  argument.buffer = backend_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
  char* staged = argument.staged.data();
  to_device_dtype(argument.host, argument.gap_at, dtype, staged);
  to_device_dtype(argument.host + argument.gap_at, argument.count - argument.gap_at, dtype,
                  staged + bytes_of(argument.gap_at + argument.gap, dtype));
  if (size > 0) backend_.copy_in(memory_of(argument), staged);
  view.data = static_cast<char*>(argument.buffer->data()) + bytes_of(first, dtype);
  view.dtype = dtype;
  view.rows += missing;
  arguments_.push_back(std::move(argument));
  return view;
}

View DeviceArrays::activations(const py::array& array, std::int64_t rows) {
  return add(array, rows, backend_.activation_dtype(), false);
}
View DeviceArrays::activations(const std::optional<py::array>& array) {
  return array ? activations(*array) : View{};
}
View DeviceArrays::floats(const py::array& array, std::int64_t rows) {
  return add(array, rows, DType::kF32, false);
}
View DeviceArrays::floats(const std::optional<py::array>& array) {
  return array ? floats(*array) : View{};
}
View DeviceArrays::delta(const py::array& array, std::int64_t rows) {
  return add(array, rows, backend_.delta_dtype(), false);
}
View DeviceArrays::delta_out(const py::array& array) {
  return add(array, 0, backend_.delta_dtype(), true);
}
View DeviceArrays::activations_out(const py::array& array, std::int64_t rows) {
  return add(array, rows, backend_.activation_dtype(), true);
}
View DeviceArrays::floats_out(const py::array& array, std::int64_t rows) {
  return add(array, rows, DType::kF32, true);
}

std::span<const std::int32_t> DeviceArrays::ints(const Ints& array) {
  const std::span<const std::int32_t> values = host_span(array);
  if (values.empty()) return {};
  buffers_.push_back(backend_.allocate(values.size_bytes()));
  auto* data = static_cast<std::int32_t*>(buffers_.back()->data());
  backend_.copy_in(View::contiguous(data, DType::kI32, 1, static_cast<std::int64_t>(values.size())),
                   values.data());
  return {data, values.size()};
}

View DeviceArrays::scratch(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t count = (bytes + sizeof(float) - 1) / sizeof(float);
  const std::vector<unsigned char> poison(count * sizeof(float), kNanByte);
  buffers_.push_back(backend_.allocate(poison.size()));
  const View view =
      View::contiguous(buffers_.back()->data(), DType::kF32, 1, static_cast<std::int64_t>(count));
  backend_.copy_in(view, poison.data());
  return view;
}

void DeviceArrays::copy_back() {
  backend_.synchronize();
  for (Argument& a : arguments_) {
    if (!a.output || a.staged.empty()) continue;
    backend_.copy_out(a.staged.data(), memory_of(a));
    const char* staged = a.staged.data();
    from_device_dtype(staged, a.gap_at, a.dtype, a.host);
    from_device_dtype(staged + bytes_of(a.gap_at + a.gap, a.dtype), a.count - a.gap_at, a.dtype,
                      a.host + a.gap_at);
  }
}

}  // namespace openjev
