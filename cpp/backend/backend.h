// A device that can hold weights and run the operators. Obtained by name from the registry; the
// engine is its only user.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

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
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;      // "cpu"
  virtual std::string describe() const = 0;  // one line for people: instruction set, threads
  virtual int threads() const = 0;           // host threads that compute
  virtual DType activation_dtype() const = 0;

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

  // Index arrays in backend memory; valid until the next upload. The host plan must outlive it too.
  virtual PlanView upload(const PlanView& host) = 0;

  virtual Ops& ops() = 0;
  virtual void synchronize() = 0;
};

}  // namespace openjev
