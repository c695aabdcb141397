// What the operators' buffers are filled with and how their bytes are counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "openjev_bench/operators.h"

namespace openjev::bench {

// Seeds of values that must differ.
enum class Stream : std::uint64_t { kWeights = 1, kInputs, kUpdates, kIndices };

inline std::uint64_t seed_of(const OperatorContext& c, Stream stream, std::size_t set = 0) {
  constexpr std::uint64_t kMostSets = 1000;
  return hash_of(c.seed, static_cast<std::uint64_t>(stream) * kMostSets + set);
}

// Float32 weights around `centre`.
inline Parameter parameter(const OperatorContext& c, std::int64_t rows, std::int64_t cols,
                           float centre, float half_width) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = centre + uniform_of(seed_of(c, Stream::kWeights), i, half_width);
  return Parameter(c.backend, rows, cols, values);
}

inline double bytes_of(const View& view) {
  return static_cast<double>(view.rows * view.cols) * static_cast<double>(size_of(view.dtype));
}

template <class... Views>
double bytes_of(const View& first, const Views&... others) {
  return bytes_of(first) + bytes_of(others...);
}

inline std::int64_t count_layers(const ModelConfig& config) {
  return static_cast<std::int64_t>(config.layers.size());
}

inline std::int64_t count_layers(const ModelConfig& config, LayerKind kind) {
  return std::count(config.layers.begin(), config.layers.end(), kind);
}

}  // namespace openjev::bench
