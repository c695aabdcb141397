#include "bindings/manifest_dict.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace py = pybind11;

namespace openjev {
namespace {

py::dict identity_dict(const Identity& identity) {
  return py::dict(py::arg("id") = identity.id, py::arg("revision") = identity.revision);
}

Identity identity_of(const py::handle& dict) {
  return {dict["id"].cast<std::string>(), dict["revision"].cast<std::string>()};
}

std::vector<float> floats_of(const py::handle& array) {
  const auto values = array.cast<py::array_t<float, py::array::c_style | py::array::forcecast>>();
  return {values.data(), values.data() + values.size()};
}

}  // namespace

py::dict manifest_dict(const Manifest& manifest) {
  py::dict out;
  out["format"] = manifest.format;
  out["base"] = identity_dict(manifest.base);
  out["checkpoint"] = identity_dict(manifest.checkpoint);
  out["readout"] = name_of(manifest.readout);
  out["outputs"] = manifest.outputs;
  out["temperature"] = manifest.temperature;
  out["token_ids"] = manifest.token_ids;
  out["prompt_prefix"] = manifest.prompt_prefix;
  out["prompt_suffix"] = manifest.prompt_suffix;
  out["strip"] = manifest.strip;
  out["max_length"] = manifest.max_length;
  return out;
}

Manifest manifest_of(const py::dict& dict) {
  Manifest out;
  out.format = dict["format"].cast<std::string>();
  out.base = identity_of(dict["base"]);
  out.checkpoint = identity_of(dict["checkpoint"]);
  out.readout = dict["readout"].cast<std::string>() == name_of(ReadoutKind::kLetters)
                    ? ReadoutKind::kLetters
                    : ReadoutKind::kScalar;
  out.outputs = dict["outputs"].cast<std::int32_t>();
  out.temperature = dict["temperature"].cast<double>();
  out.token_ids = dict["token_ids"].cast<std::vector<std::int32_t>>();
  out.prompt_prefix = dict["prompt_prefix"].cast<std::string>();
  out.prompt_suffix = dict["prompt_suffix"].cast<std::string>();
  out.strip = dict["strip"].cast<bool>();
  out.max_length = dict["max_length"].cast<std::int32_t>();
  out.weight = floats_of(dict["weight"]);
  out.bias = floats_of(dict["bias"]);
  return out;
}

}  // namespace openjev
