// What a chunk of the delta rule gives without the state: W, U, P and the decays of its rows, for
// every chunk and value head. Formulas: delta_rule.cu.
//
// One block of four warps a chunk and value head; value heads of one key head are neighbours in the
// grid and find its keys in L2. All products are warp-level mma on 16 x 16 blocks; zero blocks
// above the diagonal are skipped and the rest is dealt out evenly: warp w takes row block w of K
// K^T and row block 3 - w of Q K^T, five blocks each. A and M share the memory of Q, which is dead
// by then: 49 KiB a block, four blocks an SM, so that one block's substitution hides behind
// another's loads.
//
// Rounding: K K^T, Q K^T with float32 accumulation; A and the inverse's diagonal blocks in float32;
// its other blocks by tf32 products; M diag(.) rounded to bfloat16 once; U, W, P rounded at the
// end.
#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/kernels/delta_inverse.cuh"
#include "cuda/launch.h"
#include "cuda/ptx/mma.cuh"

namespace openjev::cuda {
namespace {

constexpr int kPairs = kBlocks + 1;  // blocks of K K^T and Q K^T a warp computes

struct ChunkKernelArgs {
  DeltaShape shape;
  Rows q, k, v;
  const float *beta, *log_decay;
  std::int64_t beta_stride, decay_stride;
  const std::int32_t *chunk_rows, *chunk_length;
  unsigned char* products;
};

struct alignas(1024) ChunkShared {
  unsigned char k[kTileBytes];
  unsigned char v[kTileBytes];
  union {
    unsigned char q[kTileBytes];
    float inverse[kChunk * kChunk];  // A, then M in its place
  };
  float beta[kChunk];
  float decay[kChunk];        // b
  float beta_growth[kChunk];  // beta_i exp(b_i)
};

// One warp: b by a scan of 32 pairs, always in the same order, and what follows from it.
__device__ void cumulate(const ChunkKernelArgs& a, int chunk, int head, int lane, ChunkShared& s,
                         float* decays) {
  const int2 row = reinterpret_cast<const int2*>(a.chunk_rows + chunk * kChunk)[lane];
  float2 beta{0.0f, 0.0f}, g{0.0f, 0.0f};
  if (row.x >= 0) {
    beta.x = a.beta[row.x * a.beta_stride + head];
    g.x = a.log_decay[row.x * a.decay_stride + head];
  }
  if (row.y >= 0) {
    beta.y = a.beta[row.y * a.beta_stride + head];
    g.y = a.log_decay[row.y * a.decay_stride + head];
  }
  const float both = g.x + g.y;
  float sum = both;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const float before = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += before;
  }
  float before = __shfl_up_sync(~0u, sum, 1);
  if (lane == 0) before = 0.0f;
  const float2 b{before + g.x, before + g.x + g.y};
  const float last = __shfl_sync(~0u, b.y, kWarp - 1);
  const float2 growth{__expf(b.x), __expf(b.y)};
  reinterpret_cast<float2*>(s.beta)[lane] = beta;
  reinterpret_cast<float2*>(s.decay)[lane] = b;
  reinterpret_cast<float2*>(s.beta_growth)[lane] = {beta.x * growth.x, beta.y * growth.y};
  reinterpret_cast<float2*>(decays)[lane] = growth;
  reinterpret_cast<float2*>(decays + kChunk)[lane] = {__expf(last - b.x), __expf(last - b.y)};
}

// This warp's blocks: 0 .. w of row block w of K K^T, then 0 .. 3 - w of row block 3 - w of Q K^T.
__device__ void pair_products(const ChunkShared& s, const Lane& l, float (&c)[kPairs][2][4]) {
  const std::uint32_t keys = ptx::shared_address(s.k), queries = ptx::shared_address(s.q);
  const int a_row = l.lane & 15, a_piece = l.lane >> 4;
  const int b_row = (l.lane & 7) + ((l.lane >> 4) << 3), b_piece = (l.lane >> 3) & 1;
#pragma unroll
  for (int step = 0; step < kDeltaDim / 16; ++step) {
    std::uint32_t ak[4], aq[4];
    const int key_row = kBlock * l.warp + a_row, query_row = kBlock * (3 - l.warp) + a_row;
    ptx::ldmatrix_x4(ak,
                     keys + static_cast<std::uint32_t>(tile_offset(key_row, 2 * step + a_piece)));
    ptx::ldmatrix_x4(
        aq, queries + static_cast<std::uint32_t>(tile_offset(query_row, 2 * step + a_piece)));
#pragma unroll
    for (int e = 0; e < kPairs; ++e) {
      const bool key = e <= l.warp;
      const int column = key ? e : e - l.warp - 1;
      const int row = kBlock * column + b_row;
      std::uint32_t b[4];
      ptx::ldmatrix_x4(b, keys + static_cast<std::uint32_t>(tile_offset(row, 2 * step + b_piece)));
      const std::uint32_t a[4] = {key ? ak[0] : aq[0], key ? ak[1] : aq[1], key ? ak[2] : aq[2],
                                  key ? ak[3] : aq[3]};
      ptx::mma_bf16(c[e][0], a, b[0], b[1]);
      ptx::mma_bf16(c[e][1], a, b[2], b[3]);
    }
  }
}

// x exp(b_i - b_j) where j < end, 0 elsewhere; the difference is masked before exp.
__device__ __forceinline__ float decayed(float x, float bi, float bj, int j, int end) {
  const bool keep = j < end;
  const float factor = __expf(keep ? bi - bj : 0.0f);
  return keep ? x * factor : 0.0f;
}

// A to shared memory, P to the scratch panel.
__device__ void store_pairs(ChunkShared& s, const Lane& l, const float (&c)[kPairs][2][4],
                            unsigned char* p) {
#pragma unroll
  for (int e = 0; e < kPairs; ++e) {
    const bool key = e <= l.warp;
    const int row_block = key ? l.warp : 3 - l.warp, column = key ? e : e - l.warp - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kBlock * row_block + 8 * half + l.g;
      const int end = key ? i : i + 1;
      const float bi = s.decay[i];
      float2 value[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int j = kBlock * column + 8 * n + 2 * l.t;
        const float2 bj = *reinterpret_cast<const float2*>(s.decay + j);
        value[n] = {decayed(c[e][n][2 * half], bi, bj.x, j, end),
                    decayed(c[e][n][2 * half + 1], bi, bj.y, j + 1, end)};
      }
      if (key) {
        const float beta = s.beta[i];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          *reinterpret_cast<float2*>(s.inverse + at(i, kBlock * column + 8 * n + 2 * l.t)) = {
              beta * value[n].x, beta * value[n].y};
        }
      } else {
        const FourColumns out =
            four_columns(pack_bf16(value[0].x, value[0].y), pack_bf16(value[1].x, value[1].y));
        const int at_column = kBlock * column + out.column;
        *reinterpret_cast<uint2*>(p + tile_offset(i, at_column / 8) + at_column % 8 * 2) = out.bits;
      }
    }
  }
}

// Columns 32 w .. 32 w + 31, w this warp, of M diag(scale) tile; c by row block and by eight
// columns.
__device__ void times_tile(const float* m, const float* scale, std::uint32_t tile, const Lane& l,
                           float (&c)[kBlocks][4][4]) {
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    std::uint32_t b[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int piece = 4 * l.warp + 2 * n + (l.lane >> 4);
      ptx::ldmatrix_x4_trans(
          b[n], tile + static_cast<std::uint32_t>(tile_offset(kBlock * k + (l.lane & 15), piece)));
    }
    const int col = kBlock * k + 2 * l.t;
    const float2 s0 = *reinterpret_cast<const float2*>(scale + col);
    const float2 s1 = *reinterpret_cast<const float2*>(scale + col + 8);
#pragma unroll
    for (int r = k; r < kBlocks; ++r) {
      const int row = kBlock * r + l.g;
      const float2 x0 = pair_at(m, row, col), x1 = pair_at(m, row + 8, col);
      const float2 x2 = pair_at(m, row, col + 8), x3 = pair_at(m, row + 8, col + 8);
      const std::uint32_t a[4] = {
          pack_bf16(x0.x * s0.x, x0.y * s0.y), pack_bf16(x1.x * s0.x, x1.y * s0.y),
          pack_bf16(x2.x * s1.x, x2.y * s1.y), pack_bf16(x3.x * s1.x, x3.y * s1.y)};
#pragma unroll
      for (int n = 0; n < 4; ++n)
        ptx::mma_bf16(c[r][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
  }
}

__device__ void store_w(const float (&c)[kBlocks][4][4], const Lane& l, unsigned char* w) {
#pragma unroll
  for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const FourColumns out =
            four_columns(pack_bf16(c[r][n][2 * half], c[r][n][2 * half + 1]),
                         pack_bf16(c[r][n + 1][2 * half], c[r][n + 1][2 * half + 1]));
        const int col = 32 * l.warp + 8 * n + out.column;
        *reinterpret_cast<uint2*>(w + tile_offset(kBlock * r + 8 * half + l.g, col / 8) +
                                  col % 8 * 2) = out.bits;
      }
    }
  }
}

// U^T in the fragments the scan adds to: x, y are rows g, g + 8 of columns 2t.. of the block's
// first eight chunk rows, z, w the same of its last eight.
__device__ void store_u(const float (&c)[kBlocks][4][4], const Lane& l, unsigned char* u) {
#pragma unroll
  for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      const uint4 bits{ptx::transpose_tile(pack_bf16(c[r][n][0], c[r][n][1])),
                       ptx::transpose_tile(pack_bf16(c[r][n + 1][0], c[r][n + 1][1])),
                       ptx::transpose_tile(pack_bf16(c[r][n][2], c[r][n][3])),
                       ptx::transpose_tile(pack_bf16(c[r][n + 1][2], c[r][n + 1][3]))};
      const int column_block = 2 * l.warp + n / 2;
      reinterpret_cast<uint4*>(u)[(column_block * kBlocks + r) * kWarp + l.lane] = bits;
    }
  }
}

__global__ void __launch_bounds__(kDeltaThreads, 4)
    delta_chunks_kernel(const __grid_constant__ ChunkKernelArgs a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  ChunkShared& s = *reinterpret_cast<ChunkShared*>(shared);
  grid_dependency_wait();
  grid_dependency_launch();
  const int head = static_cast<int>(blockIdx.x), chunk = static_cast<int>(blockIdx.y);
  const Lane l = this_lane();
  const int row = a.chunk_rows[chunk * kChunk + kBlock * l.warp + l.lane % kBlock];
  if (a.chunk_length[chunk] == 0) return;

  const int key_column = head / (a.shape.value_heads / a.shape.key_heads) * kDeltaDim;
  gather_tile(ptx::shared_address(s.k), a.k, key_column, row);
  gather_tile(ptx::shared_address(s.q), a.q, key_column, row);
  ptx::cp_async_commit();
  gather_tile(ptx::shared_address(s.v), a.v, head * kDeltaDim, row);
  ptx::cp_async_commit();
  unsigned char* products =
      a.products +
      (static_cast<std::int64_t>(chunk) * a.shape.value_heads + head) * ChunkProducts::bytes;
  if (l.warp == 0) {
    cumulate(a, chunk, head, l.lane, s, reinterpret_cast<float*>(products + ChunkProducts::decays));
  }
  ptx::cp_async_wait<1>();
  __syncthreads();

  float pairs[kPairs][2][4] = {};
  pair_products(s, l, pairs);
  __syncthreads();  // Q is dead
  store_pairs(s, l, pairs, products + ChunkProducts::p);
  __syncwarp();
  invert_diagonal_block(s.inverse, l);
  ptx::cp_async_wait<0>();
  __syncthreads();
  float below[kBlocks - 1][2][4];
  invert_column(s.inverse, l, below);
  __syncthreads();  // A is dead
  store_column(s.inverse, l, below);
  __syncthreads();

  {
    float w[kBlocks][4][4] = {};
    times_tile(s.inverse, s.beta_growth, ptx::shared_address(s.k), l, w);
    store_w(w, l, products + ChunkProducts::w);
  }
  __syncwarp();  // M is read again rather than kept in registers
  float u[kBlocks][4][4] = {};
  times_tile(s.inverse, s.beta, ptx::shared_address(s.v), l, u);
  store_u(u, l, products + ChunkProducts::u);
}

Rows rows_of(const View& view) { return {view.row<const __nv_bfloat16>(0), view.stride}; }

}  // namespace

void prepare_delta_chunks() {
  allow_shared("delta_chunks", delta_chunks_kernel, sizeof(ChunkShared));
}

void delta_chunks(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream) {
  const ChunkKernelArgs kernel_args{.shape = args.shape,
                                    .q = rows_of(args.q),
                                    .k = rows_of(args.k),
                                    .v = rows_of(args.v),
                                    .beta = args.beta.row<const float>(0),
                                    .log_decay = args.log_decay.row<const float>(0),
                                    .beta_stride = args.beta.stride,
                                    .decay_stride = args.log_decay.stride,
                                    .chunk_rows = plan.chunk_rows.data(),
                                    .chunk_length = plan.chunk_length.data(),
                                    .products = args.scratch.row<unsigned char>(0)};
  const dim3 grid(static_cast<unsigned>(args.shape.value_heads),
                  static_cast<unsigned>(plan.chunks));
  launch("delta_chunks", delta_chunks_kernel, grid, dim3(kDeltaThreads), sizeof(ChunkShared),
         stream, kernel_args);
}

}  // namespace openjev::cuda
