#include "bindings/manifest_dict.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace openjev {
namespace {

py::dict identity_dict(const Identity& identity) {
  return py::dict(py::arg("id") = identity.id, py::arg("revision") = identity.revision);
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

}  // namespace openjev
