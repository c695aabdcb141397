// openjev::Error -> the Python class of its kind, in openjev.errors.
#include <pybind11/pybind11.h>

#include <exception>
#include <string_view>

#include "bindings/register.h"
#include "core/error.h"

namespace py = pybind11;

namespace openjev {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadRequest:
      return "BadRequestError";
    case ErrorKind::kBadCheckpoint:
      return "CheckpointError";
    case ErrorKind::kOutOfLimits:
      return "LimitError";
    case ErrorKind::kDeviceUnavailable:
      return "DeviceUnavailableError";
    case ErrorKind::kOutOfMemory:
      return "OutOfDeviceMemoryError";
    case ErrorKind::kInternal:
      break;
  }
  return "InternalError";
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const py::object type = py::module_::import("openjev.errors").attr(class_of(error.kind()));
    // A path in the message may hold bytes that are not UTF-8.
    const std::string_view what = error.what();
    const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
        what.data(), static_cast<py::ssize_t>(what.size()), "backslashreplace"));
    PyErr_SetObject(type.ptr(), text.ptr());
  }
}

}  // namespace

void register_errors(py::module_&) { py::register_local_exception_translator(&translate); }

}  // namespace openjev
