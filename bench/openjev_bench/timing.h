// Times on the host's clock, and what is said about them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace openjev::bench {

double median_of(std::vector<double> values);
double mean_of(const std::vector<double>& values);
double least_of(const std::vector<double>& values);
// sorted[int(0.95 N) - 1], the first where that is none
double p95_of(std::vector<double> values);

// Milliseconds of one call.
double milliseconds(const std::function<void()>& run);

// How often and how densely something is measured.
struct Pace {
  bool gaps = false;         // 40 ms of idle before each
  std::int32_t repeats = 0;  // 0: until half a second was measured, but at least `least`
  std::int32_t least = 7;
};

void pause_before_pass(const Pace& pace);

// Milliseconds of each `run`, which must return when its work is done. `prepare` comes before each,
// outside its time. Runs of the first 0.2 s (with gaps: the first run) do not count: they bring the
// device to the clock it keeps.
std::vector<double> measure(const Pace& pace, const std::function<void()>& prepare,
                            const std::function<void()>& run);

}  // namespace openjev::bench
