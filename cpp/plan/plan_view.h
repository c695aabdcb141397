// What the operators see of a batch plan: counts, and index arrays in the backend's memory. The
// host builds it (batch_plan.h); a backend only reads it.
//
// Rows are the nodes of the token trie of all sequences, in depth-first order: whatever acts on one
// token at a time runs once per row. Chunks are 64 consecutive tokens of a path, starting at a
// depth that is a multiple of 64 (the last one may be shorter). Segments are maximal unbranched
// chains of chunks. A kept prefix of `prefix_length` tokens (a multiple of 64) precedes every root;
// its keys, values, states and convolution tail exist already.
#pragma once

#include <cstdint>
#include <span>

namespace openjev {

inline constexpr std::int32_t kChunk = 64;

// chunks [first_chunk, first_chunk + chunk_count), in order along the path.
struct Segment {
  std::int32_t first_chunk;
  std::int32_t chunk_count;
  std::int32_t start_state;  // slot to start from; -1: the prefix's state (zero without a prefix)
  std::int32_t end_state;    // slot to store the state after the last chunk in; -1: nobody reads it
};

// Queries `query` ... `query + count - 1` (rows of the query and output matrices) stand at offsets
// `offset` ... `offset + count - 1` of chunk `chunk`.
struct QueryTile {
  std::int32_t chunk;
  std::int32_t offset;
  std::int32_t count;
  std::int32_t query;
};

struct PlanView {
  std::int32_t rows = 0;
  std::int32_t chunks = 0;
  std::int32_t leaves = 0;
  std::int32_t states = 0;         // slots that segments name
  std::int32_t prefix_length = 0;  // tokens before every root; a multiple of kChunk

  std::span<const std::int32_t> token;       // [rows]
  std::span<const std::int32_t> position;    // [rows], counted from the start of the prefix
  std::span<const std::int32_t> parent_row;  // [rows], -1 at a root

  std::span<const std::int32_t> chunk_rows;    // [chunks * kChunk], -1 beyond the chunk's length
  std::span<const std::int32_t> chunk_length;  // [chunks], 1 to kChunk
  // [chunks], first offset whose row this chunk writes; rows before it lie in an earlier chunk too,
  // which writes them. Owned rows are consecutive:
  // chunk_rows[c][o] = chunk_rows[c][owned] + (o - owned).
  std::span<const std::int32_t> chunk_owned;
  // [chunks], -1 at a root; a parent has kChunk rows and comes before
  std::span<const std::int32_t> chunk_parent;

  std::span<const Segment> segments;  // by level: every parent lies in an earlier level
  // [levels + 1] into segments; host memory on every backend
  std::span<const std::int32_t> level_begin;

  std::span<const QueryTile> row_tiles;    // every row once, by the chunk that owns it; query = row
  std::span<const QueryTile> leaf_tiles;   // one tile a leaf; query = index of the leaf
  std::span<const std::int32_t> leaf_row;  // [leaves], in the order of the caller's sequences
  std::span<const std::int32_t> leaf_position;  // [leaves], position[leaf_row]
};

}  // namespace openjev
