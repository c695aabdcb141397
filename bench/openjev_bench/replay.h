// Launches that stand outside any model, replayed by the backend as if they were a pass.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"

namespace openjev::bench {

class Replay {
 public:
  // `launches` queues work on buffers that stay where they are. `kind` and `rows` (both not
  // negative) name it: no two live replays of a backend may share both. With `recorded` it is
  // launched once and, where the backend records, recorded; every pass that the backend still has
  // to record must have been before. Otherwise it is launched one by one each time.
  Replay(Backend& backend, std::int32_t kind, std::int32_t rows, std::function<void()> launches,
         bool recorded = true);

  // Queues the work and waits for it.
  void run();

 private:
  Backend& backend_;
  PlanView key_;
  std::function<void()> launches_;
  bool recorded_;
};

}  // namespace openjev::bench
