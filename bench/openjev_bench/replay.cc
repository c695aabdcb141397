#include "openjev_bench/replay.h"

#include <utility>

#include "core/error.h"

namespace openjev::bench {

Replay::Replay(Backend& backend, std::int32_t kind, std::int32_t rows,
               std::function<void()> launches, bool recorded)
    : backend_(backend), launches_(std::move(launches)), recorded_(recorded) {
  check(kind >= 0 && rows >= 0, "replay ", kind, ", ", rows, " rows");
  key_.rows = rows;
  key_.chunks = -1;  // as in no plan
  key_.leaves = kind;
  run();
  if (recorded_) backend_.record_missed([&](const PlanView&) { launches_(); });
}

void Replay::run() {
  if (recorded_)
    backend_.run(key_, launches_);
  else
    launches_();
  backend_.synchronize();
}

}  // namespace openjev::bench
