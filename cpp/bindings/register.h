// What module.cc calls: one registration function a subject, each in the file of that name.
#pragma once

#include <pybind11/pybind11.h>

namespace openjev {

void register_errors(pybind11::module_& module);
void register_io(pybind11::module_& module);
void register_plan(pybind11::module_& module);
void register_engine(pybind11::module_& module);
void register_ops(pybind11::module_& module);
void register_weights(pybind11::module_& module);
void register_adapter(pybind11::module_& module);

}  // namespace openjev
