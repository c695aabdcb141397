// Test-only access to the batch plan.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "plan/batch_plan.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Tokens = py::array_t<std::int32_t, py::array::c_style>;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;

template <class T>
std::span<const T> vector_of(const py::array_t<T, py::array::c_style>& array, const char* name) {
  if (array.ndim() != 1) {
    fail(ErrorKind::kBadRequest, name, ": found ", array.ndim(), " dimensions, allowed is 1");
  }
  return {array.data(), static_cast<std::size_t>(array.size())};
}

py::array_t<std::int32_t> copy(std::span<const std::int32_t> values) {
  return py::array_t<std::int32_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

// Segments and tiles are four int32 each: an [n, 4] array in the order of their fields.
template <class Fields>
py::array_t<std::int32_t> copy_fields(std::span<const Fields> values) {
  static_assert(sizeof(Fields) == 4 * sizeof(std::int32_t));
  py::array_t<std::int32_t> out({static_cast<py::ssize_t>(values.size()), py::ssize_t{4}});
  if (!values.empty()) std::memcpy(out.mutable_data(), values.data(), values.size_bytes());
  return out;
}

py::dict to_dict(const BatchPlan& plan) {
  const PlanView view = plan.view();
  py::dict out;
  out["total_tokens"] = plan.total_tokens();
  out["rows"] = view.rows;
  out["chunks"] = view.chunks;
  out["leaves"] = view.leaves;
  out["states"] = view.states;
  out["prefix_length"] = view.prefix_length;
  out["token"] = copy(view.token);
  out["position"] = copy(view.position);
  out["parent_row"] = copy(view.parent_row);
  out["chunk_rows"] = copy(view.chunk_rows).reshape({view.chunks, kChunk});
  out["chunk_length"] = copy(view.chunk_length);
  out["chunk_owned"] = copy(view.chunk_owned);
  out["chunk_parent"] = copy(view.chunk_parent);
  out["segments"] = copy_fields(view.segments);
  out["level_begin"] = copy(view.level_begin);
  out["row_tiles"] = copy_fields(view.row_tiles);
  out["leaf_tiles"] = copy_fields(view.leaf_tiles);
  out["leaf_row"] = copy(view.leaf_row);
  out["leaf_position"] = copy(view.leaf_position);
  return out;
}

py::dict make_plan(const Tokens& tokens, const Offsets& offsets, std::int32_t vocab_size,
                   std::int32_t max_length, std::int32_t prefix_length, bool keep_end_state,
                   bool share) {
  const PlanOptions options{vocab_size, max_length, prefix_length, keep_end_state, share};
  return to_dict(BatchPlan(vector_of(tokens, "tokens"), vector_of(offsets, "offsets"), options));
}

std::vector<double> time_plan(const Tokens& tokens, const Offsets& offsets, std::int32_t vocab_size,
                              std::int32_t repeat) {
  const auto ids = vector_of(tokens, "tokens");
  const auto bounds = vector_of(offsets, "offsets");
  const PlanOptions options{.vocab_size = vocab_size};
  const py::gil_scoped_release release;
  std::vector<double> seconds;
  for (std::int32_t i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    {
      const BatchPlan plan(ids, bounds, options);
    }  // its release counts too
    const auto end = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(end - start).count());
  }
  return seconds;
}

}  // namespace

void register_plan(py::module_& m) {
  auto testing = m.attr("testing").cast<py::module_>();
  testing.def("plan", &make_plan, py::arg("tokens").noconvert(), py::arg("offsets").noconvert(),
              py::arg("vocab_size"), py::arg("max_length") = 0, py::arg("prefix_length") = 0,
              py::arg("keep_end_state") = false, py::arg("share") = true,
              "The batch plan of int32 tokens [total] and int64 offsets [n + 1]: every field of "
              "PlanView by name. Segments and tiles are int32 [n, 4].");
  testing.def("time_plan", &time_plan, py::arg("tokens").noconvert(),
              py::arg("offsets").noconvert(), py::arg("vocab_size"), py::arg("repeat"),
              "Seconds of each of `repeat` constructions of the batch plan.");
}

}  // namespace openjev
