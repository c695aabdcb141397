// Causal softmax attention for one tile of queries of one head, over key chunks from the root on
// (online softmax, Milakov & Gimelshein 2018): m' = max(m, max_j s_j), l' = l e^(m-m') + sum_j
// e^(s_j-m'), o' = o e^(m-m') + sum_j e^(s_j-m') v_j. Every query sees its keys in blocks of 64
// that start at multiples of 64, so a row's result does not depend on the tile.
#include "cpu/kernels/table.h"
#include "cpu/kernels/tile.h"

namespace openjev::cpu::OPENJEV_ISA {
namespace {

constexpr int kC = 64;
constexpr float kMasked = -3.0e38f;  // finite, so that masked - masked is 0 and never NaN

struct Scratch {
  float *q, *scores, *out, *best, *sum;
};

Scratch split(float* p, int head_dim, int wide) {
  Scratch s{};
  s.q = p;
  s.scores = s.q + kC * head_dim;
  s.out = s.scores + kC * kC;
  s.best = s.out + kC * wide;
  s.sum = s.best + kC;
  return s;
}

int padded(int head_dim) { return (head_dim + kTileCols - 1) / kTileCols * kTileCols; }

}  // namespace

std::int64_t attention_scratch(int head_dim) {
  return std::int64_t{kC} * (head_dim + padded(head_dim)) + kC * kC + 2 * kC;
}

void attention_begin(const AttentionTile& t, float* scratch) {
  const int wide = padded(t.head_dim);
  const Scratch s = split(scratch, t.head_dim, wide);
  for (int i = 0; i < t.count; ++i) {
    for (int d = 0; d < t.head_dim; ++d) s.q[i * t.head_dim + d] = t.q[i][d] * t.scale;
    for (int d = 0; d < wide; ++d) s.out[i * wide + d] = 0.0f;
    s.best[i] = kMasked;
    s.sum[i] = 0.0f;
  }
}

void attention_block(const AttentionTile& t, const float* keys, const float* values,
                     int first_visible, float* scratch) {
  const int wide = padded(t.head_dim);
  const Scratch s = split(scratch, t.head_dim, wide);
  small_product(t.count, kC,
                {.a = s.q,
                 .a_row = t.head_dim,
                 .a_k = 1,
                 .b = keys,
                 .b_k = kC,
                 .c = s.scores,
                 .c_row = kC,
                 .kc = t.head_dim,
                 .accumulate = false});
  for (int i = 0; i < t.count; ++i) {
    float* row = s.scores + i * kC;
    for (int j = first_visible + i + 1; j < kC; ++j) row[j] = kMasked;
    Vec best = splat(s.best[i]);
    for (int j = 0; j < kC; j += kLanes) best = maximum(best, load(row + j));
    const float top = max_lanes(best);
    Vec sum = splat(0.0f);
    for (int j = 0; j < kC; j += kLanes) {
      const Vec p = exp(load(row + j) - splat(top));
      store(row + j, p);
      sum = sum + p;
    }
    alignas(64) float shrink[kLanes];
    store(shrink, exp(splat(s.best[i] - top)));
    s.sum[i] = s.sum[i] * shrink[0] + sum_lanes(sum);
    s.best[i] = top;
    const Vec factor = splat(shrink[0]);
    for (int d = 0; d < wide; d += kLanes)
      store(s.out + i * wide + d, load(s.out + i * wide + d) * factor);
  }
  small_product(t.count, wide,
                {.a = s.scores,
                 .a_row = kC,
                 .a_k = 1,
                 .b = values,
                 .b_k = wide,
                 .c = s.out,
                 .c_row = wide,
                 .kc = kC,
                 .accumulate = true});
}

void attention_end(const AttentionTile& t, float* scratch) {
  const int wide = padded(t.head_dim);
  const Scratch s = split(scratch, t.head_dim, wide);
  for (int i = 0; i < t.count; ++i) {
    const Vec inverse = splat(1.0f / s.sum[i]);
    for_lanes(t.head_dim, [&](std::int64_t d, int n) {
      const Vec o = load_some(s.out + i * wide + d, n) * inverse;
      store_some(t.out[i] + d, o * sigmoid(load_some(t.gate[i] + d, n)), n);
    });
  }
}

}  // namespace openjev::cpu::OPENJEV_ISA
