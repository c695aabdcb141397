// A device that can hold weights and run the operators. Obtained by name from the registry; the
// engine is its only user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "core/tensor.h"
#include "plan/plan_view.h"

namespace openjev {

// Memory of a backend; freed on destruction.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual std::size_t bytes() const = 0;
};

struct BackendOptions {
  int threads = 0;      // CPU: worker threads; 0: all cores
  std::string cpu_isa;  // CPU: "generic", "avx2", "avx512"; empty: the best this processor has

  int device_index = 0;  // CUDA: which of the visible GPUs
  // CUDA: "eager", "exact" (a graph for each exact plan shape, recorded on first use) or "bucketed"
  // (plans rounded up to a bucket; graphs recorded ahead of requests)
  std::string graph_mode = "bucketed";
  int graph_entries = 0;  // CUDA: graphs kept; 0: the default of the mode
  // CUDA: "invariant" (a row's bits do not depend on how many rows there are) or "fast"
  std::string matmul_mode = "invariant";
  // CUDA, invariant: parts that K of every product is split in where it can be; 0: as measured
  int matmul_parts = 0;
  std::string tuning_file;  // CUDA: measured matmul algorithms; empty: in the user's cache folder
};

// Bytes of the device; 0, 0 where the backend does not manage memory of its own.
struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;
};

// How passes were launched so far.
struct GraphStats {
  std::int64_t hits = 0;       // replays
  std::int64_t misses = 0;     // launched kernel by kernel: no recording yet
  std::int64_t captures = 0;   // recordings made
  std::int64_t evictions = 0;  // recordings dropped
  std::int64_t fallbacks = 0;  // a recording or a replay failed, the pass was launched eagerly
  std::int64_t entries = 0;    // recordings held now
  std::int64_t bytes = 0;      // device memory they hold
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;      // "cpu"
  virtual std::string describe() const = 0;  // one line for people: instruction set, threads
  virtual int threads() const = 0;           // host threads that compute
  virtual DType activation_dtype() const = 0;
  // Of the delta rule's queries, keys and values; as wide as activations.
  virtual DType delta_dtype() const { return activation_dtype(); }

  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  virtual void copy_in(View destination,
                       const void* source) = 0;  // contiguous views; source on the host
  virtual void copy_out(void* destination, View source) = 0;  // waits for the work queued so far
  virtual void copy(View source,
                    View destination) = 0;  // both in backend memory, same shape and dtype

  // Stacks the rows of the parts (host views, one dtype, equal cols) into one matrix. The parts may
  // be released afterwards: the result holds the only resident copy.
  virtual std::unique_ptr<Matrix> make_matrix(std::span<const View> parts) = 0;

  // A matrix whose rows are only gathered. It may keep reading the host view, which must then
  // outlive it.
  virtual std::unique_ptr<Matrix> make_table(View host) = 0;

  // Like the two above with seeded bfloat16 values (core/random.h) instead of a checkpoint's:
  // element (r, c) is uniform_of(seed, r * cols + c, scale), the same on every backend.
  virtual std::unique_ptr<Matrix> make_random_matrix(std::int64_t rows, std::int64_t cols,
                                                     std::uint64_t seed, float scale) = 0;
  virtual std::unique_ptr<Matrix> make_random_table(std::int64_t rows, std::int64_t cols,
                                                    std::uint64_t seed, float scale) = 0;

  // A matrix as it lies in backend memory, row-major; empty where it is kept in another layout.
  virtual View storage(const Matrix& matrix) const {
    static_cast<void>(matrix);
    return {};
  }

  // Waits until every matrix is in place.
  virtual void finish_weights() {}

  // Index arrays in backend memory; valid until the next upload. The host plan must outlive it too.
  // With `pad`, counts may be rounded up to a bucket: rows beyond the plan's are roots that nobody
  // reads, segments and tiles beyond its are empty, leaves beyond its repeat row 0.
  virtual PlanView upload(const PlanView& host, bool pad) = 0;

  // Whether a pass over `plan` gains by being recorded: a long one keeps the device busy anyway.
  virtual bool worth_recording(const PlanView& plan) const {
    static_cast<void>(plan);
    return false;
  }

  // Runs `launches`, which queues one pass that depends on nothing but the counts of `plan` (as
  // uploaded) and on buffers that stay where they are: a backend may replay a recording of it.
  virtual void run(const PlanView& plan, const std::function<void()>& launches) {
    static_cast<void>(plan);
    launches();
  }

  // Calls `launches` for the plan shape that `run` missed longest ago, to record it. False: none.
  virtual bool record_missed(const std::function<void(const PlanView&)>& launches) {
    static_cast<void>(launches);
    return false;
  }

  // Lengths of single prompts whose passes are worth recording ahead of requests, up to `most`.
  virtual std::vector<std::int32_t> warm_up_lengths(std::int32_t most) const {
    static_cast<void>(most);
    return {};
  }

  // To be called when a buffer that passes write to was replaced.
  virtual void buffers_moved() {}

  // Measures what can be measured before the first request (matmul algorithms for up to `rows`
  // rows). Reports steps done, steps in all, what.
  using Steps = std::function<void(std::int64_t, std::int64_t, const std::string&)>;
  virtual void tune(std::int64_t rows, const Steps& steps) {
    static_cast<void>(rows);
    static_cast<void>(steps);
  }

  virtual DeviceMemory memory() const { return {}; }
  virtual GraphStats graph_stats() const { return {}; }

  virtual Ops& ops() = 0;
  virtual void synchronize() = 0;
};

}  // namespace openjev
