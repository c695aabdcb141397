// Engine and backends for Python: numpy in, numpy out, the GIL released while the engine works.
#include "engine/engine.h"

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "bindings/manifest_dict.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace openjev {
namespace {

using Tokens = py::array_t<std::int32_t, py::array::c_style>;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;
using PrefixHandle = std::shared_ptr<Prefix>;

template <class T>
std::span<const T> span_of(const py::array_t<T, py::array::c_style>& array, const char* name) {
  if (array.ndim() != 1) {
    fail(ErrorKind::kBadRequest, name, ": found ", array.ndim(), " dimensions, allowed is 1");
  }
  return {array.data(), static_cast<std::size_t>(array.size())};
}

Floats to_matrix(const std::vector<float>& values, py::ssize_t cols) {
  const auto rows = static_cast<py::ssize_t>(values.size()) / cols;
  Floats out({rows, cols});
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

TokenBatch batch_of(const Tokens& tokens, const Offsets& offsets, bool share) {
  return {span_of(tokens, "tokens"), span_of(offsets, "offsets"), share};
}

Floats score(Engine& engine, const Tokens& tokens, const Offsets& offsets, bool share,
             const PrefixHandle& prefix) {
  const TokenBatch batch = batch_of(tokens, offsets, share);
  std::vector<float> logits;
  {
    const py::gil_scoped_release unlocked;
    logits = engine.score(batch, prefix.get());
  }
  return to_matrix(logits, engine.manifest().outputs);
}

Floats last_hidden(Engine& engine, const Tokens& tokens, const Offsets& offsets, bool share,
                   const PrefixHandle& prefix) {
  const TokenBatch batch = batch_of(tokens, offsets, share);
  std::vector<float> hidden;
  {
    const py::gil_scoped_release unlocked;
    hidden = engine.last_hidden(batch, prefix.get());
  }
  return to_matrix(hidden, engine.config().hidden_size);
}

PrefixHandle keep_prefix(Engine& engine, const Tokens& tokens) {
  const auto ids = span_of(tokens, "tokens");
  const py::gil_scoped_release unlocked;
  return engine.keep_prefix(ids);
}

py::dict info(const Engine& engine) {
  const ModelConfig& config = engine.config();
  py::dict out = manifest_dict(engine.manifest());
  out["device"] = engine.backend().name();
  out["device_detail"] = engine.backend().describe();
  out["threads"] = engine.backend().threads();
  out["weight_dtype"] = name_of(engine.weights().dtype);
  out["weight_bytes"] = engine.weights().bytes;
  out["parameters"] = engine.weights().parameters;
  out["layers"] = config.layers.size();
  out["hidden_size"] = config.hidden_size;
  out["vocab_size"] = config.vocab_size;
  out["max_position_embeddings"] = config.max_position_embeddings;
  return out;
}

py::dict stats(const Engine& engine) {
  const EngineStats s = engine.stats();
  py::dict out;
  out["calls"] = s.calls;
  out["sequences"] = s.sequences;
  out["tokens"] = s.tokens;
  out["rows"] = s.rows;
  out["seconds"] = s.seconds;
  return out;
}

// A Python callback, called with the GIL by the thread that loads.
Progress progress_of(const py::object& callback) {
  if (callback.is_none()) return {};
  // The caller's frame holds the callback while the engine loads, so a plain handle will do.
  return [held = py::handle(callback)](std::int64_t done, std::int64_t total,
                                       const std::string& what) {
    const py::gil_scoped_acquire locked;
    held(done, total, what);
  };
}

std::unique_ptr<Engine> make_engine(const std::filesystem::path& path, const std::string& device,
                                    int threads, const std::string& cpu_isa, int device_index,
                                    const std::string& graph_mode, int graph_entries,
                                    const std::string& matmul_mode, const std::string& tuning_file,
                                    const std::string& load_format, std::uint64_t seed,
                                    const std::filesystem::path& adapter,
                                    const py::object& manifest, const py::object& progress) {
  const EngineOptions options{.device = device,
                              .backend = {.threads = threads,
                                          .cpu_isa = cpu_isa,
                                          .device_index = device_index,
                                          .graph_mode = graph_mode,
                                          .graph_entries = graph_entries,
                                          .matmul_mode = matmul_mode,
                                          .tuning_file = tuning_file},
                              .progress = progress_of(progress),
                              .load_format = load_format,
                              .seed = seed};
  if (!manifest.is_none()) {
    AdaptedModel model{path, adapter, manifest_of(manifest.cast<py::dict>())};
    const py::gil_scoped_release unlocked;
    return std::make_unique<Engine>(std::move(model), options);
  }
  const py::gil_scoped_release unlocked;
  return std::make_unique<Engine>(path, options);
}

void warm_up(Engine& engine, const std::vector<std::int32_t>& lengths, const py::object& progress) {
  const Progress steps = progress_of(progress);
  const py::gil_scoped_release unlocked;
  engine.warm_up(lengths, steps);
}

py::dict graph_stats(const Engine& engine) {
  const GraphStats s = engine.graph_stats();
  py::dict out;
  out["hits"] = s.hits;
  out["misses"] = s.misses;
  out["captures"] = s.captures;
  out["evictions"] = s.evictions;
  out["fallbacks"] = s.fallbacks;
  out["entries"] = s.entries;
  out["bytes"] = s.bytes;
  return out;
}

py::dict memory(const Engine& engine) {
  const DeviceMemory now = engine.backend().memory();
  const MemoryPlan plan = engine.memory_plan();
  py::dict out;
  out["free"] = now.free;
  out["total"] = now.total;
  out["planned_weights"] = plan.weights;
  out["planned_workspace"] = plan.workspace;
  out["planned_graphs"] = plan.graphs;
  out["free_before"] = plan.free;
  return out;
}

}  // namespace

void register_engine(py::module_& module) {
  py::class_<Prefix, PrefixHandle>(module, "Prefix",
                                   "What a pass over a multiple of 64 tokens left behind.");

  py::class_<Engine>(module, "Engine", "A loaded decision model on one device; calls take turns.")
      .def(py::init(&make_engine), py::arg("path"), py::kw_only(), py::arg("device") = "cpu",
           py::arg("threads") = 0, py::arg("cpu_isa") = "", py::arg("device_index") = 0,
           py::arg("graph_mode") = "bucketed", py::arg("graph_entries") = 0,
           py::arg("matmul_mode") = "invariant", py::arg("tuning_file") = "",
           py::arg("load_format") = "auto", py::arg("seed") = 0,
           py::arg("adapter") = std::filesystem::path(), py::arg("manifest") = py::none(),
           py::arg("progress") = py::none(),
           "Loads an export folder; or, with a manifest (the dict of read_manifest, with the "
           "readout's weight and bias), a base model's folder, merging the adapter's. threads: 0 "
           "takes all cores. progress(bytes done, bytes in all, "
           "what). The rest is explained at BackendOptions and EngineOptions.")
      .def_property_readonly("info", &info, "Sizes, device and manifest of the model, as a dict.")
      .def("score", &score, py::arg("tokens"), py::arg("offsets"), py::arg("share") = true,
           py::arg("prefix") = PrefixHandle(),
           "float32 logits [n, outputs] of the sequences tokens[offsets[i]:offsets[i + 1]]; int32 "
           "and int64 arrays.")
      .def("last_hidden", &last_hidden, py::arg("tokens"), py::arg("offsets"),
           py::arg("share") = true, py::arg("prefix") = PrefixHandle(),
           "float32 final-norm vectors [n, hidden_size] of the last tokens.")
      .def("keep_prefix", &keep_prefix, py::arg("tokens"), py::keep_alive<0, 1>(),
           "Runs a multiple of 64 tokens; sequences scored with the result continue after them.")
      .def(
          "warm_up", &warm_up, py::arg("lengths") = std::vector<std::int32_t>{},
          py::arg("progress") = py::none(),
          "Prepares for prompts of these lengths (empty: what the device finds worth it): measures "
          "matmuls, records passes. progress(steps done, steps in all, what).")
      .def(
          "record_missed",
          [](Engine& engine) {
            const py::gil_scoped_release unlocked;
            return engine.record_missed();
          },
          "Records one missed plan shape, between requests; False when none is left.")
      .def("graph_stats", &graph_stats,
           "hits, misses, captures, evictions, fallbacks, entries and bytes of recorded passes.")
      .def("memory", &memory,
           "Device bytes: free and total now, and the plan made before loading. 0 on the CPU.")
      .def("stats", &stats,
           "Totals since loading: calls, sequences, tokens before sharing, rows after, seconds.");

  module.def(
      "backends",
      [] {
        py::list out;
        for (const BackendStatus& b : backends())
          out.append(py::make_tuple(b.name, b.usable, b.detail));
        return out;
      },
      "[(name, usable, detail)]: what can run here, and why the others cannot.");
}

}  // namespace openjev
