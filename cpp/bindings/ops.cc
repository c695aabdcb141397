// Every operator of a backend on numpy arrays, for tests. Outputs are written in place; float32
// matrices may be column slices of larger arrays, whose strides are honoured (device_arrays.h).
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "bindings/device_arrays.h"
#include "bindings/register.h"
#include "plan/batch_plan.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Longs = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Shape4 = std::array<std::int32_t, 4>;
// (tokens, offsets, vocab_size, prefix_length, keep_end_state)
using PlanArgs = std::tuple<Ints, Longs, std::int32_t, std::int32_t, bool>;

DeltaShape shape_of(const Shape4& s) { return {s[0], s[1], s[2], s[3]}; }

BatchPlan plan_of(const PlanArgs& args) {
  const auto& [tokens, offsets, vocab, prefix, keep] = args;
  return BatchPlan(
      host_span(tokens), {offsets.data(), static_cast<std::size_t>(offsets.size())},
      {.vocab_size = vocab, .max_length = 0, .prefix_length = prefix, .keep_end_state = keep});
}

class OpsOnArrays {
 public:
  OpsOnArrays(const std::string& isa, int threads, const std::string& device, int matmul_parts)
      : backend_(make_backend(device, options(isa, threads, matmul_parts))) {}

  std::string device() const { return backend_->name(); }
  std::string activation_dtype() const { return name_of(backend_->activation_dtype()); }

  void embed(const py::array& table, const Ints& token, const py::array& out) {
    const auto matrix = backend_->make_table(host_view(table));
    backend_->finish_weights();
    run([&](DeviceArrays& on) { ops().embed(*matrix, on.ints(token), on.activations_out(out)); });
  }
  void rms_norm(const py::array& x, const py::array& weight, float eps, const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().rms_norm(on.activations(x), on.floats(weight), eps, on.activations_out(out));
    });
  }
  void add_rms_norm(const py::array& residual, const py::array& update, const py::array& weight,
                    float eps, const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().add_rms_norm(on.activations_out(residual), on.activations(update), on.floats(weight),
                         eps, on.activations_out(out));
    });
  }
  void matmul(const py::array& x, const py::array& weight, std::int64_t first,
              const py::array& out) {
    const View parts[] = {host_view(weight)};
    const auto matrix = backend_->make_matrix(parts);
    backend_->finish_weights();
    run([&](DeviceArrays& on) {
      ops().matmul(on.activations(x), *matrix, first, on.activations_out(out));
    });
  }
  void matmul_add_rms_norm(const py::array& x, const py::array& weight, const py::array& residual,
                           const py::array& update, const py::array& norm_weight, float eps,
                           const py::array& out) {
    const View parts[] = {host_view(weight)};
    const auto matrix = backend_->make_matrix(parts);
    backend_->finish_weights();
    run([&](DeviceArrays& on) {
      ops().matmul_add_rms_norm(on.activations(x), *matrix, on.activations_out(residual),
                                on.activations_out(update), on.floats(norm_weight), eps,
                                on.activations_out(out));
    });
  }
  void delta_inputs(const Shape4& shape, const py::array& mixed, const py::array& beta_logit,
                    const py::array& decay_logit, const std::optional<py::array>& tail,
                    const py::array& conv, const py::array& a_log, const py::array& dt_bias,
                    const Ints& parent_row, const py::array& q, const py::array& k,
                    const py::array& v, const py::array& beta, const py::array& log_decay) {
    run([&](DeviceArrays& on) {
      ops().delta_inputs({.shape = shape_of(shape),
                          .mixed = on.activations(mixed),
                          .beta_logit = on.activations(beta_logit),
                          .decay_logit = on.activations(decay_logit),
                          .tail = on.activations(tail),
                          .conv = on.floats(conv),
                          .a_log = on.floats(a_log),
                          .dt_bias = on.floats(dt_bias),
                          .parent_row = on.ints(parent_row),
                          .q = on.delta_out(q),
                          .k = on.delta_out(k),
                          .v = on.delta_out(v),
                          .beta = on.floats_out(beta),
                          .log_decay = on.floats_out(log_decay)});
    });
  }
  void delta_rule(const Shape4& shape, const PlanArgs& plan_args, const py::array& q,
                  const py::array& k, const py::array& v, const py::array& beta,
                  const py::array& log_decay, const std::optional<py::array>& start,
                  const py::array& states, const py::array& out, bool pad) {
    const BatchPlan host = plan_of(plan_args);
    const PlanView plan = backend_->upload(host.view(), pad);
    run([&](DeviceArrays& on) {
      ops().delta_rule({.shape = shape_of(shape),
                        .q = on.delta(q, plan.rows),
                        .k = on.delta(k, plan.rows),
                        .v = on.delta(v, plan.rows),
                        .beta = on.floats(beta, plan.rows),
                        .log_decay = on.floats(log_decay, plan.rows),
                        .start = on.floats(start),
                        .states = on.floats_out(states, plan.states),
                        .out = on.activations_out(out, plan.rows),
                        .scratch = on.scratch(ops().delta_scratch_bytes(shape_of(shape), plan))},
                       plan);
    });
  }
  void gated_rms_norm(const py::array& x, const py::array& z, const py::array& weight, float eps,
                      const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().gated_rms_norm(on.activations(x), on.activations(z), on.floats(weight), eps,
                           on.activations_out(out));
    });
  }
  void norm_rope(const py::array& x, std::int32_t heads, std::int32_t head_stride,
                 const py::array& weight, const Ints& position, std::int32_t head_dim,
                 std::int32_t rotary_dim, double theta, float eps, const py::array& out) {
    run([&](DeviceArrays& on) {
      const NormRopeJob jobs[] = {{on.activations(x), heads, head_stride, on.floats(weight),
                                   on.ints(position), on.activations_out(out)}};
      ops().norm_rope(jobs, {head_dim, rotary_dim, theta, eps});
    });
  }
  void attention(const PlanArgs& plan_args, std::int32_t heads, std::int32_t kv_heads,
                 std::int32_t head_dim, const py::array& q, const py::array& k, const py::array& v,
                 const std::optional<py::array>& prefix_k, const std::optional<py::array>& prefix_v,
                 const py::array& gate, std::int32_t gate_stride, bool leaves, const py::array& out,
                 bool pad) {
    const BatchPlan host = plan_of(plan_args);
    const PlanView plan = backend_->upload(host.view(), pad);
    const std::int32_t queries = leaves ? plan.leaves : plan.rows;
    run([&](DeviceArrays& on) {
      ops().attention({.heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = head_dim,
                       .q = on.activations(q, queries),
                       .k = on.activations(k, plan.rows),
                       .v = on.activations(v, plan.rows),
                       .prefix_k = on.activations(prefix_k),
                       .prefix_v = on.activations(prefix_v),
                       .gate = on.activations(gate, queries),
                       .gate_stride = gate_stride,
                       .tiles = leaves ? plan.leaf_tiles : plan.row_tiles,
                       .out = on.activations_out(out, queries)},
                      plan);
    });
  }
  void silu_mul(const py::array& gate_up, const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().silu_mul(on.activations(gate_up), on.activations_out(out));
    });
  }
  void gather_rows(const py::array& x, const Ints& rows, const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().gather_rows(on.activations(x), on.ints(rows), on.activations_out(out));
    });
  }
  void readout(const py::array& hidden, const py::array& weight,
               const std::optional<py::array>& bias, const py::array& out) {
    run([&](DeviceArrays& on) {
      ops().readout(on.activations(hidden), on.floats(weight), on.floats(bias), on.floats_out(out));
    });
  }

 private:
  static BackendOptions options(const std::string& isa, int threads, int matmul_parts) {
    BackendOptions out;
    out.threads = threads;
    out.cpu_isa = isa;
    out.matmul_parts = matmul_parts;
    return out;
  }

  Ops& ops() { return backend_->ops(); }

  // `call` runs one operator on what it takes from the arrays given to it.
  template <class Call>
  void run(const Call& call) {
    DeviceArrays arrays(*backend_);
    call(arrays);
    arrays.copy_back();
  }

  std::unique_ptr<Backend> backend_;
};

}  // namespace

void register_ops(py::module_& module) {
  auto testing = module.attr("testing").cast<py::module_>();
  py::class_<OpsOnArrays>(testing, "ops", "The operators of cpp/backend/ops.h on one device.")
      .def(py::init<const std::string&, int, const std::string&, int>(), py::arg("isa") = "",
           py::arg("threads") = 1, py::arg("device") = "cpu", py::arg("matmul_parts") = 0)
      .def_property_readonly("device", &OpsOnArrays::device)
      .def_property_readonly("activation_dtype", &OpsOnArrays::activation_dtype, "F32 or BF16.")
      .def("embed", &OpsOnArrays::embed)
      .def("rms_norm", &OpsOnArrays::rms_norm)
      .def("add_rms_norm", &OpsOnArrays::add_rms_norm)
      .def("matmul", &OpsOnArrays::matmul)
      .def("matmul_add_rms_norm", &OpsOnArrays::matmul_add_rms_norm)
      .def("delta_inputs", &OpsOnArrays::delta_inputs)
      .def("delta_rule", &OpsOnArrays::delta_rule, py::arg("shape"), py::arg("plan"), py::arg("q"),
           py::arg("k"), py::arg("v"), py::arg("beta"), py::arg("log_decay"), py::arg("start"),
           py::arg("states"), py::arg("out"), py::arg("pad") = false,
           "pad: rows, segments and tiles rounded up as for a recorded pass.")
      .def("gated_rms_norm", &OpsOnArrays::gated_rms_norm)
      .def("norm_rope", &OpsOnArrays::norm_rope)
      .def("attention", &OpsOnArrays::attention, py::arg("plan"), py::arg("heads"),
           py::arg("kv_heads"), py::arg("head_dim"), py::arg("q"), py::arg("k"), py::arg("v"),
           py::arg("prefix_k"), py::arg("prefix_v"), py::arg("gate"), py::arg("gate_stride"),
           py::arg("leaves"), py::arg("out"), py::arg("pad") = false,
           "pad: rows, segments and tiles rounded up as for a recorded pass.")
      .def("silu_mul", &OpsOnArrays::silu_mul)
      .def("gather_rows", &OpsOnArrays::gather_rows)
      .def("readout", &OpsOnArrays::readout);
}

}  // namespace openjev
