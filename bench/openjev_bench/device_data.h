// Values in the backend's memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "core/arena.h"

namespace openjev::bench {

// Fills a contiguous view (float32 or bfloat16) with seeded values, uniform in [-scale, scale).
void fill_uniform(Backend& backend, View view, std::uint64_t seed, float scale);

// Fills a contiguous view of int32 with seeded values in [0, below).
void fill_indices(Backend& backend, View view, std::uint64_t seed, std::int32_t below);

// Equal sets of buffers that are used in turn, so that what a launch reads was pushed out of the
// caches by the launches since it was last used.
template <class Views>
struct Sets {
  std::unique_ptr<Buffer> memory;
  std::vector<Views> each;
};

// At least two sets, and as many as it takes (within reason) until what one launch touches of each
// adds up to `cold_bytes`.
template <class Views>
Sets<Views> make_sets(Backend& backend, double touched_bytes, double cold_bytes,
                      const std::function<Views(Arena&)>& lay_out) {
  constexpr double kLeast = 2, kMost = 64;
  Arena counting;
  lay_out(counting);
  const auto count =
      static_cast<std::size_t>(std::clamp(std::ceil(cold_bytes / touched_bytes), kLeast, kMost));
  Sets<Views> out{backend.allocate(counting.used() * count), {}};
  Arena arena(out.memory->data(), out.memory->bytes());
  for (std::size_t i = 0; i < count; ++i) out.each.push_back(lay_out(arena));
  return out;
}

}  // namespace openjev::bench
