// Faults of recorded passes that no engine can be brought to make. Prints one line a check that
// holds; exits with 1 at the first that does not.
#include "cuda/graph_cache.h"

#include <cstdio>
#include <cstdlib>

#include "cuda/kernels/kernels.h"

namespace {

using namespace openjev;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  if (!holds) std::exit(1);
}

PlanView plan_of(std::int32_t rows) {
  static constexpr std::int32_t kLevels[] = {0, 1};
  PlanView plan;
  plan.rows = rows;
  plan.level_begin = kLevels;
  return plan;
}

}  // namespace

int main() {
  const cuda::Stream stream = cuda::make_stream();
  const cuda::DeviceMemoryBlock memory = cuda::allocate_device(4096);
  const View values = View::contiguous(memory.data(), DType::kF32, 1, 1024);
  int launched = 0;
  const auto good = [&] {
    ++launched;
    cuda::fill_random(values, 1, 1.0f, stream.get());
  };
  const auto waits = [&] {  // not allowed while a pass is recorded
    good();
    cuda::check_cuda(cudaStreamSynchronize(stream.get()), "wait in a pass");
  };

  cuda::GraphCache cache(cuda::GraphMode::kExact, 2, stream.get());
  cache.run(plan_of(1), waits);
  expect(cache.stats().fallbacks == 1, "a pass that cannot be recorded is counted");
  expect(cache.stats().entries == 0 && launched == 2, "and was launched eagerly before");
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "wait");
  cache.run(plan_of(2), good);
  expect(cache.stats().captures == 1, "the stream can be recorded again");
  cache.run(plan_of(2), good);
  expect(cache.stats().hits == 1 && launched == 4, "and replays without launching");

  const auto throws = [&]() -> void { fail(ErrorKind::kOutOfMemory, "no memory for this pass"); };
  bool thrown = false;
  try {
    cache.run(plan_of(3), throws);
  } catch (const Error& error) {
    thrown = error.kind() == ErrorKind::kOutOfMemory;
  }
  expect(thrown && cache.stats().entries == 1, "an error of the pass itself reaches the caller");

  cache.run(plan_of(4), good);
  cache.run(plan_of(5), good);
  expect(cache.stats().entries == 2 && cache.stats().evictions == 1, "the oldest entry goes first");
  cache.clear();
  expect(cache.stats().entries == 0 && cache.stats().bytes == 0, "clearing leaves nothing");
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "wait");
  return 0;
}
