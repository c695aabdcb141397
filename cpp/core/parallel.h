// The only place that names OpenMP.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace openjev {

// Calls body(index, thread) for every index in [0, count), in any order, on up to `threads`
// threads; thread numbers lie in [0, threads). `body` must not throw.
template <class Body>
void parallel_for(int threads, std::int64_t count, Body&& body) {
  const int team = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (team <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i) body(i, omp_get_thread_num());
}

// Calls body(begin, end, thread) for consecutive ranges that cover [0, count).
template <class Body>
void parallel_ranges(int threads, std::int64_t count, std::int64_t range, Body&& body) {
  parallel_for(threads, (count + range - 1) / range, [&](std::int64_t i, int thread) {
    body(i * range, std::min(count, (i + 1) * range), thread);
  });
}

// Rows of `cols` floats that are worth a thread's wake-up: below about 32k floats one thread is
// faster, and small models then leave the other cores alone.
inline std::int64_t rows_at_once(std::int64_t cols) {
  constexpr std::int64_t kFloats = 32768;
  return std::max<std::int64_t>(8, kFloats / std::max<std::int64_t>(1, cols));
}

inline int available_threads() { return std::max(1, omp_get_num_procs()); }

}  // namespace openjev
