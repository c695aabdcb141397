// Attention over the chunk tree: keys and values of every chunk are laid out once, then each (tile,
// head) walks the path from the root to its own chunk.
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "cpu/ops.h"

namespace openjev::cpu {
namespace {

std::int64_t padded(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

void CpuOps::gather_keys(const AttentionArgs& a, const PlanView& plan) {
  const std::int64_t prefix_chunks = plan.prefix_length / kChunk;
  const std::int64_t chunks = prefix_chunks + plan.chunks,
                     wide = padded(a.head_dim, kernels_.panel);
  float* keys = keys_.at_least(chunks * a.kv_heads * a.head_dim * kChunk);
  float* values = values_.at_least(chunks * a.kv_heads * wide * kChunk);
  parallel_for(threads_, chunks * a.kv_heads, [&](std::int64_t unit, int) {
    const std::int64_t chunk = unit / a.kv_heads, column = unit % a.kv_heads * a.head_dim;
    float* key = keys + unit * a.head_dim * kChunk;
    float* value = values + unit * wide * kChunk;
    std::fill(value, value + wide * kChunk, 0.0f);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const bool kept = chunk < prefix_chunks;
      const std::int64_t row =
          kept ? chunk * kChunk + i
               : plan.chunk_rows[static_cast<std::size_t>((chunk - prefix_chunks) * kChunk + i)];
      if (row < 0) {
        for (std::int64_t d = 0; d < a.head_dim; ++d) key[d * kChunk + i] = 0.0f;
        continue;
      }
      const float* from_k = (kept ? a.prefix_k : a.k).row<float>(row) + column;
      const float* from_v = (kept ? a.prefix_v : a.v).row<float>(row) + column;
      for (std::int64_t d = 0; d < a.head_dim; ++d) key[d * kChunk + i] = from_k[d];
      std::copy(from_v, from_v + a.head_dim, value + i * wide);
    }
  });
}

void CpuOps::attend(const AttentionArgs& a, const PlanView& plan, const QueryTile& tile, int head,
                    float* scratch) {
  const float *q[kChunk], *gate[kChunk];
  float* out[kChunk];
  for (std::int32_t i = 0; i < tile.count; ++i) {
    q[i] = a.q.row<float>(tile.query + i) + std::int64_t{head} * a.head_dim;
    gate[i] = a.gate.row<float>(tile.query + i) + std::int64_t{head} * a.gate_stride;
    out[i] = a.out.row<float>(tile.query + i) + std::int64_t{head} * a.head_dim;
  }
  const AttentionTile args{
      .count = tile.count,
      .head_dim = a.head_dim,
      .q = q,
      .gate = gate,
      .out = out,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)))};
  const std::int64_t prefix_chunks = plan.prefix_length / kChunk,
                     wide = padded(a.head_dim, kernels_.panel);
  const std::int64_t kv_head = head / (a.heads / a.kv_heads);
  const auto block = [&](std::int64_t chunk, int first_visible) {
    const std::int64_t unit = chunk * a.kv_heads + kv_head;
    kernels_.attention_block(args, keys_.at_least(0) + unit * a.head_dim * kChunk,
                             values_.at_least(0) + unit * wide * kChunk, first_visible, scratch);
  };
  kernels_.attention_begin(args, scratch);
  for (std::int64_t chunk = 0; chunk < prefix_chunks; ++chunk) block(chunk, kChunk);
  // Depth of the chunk in its path, then the ancestor at each depth: the tree is shallow and blocks
  // are long.
  std::int32_t depth = 0;
  for (std::int32_t c = tile.chunk; plan.chunk_parent[static_cast<std::size_t>(c)] >= 0; ++depth) {
    c = plan.chunk_parent[static_cast<std::size_t>(c)];
  }
  for (std::int32_t level = 0; level < depth; ++level) {
    std::int32_t c = tile.chunk;
    for (std::int32_t up = depth; up > level; --up)
      c = plan.chunk_parent[static_cast<std::size_t>(c)];
    block(prefix_chunks + c, kChunk);
  }
  block(prefix_chunks + tile.chunk, tile.offset);
  kernels_.attention_end(args, scratch);
}

void CpuOps::attention(const AttentionArgs& a, const PlanView& plan) {
  gather_keys(a, plan);
  const std::int64_t floats = kernels_.attention_scratch(a.head_dim);
  for (int t = 0; t < threads_; ++t) thread_scratch(t, floats);
  const auto tiles = static_cast<std::int64_t>(a.tiles.size());
  parallel_for(threads_, tiles * a.heads, [&](std::int64_t unit, int thread) {
    attend(a, plan, a.tiles[static_cast<std::size_t>(unit / a.heads)],
           static_cast<int>(unit % a.heads), thread_scratch(thread, floats));
  });
}

}  // namespace openjev::cpu
