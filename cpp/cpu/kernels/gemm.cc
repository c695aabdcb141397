// Matrix product with packed weights. out = x W^T in blocks of kDepthBlock over k: inside a block
// one chain of multiply-adds per element, blocks added in ascending order. bf16 panels are widened
// once per block into `scratch` (exact) and then serve all rows. Tile choice: a block of x (256
// rows x 256 k = 256 KB) stays in L2 while the panels stream past it; a widened panel (16 to 32 KB)
// stays in L1.
#include "cpu/kernels/table.h"
#include "cpu/kernels/tile.h"

namespace openjev::cpu::OPENJEV_ISA {
namespace {

constexpr std::int64_t kRowBlock = 256;

const float* widen(const GemmTask& g, std::int64_t panel, std::int64_t k0, std::int64_t kc,
                   float* scratch) {
  const std::int64_t offset = ((g.first_panel + panel) * g.k + k0) * kTileCols;
  if (!g.bf16) return static_cast<const float*>(g.packed) + offset;
  const auto* source = static_cast<const std::uint16_t*>(g.packed) + offset;
  for (std::int64_t i = 0; i < kc * kTileCols; i += kLanes)
    store(scratch + i, load_bf16(source + i));
  return scratch;
}

void run_block(const GemmTask& g, std::int64_t panel, std::int64_t k0, std::int64_t m0,
               std::int64_t m1, float* scratch) {
  const std::int64_t kc = g.k - k0 < kDepthBlock ? g.k - k0 : kDepthBlock;
  const std::int64_t col = panel * kTileCols;
  const std::int64_t cols = g.n - col < kTileCols ? g.n - col : kTileCols;
  TileArgs t{.a = nullptr,
             .a_row = g.x.stride,
             .a_k = 1,
             .b = widen(g, panel, k0, kc, scratch),
             .b_k = kTileCols,
             .c = nullptr,
             .c_row = g.out.stride,
             .kc = kc,
             .accumulate = k0 > 0};
  alignas(64) float edge[kTileRows * kTileCols];
  for (std::int64_t row = m0; row < m1; row += kTileRows) {
    const int rows = static_cast<int>(m1 - row < kTileRows ? m1 - row : kTileRows);
    float* c = g.out.data + row * g.out.stride + col;
    t.a = g.x.data + row * g.x.stride + k0;
    if (cols == kTileCols) {
      t.c = c;
      tile_rows(rows, t);
      continue;
    }
    t.c = edge;
    t.c_row = kTileCols;
    for (int m = 0; m < rows && t.accumulate; ++m) {
      for (std::int64_t n = 0; n < cols; ++n) edge[m * kTileCols + n] = c[m * g.out.stride + n];
      for (std::int64_t n = cols; n < kTileCols; ++n) edge[m * kTileCols + n] = 0.0f;
    }
    tile_rows(rows, t);
    for (int m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < cols; ++n) c[m * g.out.stride + n] = edge[m * kTileCols + n];
    }
  }
}

}  // namespace

void gemm(const GemmTask& g, std::int64_t panel_begin, std::int64_t panel_end, float* scratch) {
  const std::int64_t blocks = (g.m + kRowBlock - 1) / kRowBlock;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t m0 = g.m * block / blocks, m1 = g.m * (block + 1) / blocks;
    for (std::int64_t k0 = 0; k0 < g.k; k0 += kDepthBlock) {
      for (std::int64_t panel = panel_begin; panel < panel_end; ++panel)
        run_block(g, panel, k0, m0, m1, scratch);
    }
  }
}

}  // namespace openjev::cpu::OPENJEV_ISA
