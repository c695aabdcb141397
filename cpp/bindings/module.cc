#include <pybind11/pybind11.h>

#include "bindings/register.h"

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "The native runtime of openjev: engine, backends, checkpoint reading.";
  module.attr("__version__") = OPENJEV_VERSION;
  module.def_submodule("testing", "Access to single parts for tests; not a public interface.");
  openjev::register_errors(module);
  openjev::register_io(module);
  openjev::register_plan(module);
  openjev::register_engine(module);
  openjev::register_ops(module);
  openjev::register_weights(module);
  openjev::register_adapter(module);
}
