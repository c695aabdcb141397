// Every operator but the matrix products with buffers, sizes and strides as in a pass over one
// prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace openjev::bench {

// One operator over some sets of buffers.
struct Operator {
  std::string name;
  std::size_t sets;                         // to be used in turn
  std::function<void(std::size_t)> launch;  // queues one launch on a set
  // Of one launch, from the sizes alone: each input read once, each output written once.
  double bytes;
  double flops;           // 0: a matter of bytes only
  std::int64_t per_pass;  // launches over all rows; those of the last layer for the last row only
                          // are left out
};

// What operators of one kind are measured with.
struct OperatorContext {
  Backend& backend;
  const ModelConfig& config;
  const PlanView& plan;  // uploaded; no other upload while the operators are used
  std::int64_t tokens;   // real ones: the plan may have more rows
  double cold_bytes;     // that the sets of an operator add up to
  std::uint64_t seed;
};

using UseOperator = std::function<void(const Operator&)>;

// Each makes its buffers, hands its operators to `use` one after the other and frees the buffers.
void use_row_operators(const OperatorContext& context, const Matrix& embedding,
                       const UseOperator& use);
void use_mlp_operators(const OperatorContext& context, const UseOperator& use);
void use_delta_operators(const OperatorContext& context, const UseOperator& use);
void use_attention_operators(const OperatorContext& context, const UseOperator& use);

}  // namespace openjev::bench
