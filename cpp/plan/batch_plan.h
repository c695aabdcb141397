// The batch plan: many token sequences -> rows (token trie), chunk tree, segments by level, leaves.
// The only path into the model; a single prompt is a tree with one path. Built on the host from the
// token ids alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan_view.h"

namespace openjev {

class TokenTrie;

struct PlanOptions {
  std::int32_t vocab_size = 0;     // ids must lie in [0, vocab_size)
  std::int32_t max_length = 0;     // tokens of one sequence, prefix included; 0: no limit
  std::int32_t prefix_length = 0;  // tokens kept from an earlier pass; a multiple of kChunk
  // Store the end state of the last segment too (one sequence only, whose length is a multiple of
  // kChunk): this is how a prefix is made.
  bool keep_end_state = false;
  bool share = true;  // false: no two sequences share a row, for comparisons
};

class BatchPlan {
 public:
  // Sequence i is tokens[offsets[i]] ... tokens[offsets[i + 1] - 1]. Throws Error: kBadRequest for
  // no sequence, an empty one, offsets that do not ascend, a token outside the vocabulary or
  // options that contradict their comments; kOutOfLimits for a sequence that is too long or more
  // rows or chunks than 32-bit indices reach.
  BatchPlan(std::span<const std::int32_t> tokens, std::span<const std::int64_t> offsets,
            const PlanOptions& options);

  // Valid while the plan lives; spans point into it.
  PlanView view() const;

  std::int64_t total_tokens() const { return total_tokens_; }  // before sharing

 private:
  void add_rows_and_chunks(const TokenTrie& trie);
  void add_edge(std::span<const std::int32_t> edge, std::int32_t parent_row);
  std::int32_t add_chunk(std::int32_t last_row, std::int32_t parent);
  void add_segments(bool keep_end_state);
  void add_leaf_tiles();

  std::int64_t total_tokens_ = 0;
  std::int32_t prefix_length_ = 0;
  std::int32_t states_ = 0;
  std::vector<std::int32_t> token_, position_, parent_row_;
  std::vector<std::int32_t> chunk_rows_, chunk_length_, chunk_owned_, chunk_parent_;
  std::vector<Segment> segments_;
  std::vector<std::int32_t> level_begin_;
  std::vector<QueryTile> row_tiles_, leaf_tiles_;
  std::vector<std::int32_t> leaf_row_, leaf_position_;
};

}  // namespace openjev
