// Adapters for Python: the reader that exports are written from, and one merge for tests.
#include "model/adapter.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bindings/device_arrays.h"
#include "bindings/register.h"
#include "io/json.h"
#include "model/merge.h"
#include "model/merged_reader.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Path = std::filesystem::path;
using Shape = std::vector<std::int64_t>;
using Floats = py::array_t<float, py::array::c_style>;

py::dict adapter_dict(const Adapter& adapter) {
  py::dict out;
  out["rank"] = adapter.rank();
  out["alpha"] = adapter.alpha();
  out["targets"] = adapter.targets();
  out["modules"] = adapter.modules();
  out["parameters"] = adapter.parameters();
  return out;
}

py::dict read_adapter(const Path& adapter, const Path& base) {
  std::optional<Adapter> found;
  {
    const py::gil_scoped_release unlocked;
    const Path file = base / "config.json";
    found.emplace(adapter, parse_model_config(read_text_file(file), file.string()));
  }
  return adapter_dict(*found);
}

// uint16 (bfloat16 bits) or float32, flat.
py::array read_rows(const MergedReader& reader, const std::string& name, const Shape& shape,
                    std::int64_t first, std::int64_t count, int threads) {
  std::int64_t width = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  const auto elements = static_cast<py::ssize_t>(count * width);
  py::array out = reader.dtype() == DType::kBF16 ? py::array(py::array_t<std::uint16_t>(elements))
                                                 : py::array(py::array_t<float>(elements));
  auto* bytes = static_cast<std::byte*>(out.mutable_data());
  const py::gil_scoped_release unlocked;
  reader.read(name, shape, {first, count}, bytes, threads);
  return out;
}

void register_reader(py::module_& module) {
  py::class_<MergedReader>(
      module, "MergedReader",
      "The tensors of a base model folder, with an adapter folder merged in, all of one dtype. "
      "Raises openjev.errors.CheckpointError.")
      .def(py::init<const Path&, const std::optional<Path>&>(), py::arg("base"),
           py::arg("adapter") = py::none(), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("dtype", [](const MergedReader& r) { return name_of(r.dtype()); })
      .def_property_readonly("adapter",
                             [](const MergedReader& r) -> py::object {
                               return r.adapter() ? py::object(adapter_dict(*r.adapter()))
                                                  : py::object(py::none());
                             })
      .def("read", &read_rows, py::arg("name"), py::arg("shape"), py::arg("first"),
           py::arg("count"), py::arg("threads") = 1,
           "Rows along the first dimension, flat: uint16 with bfloat16 bits, or float32.")
      .def(
          "first_not_finite",
          [](const MergedReader& r, const std::string& name, const Shape& shape) {
            return r.first_not_finite(name, shape);
          },
          py::arg("name"), py::arg("shape"), py::call_guard<py::gil_scoped_release>(),
          "Position of the first infinity or NaN of the base's tensor; None: there is none.")
      .def(
          "release",
          [](const MergedReader& r, const std::string& name, const Shape& shape) {
            r.release(name, shape);
          },
          py::arg("name"), py::arg("shape"), "Gives the tensor's pages back to the system.");
}

// weight: float32 or uint16 (bfloat16 bits) [rows, cols]; a [rank, cols], b [rows, rank].
py::array merge_array(const py::array& weight, const Floats& a, const Floats& b, float scale,
                      int threads) {
  const View view = host_view(weight);
  py::array out(weight.dtype(), std::vector<py::ssize_t>{weight.shape(0), weight.shape(1)});
  const LowRank update{.rows = b.shape(0),
                       .cols = a.shape(1),
                       .rank = a.shape(0),
                       .a = {a.data(), static_cast<std::size_t>(a.size())},
                       .b = {b.data(), static_cast<std::size_t>(b.size())},
                       .scale = scale};
  merge(view, update, out.mutable_data(), threads);
  return out;
}

}  // namespace

void register_adapter(py::module_& module) {
  module.def("read_adapter", &read_adapter, py::arg("adapter"), py::arg("base"),
             "rank, alpha, targets, modules and parameters of an adapter folder, checked in full "
             "against the config.json of a base folder. Raises openjev.errors.CheckpointError.");
  register_reader(module);
  auto testing = module.attr("testing").cast<py::module_>();
  testing.def("merge", &merge_array, py::arg("weight"), py::arg("a"), py::arg("b"),
              py::arg("scale"), py::arg("threads") = 1);
}

}  // namespace openjev
