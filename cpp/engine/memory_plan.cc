#include "engine/memory_plan.h"

#include <iomanip>
#include <sstream>

#include "model/decoder.h"
#include "model/weight_source.h"

namespace openjev {
namespace {

constexpr std::size_t kGraphs = std::size_t{1} << 30;

std::string gib(std::size_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2)
       << static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30) << " GiB";
  return text.str();
}

// The counts of a plan of one sequence.
PlanView one_prompt(std::int32_t tokens) {
  PlanView plan;
  plan.rows = tokens;
  plan.chunks = (tokens + kChunk - 1) / kChunk;
  plan.leaves = 1;
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const ModelConfig& config, std::int32_t most_tokens, Backend& backend) {
  const DeviceMemory device = backend.memory();
  if (device.total == 0) return {};
  const ModelWeights none;
  MemoryPlan plan;
  plan.weights = static_cast<std::size_t>(matrix_elements(config)) * size_of(DType::kBF16);
  plan.workspace = Decoder(config, none, backend).workspace_bytes(one_prompt(most_tokens));
  plan.graphs = kGraphs;
  plan.free = device.free;
  plan.total = device.total;
  const std::size_t needed = plan.weights + plan.workspace + plan.graphs;
  if (needed > plan.free) {
    fail(ErrorKind::kOutOfMemory, "device memory: ", gib(needed), " are needed (weights ",
         gib(plan.weights), ", workspace for a prompt of ", most_tokens, " tokens ",
         gib(plan.workspace), ", graphs and libraries ", gib(plan.graphs), "); ", gib(plan.free),
         " of ", gib(plan.total), " are free");
  }
  return plan;
}

}  // namespace openjev
