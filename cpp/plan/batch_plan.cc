#include "plan/batch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "plan/token_trie.h"

namespace openjev {
namespace {

constexpr std::int64_t kMaxIndex = std::numeric_limits<std::int32_t>::max();

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

template <class T>
std::int32_t count_of(const std::vector<T>& values) {
  return static_cast<std::int32_t>(values.size());
}

void check_options(const PlanOptions& options) {
  if (options.prefix_length < 0 || options.prefix_length % kChunk != 0) {
    fail(ErrorKind::kBadRequest, "prefix_length: found ", options.prefix_length,
         ", allowed are multiples of ", kChunk);
  }
  if (options.max_length < 0) {
    fail(ErrorKind::kBadRequest, "max_length: found ", options.max_length,
         ", allowed are 0 (no limit) and more");
  }
}

// Afterwards offsets ascend from 0 to the number of tokens, one sequence or more, none empty.
void check_offsets(std::span<const std::int64_t> offsets, std::size_t tokens) {
  if (offsets.size() < 2) {
    fail(ErrorKind::kBadRequest, "offsets: found ", offsets.size(),
         " entries, allowed are 2 or more (one sequence has 2)");
  }
  if (offsets.front() != 0) {
    fail(ErrorKind::kBadRequest, "offsets[0]: found ", offsets.front(), ", allowed is 0");
  }
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1]) {
      fail(ErrorKind::kBadRequest, "offsets[", i, "]: found ", offsets[i],
           ", allowed are more than ", offsets[i - 1], ", the start of sequence ", i - 1,
           " (a sequence has 1 token or more)");
    }
  }
  if (offsets.back() != static_cast<std::int64_t>(tokens)) {
    fail(ErrorKind::kBadRequest, "offsets[", offsets.size() - 1, "]: found ", offsets.back(),
         ", allowed is the number of tokens, ", tokens);
  }
}

void check_limits(std::span<const std::int64_t> offsets, const PlanOptions& options) {
  const std::size_t sequences = offsets.size() - 1;
  // The trie has up to two nodes a sequence and a root.
  if (sequences > static_cast<std::size_t>(kMaxIndex / 2)) {
    fail(ErrorKind::kOutOfLimits, "sequences: found ", sequences, ", allowed are ", kMaxIndex / 2);
  }
  const std::int64_t longest = options.max_length > 0 ? options.max_length : kMaxIndex;
  for (std::size_t i = 0; i < sequences; ++i) {
    const std::int64_t length = options.prefix_length + (offsets[i + 1] - offsets[i]);
    if (length > longest) {
      fail(ErrorKind::kOutOfLimits, "sequence ", i, ": found ", length, " tokens (",
           options.prefix_length, " of them the prefix), allowed are ", longest);
    }
  }
}

void check_keep_end_state(std::span<const std::int64_t> offsets) {
  if (offsets.size() != 2) {
    fail(ErrorKind::kBadRequest, "keep_end_state: found ", offsets.size() - 1,
         " sequences, allowed is 1");
  }
  if (offsets[1] % kChunk != 0) {
    fail(ErrorKind::kBadRequest, "keep_end_state: sequence 0: found ", offsets[1],
         " tokens, allowed are multiples of ", kChunk);
  }
}

}  // namespace

BatchPlan::BatchPlan(std::span<const std::int32_t> tokens, std::span<const std::int64_t> offsets,
                     const PlanOptions& options) {
  check_options(options);
  check_offsets(offsets, tokens.size());
  check_limits(offsets, options);
  if (options.keep_end_state) check_keep_end_state(offsets);

  total_tokens_ = offsets.back();
  prefix_length_ = options.prefix_length;
  leaf_row_.resize(offsets.size() - 1);
  add_rows_and_chunks(TokenTrie(tokens, offsets, options.vocab_size, options.share));
  add_segments(options.keep_end_state);
  add_leaf_tiles();
}

// Walks the trie depth first. A chunk is complete where its path reaches a multiple of kChunk or a
// leaf of the trie, so both rows and chunks come in depth-first order.
void BatchPlan::add_rows_and_chunks(const TokenTrie& trie) {
  if (trie.size() > kMaxIndex) {
    fail(ErrorKind::kOutOfLimits, "rows: found ", trie.size(), ", allowed are ", kMaxIndex);
  }
  const auto rows = static_cast<std::size_t>(trie.size());
  for (auto* array : {&token_, &position_, &parent_row_}) array->reserve(rows);

  struct Visit {
    std::int32_t node, parent_row, parent_chunk;
  };
  std::vector<Visit> pending{{trie.root().first_child, -1, -1}};
  while (!pending.empty()) {
    const Visit visit = pending.back();
    pending.pop_back();
    const TokenTrie::Node& node = trie.node(visit.node);
    if (node.next_sibling >= 0) {
      pending.push_back({node.next_sibling, visit.parent_row, visit.parent_chunk});
    }
    const std::int32_t first = count_of(token_);
    add_edge(trie.edge(node), visit.parent_row);
    const std::int32_t last = count_of(token_) - 1;

    std::int32_t chunk = visit.parent_chunk;
    const std::int32_t to_boundary = kChunk - 1 - position_[index(first)] % kChunk;
    for (std::int64_t row = std::int64_t{first} + to_boundary; row <= last; row += kChunk) {
      chunk = add_chunk(static_cast<std::int32_t>(row), chunk);
    }
    if (node.first_child >= 0) {
      pending.push_back({node.first_child, last, chunk});
    } else if (position_[index(last)] % kChunk != kChunk - 1) {
      add_chunk(last, chunk);
    }
    for (std::int32_t i = node.first_end; i >= 0; i = trie.next_end(i)) leaf_row_[index(i)] = last;
  }
}

void BatchPlan::add_edge(std::span<const std::int32_t> edge, std::int32_t parent_row) {
  const std::size_t first = token_.size();
  const std::size_t end = first + edge.size();
  token_.insert(token_.end(), edge.begin(), edge.end());
  position_.resize(end);
  parent_row_.resize(end);
  const std::int32_t position = parent_row < 0 ? prefix_length_ : position_[index(parent_row)] + 1;
  const auto at = static_cast<std::ptrdiff_t>(first);
  std::iota(position_.begin() + at, position_.end(), position);
  parent_row_[first] = parent_row;
  std::iota(parent_row_.begin() + at + 1, parent_row_.end(), static_cast<std::int32_t>(first));
}

// The chunk that ends with `last_row`. The walk turns back only where a chunk ends, so the rows
// that no chunk owns yet are the newest ones of the path: all of them up to `last_row` become this
// chunk's.
std::int32_t BatchPlan::add_chunk(std::int32_t last_row, std::int32_t parent) {
  const std::size_t base = chunk_rows_.size();
  if (base + kChunk > static_cast<std::size_t>(kMaxIndex)) {
    fail(ErrorKind::kOutOfLimits, "chunks: found more than ", kMaxIndex / kChunk, ", allowed are ",
         kMaxIndex / kChunk);
  }
  const std::int32_t length = position_[index(last_row)] % kChunk + 1;
  chunk_rows_.resize(base + kChunk, -1);
  for (std::int32_t offset = length - 1, row = last_row; offset >= 0; --offset) {
    chunk_rows_[base + index(offset)] = row;
    row = parent_row_[index(row)];
  }

  const std::int32_t chunk = count_of(chunk_length_);
  const std::int32_t first_owned =
      row_tiles_.empty() ? 0 : row_tiles_.back().query + row_tiles_.back().count;
  const std::int32_t owned = last_row + 1 - first_owned;
  chunk_length_.push_back(length);
  chunk_owned_.push_back(length - owned);
  chunk_parent_.push_back(parent);
  row_tiles_.push_back({chunk, length - owned, owned, first_owned});
  return chunk;
}

void BatchPlan::add_segments(bool keep_end_state) {
  const std::int32_t chunks = count_of(chunk_parent_);
  std::vector<std::int32_t> children(index(chunks), 0);
  for (const std::int32_t parent : chunk_parent_) {
    if (parent >= 0) ++children[index(parent)];
  }

  // In depth-first order an only child comes right after its parent: it extends the segment in
  // hand.
  struct Chain {
    std::int32_t first, count, parent, level;
  };
  std::vector<Chain> chains;
  std::vector<std::int32_t> chain_of(index(chunks));
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int32_t parent = chunk_parent_[index(chunk)];
    if (parent >= 0 && children[index(parent)] == 1) {
      ++chains.back().count;
    } else {
      const std::int32_t above = parent < 0 ? -1 : chain_of[index(parent)];
      chains.push_back({chunk, 1, above, above < 0 ? 0 : chains[index(above)].level + 1});
    }
    chain_of[index(chunk)] = count_of(chains) - 1;
  }

  // Counting sort by level, depth-first order within one.
  std::int32_t levels = 0;
  for (const Chain& chain : chains) levels = std::max(levels, chain.level + 1);
  level_begin_.assign(index(levels) + 1, 0);
  for (const Chain& chain : chains) ++level_begin_[index(chain.level) + 1];
  std::partial_sum(level_begin_.begin(), level_begin_.end(), level_begin_.begin());
  std::vector<std::int32_t> next = level_begin_;
  std::vector<std::int32_t> order(chains.size());
  for (std::int32_t i = 0; i < count_of(chains); ++i) {
    order[index(next[index(chains[index(i)].level)]++)] = i;
  }

  std::vector<std::int32_t> slot(chains.size(), -1);
  segments_.reserve(chains.size());
  for (const std::int32_t i : order) {
    const Chain& chain = chains[index(i)];
    const bool branches = children[index(chain.first + chain.count - 1)] > 0;
    if (branches || keep_end_state) slot[index(i)] = states_++;
    const std::int32_t start = chain.parent < 0 ? -1 : slot[index(chain.parent)];
    segments_.push_back({chain.first, chain.count, start, slot[index(i)]});
  }
}

// A leaf reads through the chunk that owns its row.
void BatchPlan::add_leaf_tiles() {
  leaf_tiles_.reserve(leaf_row_.size());
  leaf_position_.reserve(leaf_row_.size());
  for (std::int32_t leaf = 0; leaf < count_of(leaf_row_); ++leaf) {
    const std::int32_t row = leaf_row_[index(leaf)];
    leaf_position_.push_back(position_[index(row)]);
    const auto after = std::upper_bound(
        row_tiles_.begin(), row_tiles_.end(), row,
        [](std::int32_t value, const QueryTile& tile) { return value < tile.query; });
    leaf_tiles_.push_back({std::prev(after)->chunk, position_[index(row)] % kChunk, 1, leaf});
  }
}

PlanView BatchPlan::view() const {
  PlanView view;
  view.rows = count_of(token_);
  view.chunks = count_of(chunk_length_);
  view.leaves = count_of(leaf_row_);
  view.states = states_;
  view.prefix_length = prefix_length_;
  view.token = token_;
  view.position = position_;
  view.parent_row = parent_row_;
  view.chunk_rows = chunk_rows_;
  view.chunk_length = chunk_length_;
  view.chunk_owned = chunk_owned_;
  view.chunk_parent = chunk_parent_;
  view.segments = segments_;
  view.level_begin = level_begin_;
  view.row_tiles = row_tiles_;
  view.leaf_tiles = leaf_tiles_;
  view.leaf_row = leaf_row_;
  view.leaf_position = leaf_position_;
  return view;
}

}  // namespace openjev
