// The gated delta rule over one chunk of up to 64 rows, for one value head. With S the state before
// the chunk, b_i = g_0 + ... + g_i, D_ij = exp(b_i - b_j) for j <= i:
//
//   A_ij = beta_i (k_i . k_j) D_ij   (j < i)          P_ij = (q_i . k_j) D_ij   (j <= i)
//   R_i  = beta_i (v_i - exp(b_i) S^T k_i)            (I + A) X = R, solved forward row by row
//   o_i  = exp(b_i) S^T q_i + sum_j P_ij X_j          S <- exp(b_63) S + sum_j exp(b_63 - b_j) k_j
//   X_j^T
//
// This is the chunked form of Yang et al., "Gated Delta Networks", with the triangular inverse
// applied to the right-hand side instead of being formed. Row i reads rows j <= i only, with the
// same arithmetic in a short and in a full chunk.
#include "cpu/kernels/table.h"
#include "cpu/kernels/tile.h"

namespace openjev::cpu::OPENJEV_ISA {
namespace {

constexpr int kC = 64;

struct Scratch {
  float *keys_t, *kk, *qk, *decayed, *reads, *x, *q, *k, *cumulative, *growth;
};

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

Scratch split(float* p, int dk, int dv) {
  const std::int64_t wide = round_up(dv, kTileCols);
  Scratch s{};
  auto take = [&p](std::int64_t count) {
    float* out = p;
    p += round_up(count, 16);
    return out;
  };
  s.keys_t = take(std::int64_t{dk} * kC);
  s.kk = take(kC * kC);
  s.qk = take(kC * kC);
  s.decayed = take(std::int64_t{dk} * wide);
  s.reads = take(kC * wide);
  s.x = take(kC * wide);
  s.q = take(std::int64_t{kC} * dk);
  s.k = take(std::int64_t{kC} * dk);
  s.cumulative = take(kC);
  s.growth = take(kC);
  return s;
}

// Copies rows into [kC][dk], zero beyond the chunk's length.
void gather(const float* const* rows, int length, int dk, float* out) {
  for (int i = 0; i < kC; ++i) {
    for (int d = 0; d < dk; ++d) out[i * dk + d] = i < length ? rows[i][d] : 0.0f;
  }
}

// m_ij <- m_ij * exp(b_i - b_j) * factor_i for j < end(i), 0 beyond. The difference is masked
// before exp: it is never positive where it counts.
void apply_decay(float* m, const float* b, const float* factor, int length, int diagonal) {
  for (int i = 0; i < length; ++i) {
    float* row = m + i * kC;
    const Vec bi = splat(b[i]), f = splat(factor ? factor[i] : 1.0f);
    const int end = i + diagonal;
    for (int j = 0; j < kC; j += kLanes) {
      if (j >= end) {
        store(row + j, splat(0.0f));
        continue;
      }
      const Vec difference = bi - load(b + j);
      const Vec value =
          load(row + j) *
          exp(select(reinterpret_cast<IntVec>(difference > splat(0.0f)), splat(0.0f), difference)) *
          f;
      store(row + j, value);
      for (int o = end - j; o < kLanes; ++o) row[j + o] = 0.0f;
    }
  }
}

// X_i = R_i - sum_{j<i} A_ij X_j, in place, kTileCols columns at a time in registers.
void solve_forward(const float* a, int length, std::int64_t wide, float* x) {
  for (std::int64_t col = 0; col < wide; col += kTileCols) {
    for (int i = 1; i < length; ++i) {
      float* row = x + i * wide + col;
      Vec s0 = load(row), s1 = load(row + kLanes);
      for (int j = 0; j < i; ++j) {
        const Vec f = splat(-a[i * kC + j]);
        const float* other = x + j * wide + col;
        s0 = madd(f, load(other), s0);
        s1 = madd(f, load(other + kLanes), s1);
      }
      store(row, s0);
      store(row + kLanes, s1);
    }
  }
}

void load_state(const DeltaChunk& c, std::int64_t wide, float* out) {
  for (int d = 0; d < c.dk; ++d) {
    for (int e = 0; e < wide; ++e)
      out[d * wide + e] = e < c.dv ? c.state[std::int64_t{d} * c.dv + e] : 0.0f;
  }
}

void cumulate(const DeltaChunk& c, const Scratch& s) {
  float sum = 0.0f;
  for (int i = 0; i < kC; ++i) {
    if (i < c.length) sum += c.log_decay[i];
    s.cumulative[i] = sum;
  }
  for (int i = 0; i < kC; i += kLanes) store(s.growth + i, exp(load(s.cumulative + i)));
}

void right_hand_side(const DeltaChunk& c, const Scratch& s, std::int64_t wide) {
  for (int i = 0; i < kC; ++i) {
    for (int e = 0; e < wide; ++e) {
      float* x = s.x + i * wide + e;
      *x = i < c.length && e < c.dv ? c.beta[i] * (c.v[i][e] - s.growth[i] * s.reads[i * wide + e])
                                    : 0.0f;
    }
  }
}

// S <- exp(b_63) S + sum_j (exp(b_63 - b_j) k_j) X_j^T
void update_state(const DeltaChunk& c, const Scratch& s, std::int64_t wide) {
  const float last = s.cumulative[kC - 1];
  alignas(64) float weight[kC];
  for (int i = 0; i < kC; i += kLanes) store(weight + i, exp(splat(last) - load(s.cumulative + i)));
  for (int i = 0; i < kC; ++i) {
    for (int d = 0; d < c.dk; ++d) s.k[i * c.dk + d] *= weight[i];
  }
  const float decay = s.growth[kC - 1];
  for (std::int64_t i = 0; i < c.dk * wide; ++i) s.decayed[i] *= decay;
  small_product(c.dk, static_cast<int>(wide),
                {.a = s.k,
                 .a_row = 1,
                 .a_k = c.dk,
                 .b = s.x,
                 .b_k = wide,
                 .c = s.decayed,
                 .c_row = wide,
                 .kc = kC,
                 .accumulate = true});
  for (int d = 0; d < c.dk; ++d) {
    for (int e = 0; e < c.dv; ++e) c.state[std::int64_t{d} * c.dv + e] = s.decayed[d * wide + e];
  }
}

}  // namespace

std::int64_t delta_scratch(int dk, int dv) {
  const std::int64_t wide = round_up(dv, kTileCols);
  return 3 * std::int64_t{kC} * dk + 2 * kC * kC + dk * wide + 2 * kC * wide + 2 * kC + 10 * 16;
}

void delta_chunk(const DeltaChunk& c, float* scratch) {
  const std::int64_t wide = round_up(c.dv, kTileCols);
  const Scratch s = split(scratch, c.dk, c.dv);
  gather(c.q, c.length, c.dk, s.q);
  gather(c.k, c.length, c.dk, s.k);
  for (int i = 0; i < kC; ++i) {
    for (int d = 0; d < c.dk; ++d) s.keys_t[d * kC + i] = s.k[i * c.dk + d];
  }
  cumulate(c, s);
  load_state(c, wide, s.decayed);

  TileArgs keys{.a = s.k,
                .a_row = c.dk,
                .a_k = 1,
                .b = s.keys_t,
                .b_k = kC,
                .c = s.kk,
                .c_row = kC,
                .kc = c.dk,
                .accumulate = false};
  small_product(c.length, kC, keys);
  apply_decay(s.kk, s.cumulative, c.beta, c.length, 0);
  keys.a = s.q;
  keys.c = s.qk;
  small_product(c.length, kC, keys);
  apply_decay(s.qk, s.cumulative, nullptr, c.length, 1);

  TileArgs reads{.a = s.k,
                 .a_row = c.dk,
                 .a_k = 1,
                 .b = s.decayed,
                 .b_k = wide,
                 .c = s.reads,
                 .c_row = wide,
                 .kc = c.dk,
                 .accumulate = false};
  small_product(c.length, static_cast<int>(wide), reads);
  right_hand_side(c, s, wide);
  solve_forward(s.kk, c.length, wide, s.x);

  reads.a = s.q;
  small_product(c.length, static_cast<int>(wide), reads);
  for (int i = 0; i < c.length; ++i) {
    for (std::int64_t e = 0; e < wide; ++e) s.reads[i * wide + e] *= s.growth[i];
  }
  small_product(c.length, static_cast<int>(wide),
                {.a = s.qk,
                 .a_row = kC,
                 .a_k = 1,
                 .b = s.x,
                 .b_k = wide,
                 .c = s.reads,
                 .c_row = wide,
                 .kc = kC,
                 .accumulate = true});
  for (int i = c.owned; i < c.length; ++i) {
    for (int e = 0; e < c.dv; ++e) c.out[i][e] = s.reads[i * wide + e];
  }
  if (c.length == kC) update_state(c, s, wide);
}

}  // namespace openjev::cpu::OPENJEV_ISA
