// Checkpoint files for Python: read_manifest, and test access to the readers.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "bindings/manifest_dict.h"
#include "bindings/register.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/manifest.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Path = std::filesystem::path;

py::bytes to_bytes(std::span<const std::byte> bytes) {
  return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Manifest load_manifest(const Path& folder) {
  const py::gil_scoped_release unlocked;
  const Path file = folder / "config.json";
  const ModelConfig config = parse_model_config(read_text_file(file), file.string());
  return read_manifest(folder, config.hidden_size);
}

// {tensor: (dtype, shape, begin, end)}
py::dict tensor_list(const SafetensorsFile& file) {
  py::dict out;
  for (const auto& [name, info] : file.tensors()) {
    out[py::str(name)] =
        py::make_tuple(info.dtype, py::tuple(py::cast(info.shape)), info.begin, info.end);
  }
  return out;
}

py::dict config_dict(const ModelConfig& config) {
  py::list layers;
  for (const LayerKind kind : config.layers) {
    layers.append(kind == LayerKind::kFull ? "full" : "linear");
  }
  py::dict out;
  out["vocab_size"] = config.vocab_size;
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.intermediate_size;
  out["max_position_embeddings"] = config.max_position_embeddings;
  out["heads"] = config.heads;
  out["kv_heads"] = config.kv_heads;
  out["head_dim"] = config.head_dim;
  out["rotary_dim"] = config.rotary_dim;
  out["rope_theta"] = config.rope_theta;
  out["rms_norm_eps"] = config.rms_norm_eps;
  out["delta"] = py::make_tuple(config.delta.key_heads, config.delta.value_heads,
                                config.delta.key_dim, config.delta.value_dim);
  out["tied_embeddings"] = config.tied_embeddings;
  out["layers"] = layers;
  return out;
}

py::tuple checkpoint_tensor(const Path& folder, const std::string& name,
                            const std::vector<std::int64_t>& shape) {
  const Checkpoint checkpoint(folder);
  const HostTensor tensor = checkpoint.tensor(name, shape);
  return py::make_tuple(name_of(tensor.dtype), to_bytes(tensor.bytes));
}

void register_testing(py::module_& testing) {
  testing.def("safetensors_list",
              [](const Path& path) { return tensor_list(SafetensorsFile(path)); });
  py::class_<SafetensorsFile>(testing, "SafetensorsFile")
      .def(py::init<const Path&>(), py::arg("path"))
      .def("tensors", &tensor_list)
      .def("read",
           [](const SafetensorsFile& file, const std::string& name) {
             return to_bytes(file.bytes(file.tensors().at(name)));
           })
      .def("release", [](const SafetensorsFile& file, const std::string& name) {
        file.release(file.tensors().at(name));
      });
  testing.def("checkpoint_tensor", &checkpoint_tensor, py::arg("folder"), py::arg("name"),
              py::arg("shape"));
  testing.def("checkpoint_prefix", [](const Path& folder) { return Checkpoint(folder).prefix(); });
  testing.def("parse_config", [](const std::string& text) {
    return config_dict(parse_model_config(text, "config.json"));
  });
  // ({manifest}, weight, bias)
  testing.def("manifest_weights", [](const Path& folder, std::int32_t hidden_size) {
    const Manifest manifest = read_manifest(folder, hidden_size);
    return py::make_tuple(manifest_dict(manifest), manifest.weight, manifest.bias);
  });
}

}  // namespace

void register_io(py::module_& m) {
  m.def(
      "read_manifest", [](const Path& path) { return manifest_dict(load_manifest(path)); },
      py::arg("path"),
      "The decision manifest of a checkpoint folder, validated, without opening the backbone's "
      "weights.\n"
      "Raises openjev.errors.CheckpointError.");
  auto testing = m.attr("testing").cast<py::module_>();
  register_testing(testing);
}

}  // namespace openjev
