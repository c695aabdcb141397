// The hybrid decoder, written once over the operator interface: rows in, final-norm vector of each
// leaf out.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "core/arena.h"
#include "model/config.h"
#include "model/weights.h"

namespace openjev {

// What one layer keeps of a prefix of P tokens. A linear layer: state [1, DeltaShape::state()]
// float32 and tail [3, conv channels]; a full layer: keys after norm and rotation, and values, [P,
// kv_heads * head_dim].
struct LayerPrefix {
  View state, tail;
  View keys, values;
};

// One entry a layer; empty: no prefix.
using PrefixViews = std::vector<LayerPrefix>;

class Decoder {
 public:
  Decoder(const ModelConfig& config, const ModelWeights& weights, Backend& backend);

  // Bytes of workspace for a plan of these counts.
  std::size_t workspace_bytes(const PlanView& plan) const;

  // hidden [leaves, H] in the activation dtype: final-norm vector of each leaf. `plan` is in
  // backend memory. `prefix` holds the views of plan.prefix_length tokens; `keep`, unless null,
  // receives those of this pass (a plan of one sequence, made with keep_end_state).
  void forward(const PlanView& plan, const PrefixViews& prefix, const PrefixViews* keep,
               void* workspace, std::size_t bytes, View hidden) const;

  // Views of a prefix of `length` tokens, laid out in `arena`.
  PrefixViews lay_out_prefix(Arena& arena, std::int64_t length) const;

 private:
  // The residual stream of some rows: what a layer adds to it goes through `update`, and `normed`
  // is its norm by the weights of whatever reads it next.
  struct Stream {
    View residual, update, normed;
  };
  struct Workspace;
  struct Pass;
  Workspace lay_out(Arena& arena, const PlanView& plan) const;
  void mix_linear(const Pass& pass, std::size_t layer) const;
  void mix_full(const Pass& pass, std::size_t layer) const;
  void mix_last_full(const Pass& pass, std::size_t layer) const;
  void attend(const Pass& pass, std::size_t layer, View queries, View keys_values,
              std::span<const std::int32_t> position, std::span<const QueryTile> tiles,
              const Stream& stream) const;
  void mlp(const Pass& pass, std::size_t layer, const Stream& stream, View next_norm,
           View out) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  Backend& backend_;
};

}  // namespace openjev
