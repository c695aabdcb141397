#include "openjev_bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "core/error.h"

namespace openjev::bench {
namespace {

constexpr std::chrono::milliseconds kGap{40};
constexpr double kSettleMs = 200, kEnoughMs = 500;
constexpr double kMostRepeats = 400;

}  // namespace

double median_of(std::vector<double> values) {
  check(!values.empty(), "median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean_of(const std::vector<double>& values) {
  check(!values.empty(), "mean of no values");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double least_of(const std::vector<double>& values) {
  check(!values.empty(), "least of no values");
  return *std::min_element(values.begin(), values.end());
}

double p95_of(std::vector<double> values) {
  check(!values.empty(), "percentile of no values");
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(0.95 * static_cast<double>(values.size()));
  return values[rank == 0 ? 0 : rank - 1];
}

double milliseconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

void pause_before_pass(const Pace& pace) {
  if (pace.gaps) std::this_thread::sleep_for(kGap);
}

std::vector<double> measure(const Pace& pace, const std::function<void()>& prepare,
                            const std::function<void()>& run) {
  double spent = 0, last = 0;
  do {
    prepare();
    spent += last = milliseconds(run);
  } while (!pace.gaps && spent < kSettleMs);
  const double enough = std::min(kMostRepeats, std::ceil(kEnoughMs / std::max(last, 1e-6)));
  const std::int32_t count =
      pace.repeats > 0 ? pace.repeats : std::max(pace.least, static_cast<std::int32_t>(enough));
  std::vector<double> out;
  for (std::int32_t i = 0; i < count; ++i) {
    prepare();
    pause_before_pass(pace);
    out.push_back(milliseconds(run));
  }
  return out;
}

}  // namespace openjev::bench
