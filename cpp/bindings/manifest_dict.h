// The manifest as the dict that Engine.info and read_manifest show.
#pragma once

#include <pybind11/pybind11.h>

#include "model/manifest.h"

namespace openjev {

// Keys: format, base {id, revision}, checkpoint {id, revision}, readout, outputs, temperature,
// token_ids, prompt_prefix, prompt_suffix, strip, max_length.
pybind11::dict manifest_dict(const Manifest& manifest);

// The other way round, with the keys `weight` (float32 [outputs, hidden_size]) and `bias` (float32
// [outputs], or empty) in addition.
Manifest manifest_of(const pybind11::dict& dict);

}  // namespace openjev
