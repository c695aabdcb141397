// Every operator of the CPU backend on numpy arrays, for tests. Outputs are written in place;
// float32 matrices may be column slices of larger arrays, whose strides are honoured.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "bindings/register.h"
#include "plan/batch_plan.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Ints = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;
using Longs = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Shape4 = std::array<std::int32_t, 4>;
// (tokens, offsets, vocab_size, prefix_length, keep_end_state)
using PlanArgs = std::tuple<Ints, Longs, std::int32_t, std::int32_t, bool>;

DType dtype_of(const py::array& array) {
  if (array.dtype().is(py::dtype::of<float>())) return DType::kF32;
  if (array.dtype().is(py::dtype::of<std::uint16_t>())) return DType::kBF16;
  fail(ErrorKind::kBadRequest, "array: found dtype ", std::string(py::str(array.dtype())),
       ", allowed are float32 and uint16 (bfloat16 bits)");
}

// A 1-D array is one row.
View view(const py::array& array) {
  const DType dtype = dtype_of(array);
  const auto item = static_cast<py::ssize_t>(size_of(dtype));
  if (array.ndim() < 1 || array.ndim() > 2 ||
      (array.size() > 0 && array.strides(array.ndim() - 1) != item)) {
    fail(ErrorKind::kBadRequest, "array: found ", array.ndim(),
         " dimensions, allowed are 1 or 2 with contiguous rows");
  }
  auto* data = const_cast<void*>(array.data());
  if (array.ndim() == 1) return View::contiguous(data, dtype, 1, array.shape(0));
  return {data, dtype, array.shape(0), array.shape(1), array.strides(0) / item};
}

View view(const std::optional<py::array>& array) { return array ? view(*array) : View{}; }

std::span<const std::int32_t> span_of(const Ints& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

DeltaShape shape_of(const Shape4& s) { return {s[0], s[1], s[2], s[3]}; }

BatchPlan plan_of(const PlanArgs& args) {
  const auto& [tokens, offsets, vocab, prefix, keep] = args;
  return BatchPlan(
      span_of(tokens), {offsets.data(), static_cast<std::size_t>(offsets.size())},
      {.vocab_size = vocab, .max_length = 0, .prefix_length = prefix, .keep_end_state = keep});
}

class OpsOnArrays {
 public:
  OpsOnArrays(const std::string& isa, int threads)
      : backend_(make_backend("cpu", {threads, isa})) {}

  void embed(const py::array& table, const Ints& token, const py::array& out) {
    ops().embed(*backend_->make_table(view(table)), span_of(token), view(out));
  }
  void rms_norm(const py::array& x, const py::array& weight, float eps, const py::array& out) {
    ops().rms_norm(view(x), view(weight), eps, view(out));
  }
  void add_rms_norm(const py::array& residual, const py::array& update, const py::array& weight,
                    float eps, const py::array& out) {
    ops().add_rms_norm(view(residual), view(update), view(weight), eps, view(out));
  }
  void matmul(const py::array& x, const py::array& weight, std::int64_t first,
              const py::array& out) {
    const View parts[] = {view(weight)};
    ops().matmul(view(x), *backend_->make_matrix(parts), first, view(out));
  }
  void delta_inputs(const Shape4& shape, const py::array& mixed, const py::array& beta_logit,
                    const py::array& decay_logit, const std::optional<py::array>& tail,
                    const py::array& conv, const py::array& a_log, const py::array& dt_bias,
                    const Ints& parent_row, const py::array& q, const py::array& k,
                    const py::array& v, const py::array& beta, const py::array& log_decay) {
    ops().delta_inputs({.shape = shape_of(shape),
                        .mixed = view(mixed),
                        .beta_logit = view(beta_logit),
                        .decay_logit = view(decay_logit),
                        .tail = view(tail),
                        .conv = view(conv),
                        .a_log = view(a_log),
                        .dt_bias = view(dt_bias),
                        .parent_row = span_of(parent_row),
                        .q = view(q),
                        .k = view(k),
                        .v = view(v),
                        .beta = view(beta),
                        .log_decay = view(log_decay)});
  }
  void delta_rule(const Shape4& shape, const PlanArgs& plan_args, const py::array& q,
                  const py::array& k, const py::array& v, const py::array& beta,
                  const py::array& log_decay, const std::optional<py::array>& start,
                  const py::array& states, const py::array& out) {
    const BatchPlan plan = plan_of(plan_args);
    ops().delta_rule({.shape = shape_of(shape),
                      .q = view(q),
                      .k = view(k),
                      .v = view(v),
                      .beta = view(beta),
                      .log_decay = view(log_decay),
                      .start = view(start),
                      .states = view(states),
                      .out = view(out)},
                     backend_->upload(plan.view()));
  }
  void gated_rms_norm(const py::array& x, const py::array& z, const py::array& weight, float eps,
                      const py::array& out) {
    ops().gated_rms_norm(view(x), view(z), view(weight), eps, view(out));
  }
  void norm_rope(const py::array& x, std::int32_t heads, std::int32_t head_stride,
                 const py::array& weight, const Ints& position, std::int32_t head_dim,
                 std::int32_t rotary_dim, double theta, float eps, const py::array& out) {
    const NormRopeJob jobs[] = {
        {view(x), heads, head_stride, view(weight), span_of(position), view(out)}};
    ops().norm_rope(jobs, {head_dim, rotary_dim, theta, eps});
  }
  void attention(const PlanArgs& plan_args, std::int32_t heads, std::int32_t kv_heads,
                 std::int32_t head_dim, const py::array& q, const py::array& k, const py::array& v,
                 const std::optional<py::array>& prefix_k, const std::optional<py::array>& prefix_v,
                 const py::array& gate, std::int32_t gate_stride, bool leaves,
                 const py::array& out) {
    const BatchPlan plan = plan_of(plan_args);
    const PlanView device = backend_->upload(plan.view());
    ops().attention({.heads = heads,
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .q = view(q),
                     .k = view(k),
                     .v = view(v),
                     .prefix_k = view(prefix_k),
                     .prefix_v = view(prefix_v),
                     .gate = view(gate),
                     .gate_stride = gate_stride,
                     .tiles = leaves ? device.leaf_tiles : device.row_tiles,
                     .out = view(out)},
                    device);
  }
  void silu_mul(const py::array& gate_up, const py::array& out) {
    ops().silu_mul(view(gate_up), view(out));
  }
  void gather_rows(const py::array& x, const Ints& rows, const py::array& out) {
    ops().gather_rows(view(x), span_of(rows), view(out));
  }
  void readout(const py::array& hidden, const py::array& weight,
               const std::optional<py::array>& bias, const py::array& out) {
    ops().readout(view(hidden), view(weight), view(bias), view(out));
  }

 private:
  Ops& ops() { return backend_->ops(); }

  std::unique_ptr<Backend> backend_;
};

}  // namespace

void register_ops(py::module_& module) {
  auto testing = module.attr("testing").cast<py::module_>();
  py::class_<OpsOnArrays>(testing, "ops", "The operators of cpp/backend/ops.h on the CPU.")
      .def(py::init<const std::string&, int>(), py::arg("isa") = "", py::arg("threads") = 1)
      .def("embed", &OpsOnArrays::embed)
      .def("rms_norm", &OpsOnArrays::rms_norm)
      .def("add_rms_norm", &OpsOnArrays::add_rms_norm)
      .def("matmul", &OpsOnArrays::matmul)
      .def("delta_inputs", &OpsOnArrays::delta_inputs)
      .def("delta_rule", &OpsOnArrays::delta_rule)
      .def("gated_rms_norm", &OpsOnArrays::gated_rms_norm)
      .def("norm_rope", &OpsOnArrays::norm_rope)
      .def("attention", &OpsOnArrays::attention)
      .def("silu_mul", &OpsOnArrays::silu_mul)
      .def("gather_rows", &OpsOnArrays::gather_rows)
      .def("readout", &OpsOnArrays::readout);
}

}  // namespace openjev
