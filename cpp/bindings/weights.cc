// Where a loaded model's weights lie, so that another framework on the same device can compute with
// the very same numbers.
#include "model/weights.h"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "bindings/register.h"
#include "engine/engine.h"

namespace py = pybind11;

namespace openjev {
namespace {

class Listing {
 public:
  explicit Listing(const Engine& engine) : engine_(engine) {}

  py::dict list() {
    const ModelWeights& weights = engine_.weights();
    matrix("embed_tokens", *weights.embedding);
    for (std::size_t i = 0; i < weights.layers.size(); ++i)
      layer("layers." + std::to_string(i) + ".", weights.layers[i]);
    add("norm", weights.final_norm.view());
    return out_;
  }

 private:
  void add(const std::string& name, const View& view) {
    out_[py::str(name)] = py::make_tuple(reinterpret_cast<std::uintptr_t>(view.data), view.rows,
                                         view.cols, name_of(view.dtype));
  }

  void matrix(const std::string& name, const Matrix& matrix) {
    const View view = engine_.backend().storage(matrix);
    if (view.data == nullptr) {
      fail(ErrorKind::kBadRequest, "weights of device ", engine_.backend().name(),
           ": matrices are packed for the kernels and cannot be shared");
    }
    add(name, view);
  }

  void layer(const std::string& p, const LayerWeights& w) {
    add(p + "input_layernorm", w.input_norm.view());
    add(p + "post_attention_layernorm", w.post_norm.view());
    if (w.kind == LayerKind::kLinear) {
      matrix(p + "linear_attn.in_proj", *w.linear.in_proj);
      matrix(p + "linear_attn.out_proj", *w.linear.out_proj);
      add(p + "linear_attn.conv1d", w.linear.conv.view());
      add(p + "linear_attn.A_log", w.linear.a_log.view());
      add(p + "linear_attn.dt_bias", w.linear.dt_bias.view());
      add(p + "linear_attn.norm", w.linear.norm.view());
    } else {
      matrix(p + "self_attn.qkv", *w.full.qkv);
      matrix(p + "self_attn.o_proj", *w.full.o_proj);
      add(p + "self_attn.q_norm", w.full.q_norm.view());
      add(p + "self_attn.k_norm", w.full.k_norm.view());
    }
    matrix(p + "mlp.gate_up", *w.gate_up);
    matrix(p + "mlp.down_proj", *w.down);
  }

  const Engine& engine_;
  py::dict out_;
};

}  // namespace

void register_weights(py::module_& module) {
  auto testing = module.attr("testing").cast<py::module_>();
  testing.def(
      "weights", [](const Engine& engine) { return Listing(engine).list(); }, py::arg("engine"),
      "{name: (address, rows, cols, dtype)} of the stacked matrices and float32 vectors in device "
      "memory; valid while the engine lives.");
}

}  // namespace openjev
