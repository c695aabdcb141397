// The matrix products of one pass and nothing else: what the pass can at best come down to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "openjev_bench/replay.h"

namespace openjev::bench {

class MatmulStack {
 public:
  // Every layer's four projections with its own weights, over up to `most_rows` rows of seeded
  // values. With `recorded` each number of rows is recorded where the backend records passes. The
  // engine must stay and must not run while the stack does.
  MatmulStack(Engine& engine, std::int32_t most_rows, std::uint64_t seed, bool recorded);
  MatmulStack(const MatmulStack&) = delete;
  MatmulStack& operator=(const MatmulStack&) = delete;

  // Makes `run` ready for this number of rows.
  void prepare(std::int32_t rows);
  // All products over `rows` prepared rows; waits for them.
  void run(std::int32_t rows);

  // Floating-point operations of the products over `rows` rows.
  double flops(std::int32_t rows) const;

 private:
  struct Product {
    const Matrix* weight;
    View x, out;  // [most_rows, columns of the weight], [most_rows, its rows]
  };
  void launch(std::int32_t rows) const;

  Engine& engine_;
  bool recorded_;
  std::unique_ptr<Buffer> memory_;
  std::vector<Product> products_;
  std::map<std::int32_t, Replay> replays_;
};

// Whether the backend can hold a recording of each of `lengths` besides the engine's own without
// dropping any.
bool room_for_recordings(const BackendOptions& options, std::size_t lengths);

}  // namespace openjev::bench
