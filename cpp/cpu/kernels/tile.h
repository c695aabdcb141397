// The register tile under every matrix product: c[MR][2 vectors] = (c +) a[MR][kc] b[kc][2
// vectors]. Each output element is one chain of fused multiply-adds in ascending k, whatever MR is,
// so a row's result does not depend on its neighbours.
#pragma once

#include "cpu/kernels/simd.h"

namespace openjev::cpu::OPENJEV_ISA {

#if defined(OPENJEV_ISA_avx512)
inline constexpr int kTileRows = 12;  // 24 accumulators + 2 of b of 32 registers
#elif defined(OPENJEV_ISA_avx2)
inline constexpr int kTileRows = 6;  // 12 accumulators + 2 of b + 1 broadcast of 16 registers
#else
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTileCols = 2 * kLanes;

struct TileArgs {
  const float* a;
  std::int64_t a_row, a_k;  // a(m, k) = a[m * a_row + k * a_k]
  const float* b;
  std::int64_t b_k;  // b(k, n) = b[k * b_k + n]
  float* c;
  std::int64_t c_row;
  std::int64_t kc;
  bool accumulate;
};

template <int MR>
OJ_INLINE void tile(const TileArgs& t) {
  Vec acc[MR][2];
  for (int m = 0; m < MR; ++m) acc[m][0] = acc[m][1] = splat(0.0f);
  const float* a = t.a;
  const float* b = t.b;
  for (std::int64_t k = 0; k < t.kc; ++k, a += t.a_k, b += t.b_k) {
    const Vec b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < MR; ++m) {
      const Vec x = splat(a[m * t.a_row]);
      acc[m][0] = madd(x, b0, acc[m][0]);
      acc[m][1] = madd(x, b1, acc[m][1]);
    }
  }
  for (int m = 0; m < MR; ++m) {
    float* c = t.c + m * t.c_row;
    store(c, t.accumulate ? load(c) + acc[m][0] : acc[m][0]);
    store(c + kLanes, t.accumulate ? load(c + kLanes) + acc[m][1] : acc[m][1]);
  }
}

template <int MR>
OJ_INLINE void tile_exactly(int rows, const TileArgs& t) {
  if (rows == MR) {
    tile<MR>(t);
  } else if constexpr (MR > 1) {
    tile_exactly<MR - 1>(rows, t);
  }
}

// rows <= kTileRows
[[maybe_unused]] __attribute__((noinline)) static void tile_rows(int rows, const TileArgs& t) {
  tile_exactly<kTileRows>(rows, t);
}

// c[m][n] = (c +) a b for n a multiple of kTileCols. Column block outermost: its part of b stays in
// L1.
[[maybe_unused]] static void small_product(int m, int n, TileArgs t) {
  for (int col = 0; col < n; col += kTileCols) {
    TileArgs block = t;
    block.b += col;
    for (int row = 0; row < m; row += kTileRows) {
      const int rows = m - row < kTileRows ? m - row : kTileRows;
      block.a = t.a + row * t.a_row;
      block.c = t.c + row * t.c_row + col;
      tile_rows(rows, block);
    }
  }
}

}  // namespace openjev::cpu::OPENJEV_ISA
