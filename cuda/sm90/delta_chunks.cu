// What a chunk of the delta rule gives without the state: W, U, P and the decays of its rows, for
// every chunk and value head. Formulas: kernels/delta_rule.cu.
//
// A block is a warpgroup and does one chunk and value head; value heads of one key head are
// neighbours in the grid and find its keys in L2. K K^T, K Q^T, W and U^T are warpgroup products. P
// is computed transposed, so that warp w has w + 1 row blocks of 16 of A and 4 - w of P^T, five in
// every warp; zero blocks are skipped after the product. M is stored transposed, because a warp has
// a column of it, and both of its products read it so. U comes out transposed, as the scan wants
// it. A and then M share the memory of Q, which is dead by then: 49 KiB a block, four blocks an SM,
// so that one block's substitution hides behind another's loads.
//
// Of long prompts a block does every so manieth chunk and head instead, first chunks first. Two
// blocks fill an SM beside one of the scan, which starts once all of them have and takes each chunk
// as its flag says that it is done.
//
// Rounding: K K^T, K Q^T with float32 accumulation; A and the inverse's diagonal blocks in float32;
// its other blocks by tf32 products; M diag(.) rounded to bfloat16 once; U, W, P rounded at the
// end.
#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/kernels/delta_inverse.cuh"
#include "cuda/launch.h"
#include "cuda/ptx/flags.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/warp_roles.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace openjev::cuda {
namespace {

struct ChunkKernelArgs {
  DeltaShape shape;
  Rows q, k, v;
  const float *beta, *log_decay;
  std::int64_t beta_stride, decay_stride;
  const std::int32_t *chunk_rows, *chunk_length;
  unsigned char* products;
  std::uint32_t* ready;  // null: nobody follows
  std::int32_t chunks;
};

struct alignas(1024) ChunkShared {
  unsigned char k[kTileBytes];
  unsigned char v[kTileBytes];
  union {
    unsigned char q[kTileBytes];
    float inverse[kChunk * kChunk];  // A, then inverses of its diagonal blocks in their places
    struct {
      unsigned char m[kPanelBytes];         // row j: beta_j M_ij
      unsigned char m_growth[kPanelBytes];  // row j: beta_j exp(b_j) M_ij
    };
  };
  float beta[kChunk];
  float decay[kChunk];        // b
  float beta_growth[kChunk];  // beta_i exp(b_i)
};

// Accumulators, see wgmma.cuh.
using Pairs = float[kChunk / 2];

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

// kk = K K^T, kq = K Q^T
__device__ __forceinline__ void pair_products(const ChunkShared& s, Pairs& kk, Pairs& kq) {
  const std::uint64_t keys = ptx::k_major(ptx::shared_address(s.k)),
                      queries = ptx::k_major(ptx::shared_address(s.q));
  ptx::products_begin();
#pragma unroll
  for (int step = 0; step < kDeltaDim / 16; ++step) {
    const auto offset = static_cast<std::uint64_t>(step / 4 * kPanelBytes + step % 4 * 32) / 16;
    ptx::multiply_half_64x64x16(kk, keys + offset, keys + offset, step != 0);
    ptx::multiply_half_64x64x16(kq, keys + offset, queries + offset, step != 0);
  }
  ptx::products_commit();
  ptx::products_wait<0>(kk);
  ptx::pin(kq);
}

// x exp(b_i - b_j) where j < end, 0 elsewhere; the difference is masked before exp.
__device__ __forceinline__ float decayed(float x, float bi, float bj, int j, int end) {
  const bool keep = j < end;
  const float factor = __expf(keep ? bi - bj : 0.0f);
  return keep ? x * factor : 0.0f;
}

// Rows 16 w ... 16 w + 15 of A, w this warp, up to the diagonal. Left of the diagonal block
// exp(b_i - b_j) is exp(b_i - r) exp(r - b_j), where r = b of the first row keeps both below 1.
__device__ __forceinline__ void store_a(ChunkShared& s, const Lane& l, const Pairs& kk) {
  const int row = kBlock * l.warp + l.g;
  const float between = s.decay[kBlock * l.warp];
  const float b[2] = {s.decay[row], s.decay[row + 8]};
  const float beta[2] = {s.beta[row], s.beta[row + 8]};
  const float grown[2] = {beta[0] * __expf(b[0] - between), beta[1] * __expf(b[1] - between)};
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    if (n / 2 > l.warp) continue;
    const int j = 8 * n + 2 * l.t;
    const float2 bj = *reinterpret_cast<const float2*>(s.decay + j);
    float2 value[2];
    if (n / 2 < l.warp) {
      const float2 shrunk{__expf(between - bj.x), __expf(between - bj.y)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        value[h] = {kk[4 * n + 2 * h] * (grown[h] * shrunk.x),
                    kk[4 * n + 2 * h + 1] * (grown[h] * shrunk.y)};
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row + 8 * h;
        value[h] = {beta[h] * decayed(kk[4 * n + 2 * h], b[h], bj.x, j, i),
                    beta[h] * decayed(kk[4 * n + 2 * h + 1], b[h], bj.y, j + 1, i)};
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<float2*>(s.inverse + at(row + 8 * h, j)) = value[h];
    }
  }
}

// Columns 16 w ... 16 w + 15 of P, w this warp, from the diagonal down; in the same way.
__device__ __forceinline__ void store_p(const ChunkShared& s, const Lane& l, const Pairs& kq,
                                        unsigned char* p) {
  const int column = kBlock * l.warp + l.g;
  const float between = s.decay[kBlock * l.warp + kBlock - 1];
  const float b[2] = {s.decay[column], s.decay[column + 8]};
  const float shrunk[2] = {__expf(between - b[0]), __expf(between - b[1])};
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    if (n / 2 < l.warp) continue;
    const int i = 8 * n + 2 * l.t;
    const float2 bi = *reinterpret_cast<const float2*>(s.decay + i);
    std::uint32_t bits[2];
    if (n / 2 > l.warp) {
      const float2 grown{__expf(bi.x - between), __expf(bi.y - between)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        bits[h] = pack_f16(kq[4 * n + 2 * h] * (shrunk[h] * grown.x),
                           kq[4 * n + 2 * h + 1] * (shrunk[h] * grown.y));
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int j = column + 8 * h;
        bits[h] = pack_f16(decayed(kq[4 * n + 2 * h], bi.x, b[h], j, i + 1),
                           decayed(kq[4 * n + 2 * h + 1], bi.y, b[h], j, i + 2));
      }
    }
    const FourColumns out =
        four_columns(ptx::transpose_tile(bits[0]), ptx::transpose_tile(bits[1]));
    const int j = kBlock * l.warp + out.column;
    *reinterpret_cast<uint2*>(p + tile_offset(8 * n + l.g, j / 8) + j % 8 * 2) = out.bits;
  }
}

// A block M_rc^T, c this warp, into both tiles.
__device__ __forceinline__ void store_block(ChunkShared& s, const Lane& l, int r,
                                            const float (&block)[2][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int j = kBlock * l.warp + l.g + 8 * h;
    const float beta = s.beta[j], growth = s.beta_growth[j];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float x = block[n][2 * h], y = block[n][2 * h + 1];
      const int offset = tile_offset(j, 2 * r + n) + 4 * l.t;
      *reinterpret_cast<std::uint32_t*>(s.m + offset) = pack_f16(x * beta, y * beta);
      *reinterpret_cast<std::uint32_t*>(s.m_growth + offset) = pack_f16(x * growth, y * growth);
    }
  }
}

// Column c of M, zeros above the diagonal.
__device__ __forceinline__ void store_column_of_m(ChunkShared& s, const Lane& l,
                                                  const float (&diagonal)[2][4],
                                                  const float (&below)[kBlocks - 1][2][4]) {
  const int row = kBlock * l.warp + l.lane % kBlock;
  for (int piece = l.lane / kBlock; piece < 2 * l.warp; piece += 2) {
    const int offset = tile_offset(row, piece);
    *reinterpret_cast<uint4*>(s.m + offset) = {0, 0, 0, 0};
    *reinterpret_cast<uint4*>(s.m_growth + offset) = {0, 0, 0, 0};
  }
  store_block(s, l, l.warp, diagonal);
#pragma unroll
  for (int r = 1; r < kBlocks; ++r) {
    if (r > l.warp) store_block(s, l, r, below[r - 1]);
  }
}

constexpr std::uint64_t kColumnStep = 16 * 128 / 16;  // 16 steps of k, in units of descriptors

// w = columns 64 `half` ... of M diag(beta exp(b)) K, issued.
__device__ __forceinline__ void multiply_w(const ChunkShared& s, int half, Pairs& w) {
  const std::uint64_t m = ptx::column_major_panels(ptx::shared_address(s.m_growth), kPanelBytes),
                      k = ptx::column_major_panels(ptx::shared_address(s.k + half * kPanelBytes),
                                                   kPanelBytes);
  ptx::products_begin();
#pragma unroll
  for (unsigned step = 0; step < kBlocks; ++step) {
    ptx::multiply_columns_64x64x16(w, m + step * kColumnStep, k + step * kColumnStep, step != 0);
  }
  ptx::products_commit();
}

// u = rows 64 `half` ... of (M diag(beta) V)^T, issued.
__device__ __forceinline__ void multiply_u(const ChunkShared& s, int half, Pairs& u) {
  const std::uint64_t v = ptx::column_major_panels(ptx::shared_address(s.v + half * kPanelBytes),
                                                   kPanelBytes),
                      m = ptx::column_major_panels(ptx::shared_address(s.m), kPanelBytes);
  ptx::products_begin();
#pragma unroll
  for (unsigned step = 0; step < kBlocks; ++step) {
    ptx::multiply_columns_64x64x16(u, v + step * kColumnStep, m + step * kColumnStep, step != 0);
  }
  ptx::products_commit();
}

__device__ __forceinline__ void store_w(const Pairs& c, int half, const Lane& l, unsigned char* w) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const FourColumns out =
          four_columns(pack_f16(c[4 * n + 2 * h], c[4 * n + 2 * h + 1]),
                       pack_f16(c[4 * n + 4 + 2 * h], c[4 * n + 4 + 2 * h + 1]));
      const int column = 64 * half + 8 * n + out.column, row = kBlock * l.warp + 8 * h + l.g;
      *reinterpret_cast<uint2*>(w + tile_offset(row, column / 8) + column % 8 * 2) = out.bits;
    }
  }
}

// U^T in the fragments the scan adds to: x, y are rows g, g + 8 of columns 2t.. of the block's
// first eight chunk rows, z, w the same of its last eight.
__device__ __forceinline__ void store_u(const Pairs& c, int half, const Lane& l, unsigned char* u) {
  const int column_block = half * kBlocks + l.warp;
#pragma unroll
  for (int r = 0; r < kBlocks; ++r) {
    const uint4 bits{pack_f16(c[8 * r], c[8 * r + 1]), pack_f16(c[8 * r + 2], c[8 * r + 3]),
                     pack_f16(c[8 * r + 4], c[8 * r + 5]), pack_f16(c[8 * r + 6], c[8 * r + 7])};
    reinterpret_cast<uint4*>(u)[(column_block * kBlocks + r) * kWarp + l.lane] = bits;
  }
}

// M's products, once it is in shared memory: one is stored while the next is computed.
__device__ __forceinline__ void multiply_inverse(const ChunkShared& s, const Lane& l,
                                                 unsigned char* products) {
  Pairs w[2], u[2];
  multiply_w(s, 0, w[0]);
  multiply_w(s, 1, w[1]);
  ptx::products_wait<1>(w[0]);
  store_w(w[0], 0, l, products + ChunkProducts::w);
  multiply_u(s, 0, u[0]);
  ptx::products_wait<1>(w[1]);
  store_w(w[1], 1, l, products + ChunkProducts::w);
  multiply_u(s, 1, u[1]);
  ptx::products_wait<1>(u[0]);
  store_u(u[0], 0, l, products + ChunkProducts::u);
  ptx::products_wait<0>(u[1]);
  store_u(u[1], 1, l, products + ChunkProducts::u);
}

// Index of row 16 w + i of the chunk for lanes i and i + 16 of warp w.
__device__ __forceinline__ int row_index(const ChunkKernelArgs& a, int chunk, const Lane& l) {
  return a.chunk_rows[chunk * kChunk + kBlock * l.warp + l.lane % kBlock];
}

// Starts copying K and Q, then V.
__device__ __forceinline__ void copy_tiles(const ChunkKernelArgs& a, int head, int row,
                                           ChunkShared& s) {
  const int key_column = head / (a.shape.value_heads / a.shape.key_heads) * kDeltaDim;
  gather_tile(ptx::shared_address(s.k), a.k, key_column, row);
  gather_tile(ptx::shared_address(s.q), a.q, key_column, row);
  ptx::cp_async_commit();
  gather_tile(ptx::shared_address(s.v), a.v, head * kDeltaDim, row);
  ptx::cp_async_commit();
}

// Everything about a chunk and head; lanes i and i + 16 of warp w hold the index of row 16 w + i.
__device__ __forceinline__ void do_chunk(const ChunkKernelArgs& a, int chunk, int head, int row,
                                         const Lane& l, ChunkShared& s) {
  unsigned char* products =
      a.products +
      (static_cast<std::int64_t>(chunk) * a.shape.value_heads + head) * ChunkProducts::bytes;
  copy_tiles(a, head, row, s);
  if (l.warp == 0) {
    cumulate(a, chunk, head, l.lane, s, reinterpret_cast<float*>(products + ChunkProducts::decays));
  }
  ptx::cp_async_wait<1>();
  ptx::publish_shared_writes();
  __syncthreads();

  Pairs kk, kq;
  pair_products(s, kk, kq);
  __syncthreads();  // Q is dead
  store_a(s, l, kk);
  __syncwarp();
  invert_diagonal_block(s.inverse, l);
  store_p(s, l, kq, products + ChunkProducts::p);
  __syncthreads();
  float diagonal[2][4], below[kBlocks - 1][2][4];
  load_diagonal(s.inverse, l, diagonal);
  invert_column(s.inverse, l, diagonal, below);
  __syncthreads();  // A is dead
  store_column_of_m(s, l, diagonal, below);
  ptx::cp_async_wait<0>();
  ptx::publish_shared_writes();
  __syncthreads();
  multiply_inverse(s, l, products);
}

__global__ void __launch_bounds__(kDeltaThreads, 4)
    delta_chunks_wgmma(const __grid_constant__ ChunkKernelArgs a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  grid_dependency_wait();
  grid_dependency_launch();
  // From the last chunk to the first, so that the scan finds in L2 what it reads first.
  const int head = static_cast<int>(blockIdx.x);
  const int chunk = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  const Lane l = this_lane();
  const int row = row_index(a, chunk, l);
  if (a.chunk_length[chunk] == 0) return;
  do_chunk(a, chunk, head, row, l, *reinterpret_cast<ChunkShared*>(shared));
}

__global__ void __launch_bounds__(kDeltaThreads, 4)
    delta_chunks_followed(const __grid_constant__ ChunkKernelArgs a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int heads = a.shape.value_heads, items = a.chunks * heads;
  const int blocks = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
  int row = row_index(a, first / heads, this_lane());
  grid_dependency_wait();
  // Nobody but this block sets its flags, and the scan starts when every block has come so far.
  for (int item = first + static_cast<int>(threadIdx.x) * blocks; item < items;
       item += kDeltaThreads * blocks) {
    ptx::store_release(a.ready + item, 0);
  }
  __syncthreads();
  grid_dependency_launch();
#pragma unroll 1
  for (int item = first; item < items; item += blocks) {
    const int chunk = item / heads, head = item % heads;
    const Lane l = this_lane();
    const int here = row;
    row = row_index(a, min(item + blocks, items - 1) / heads, l);
    if (a.chunk_length[chunk] == 0) continue;
    do_chunk(a, chunk, head, here, l, *reinterpret_cast<ChunkShared*>(shared));
    __syncthreads();  // products are stored, tiles dead
    if (threadIdx.x == 0) ptx::store_release(a.ready + item, 1);
  }
}

Rows rows_of(const View& view) { return {view.row<const __half>(0), view.stride}; }

}  // namespace

void prepare_delta_chunks() {
  allow_shared("delta_chunks", delta_chunks_wgmma, sizeof(ChunkShared));
  allow_shared("delta_chunks", delta_chunks_followed, sizeof(ChunkShared));
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
                                    .products = args.scratch.row<unsigned char>(0),
                                    .ready = ready_flags(args, plan),
                                    .chunks = static_cast<std::int32_t>(plan.chunks)};
  const bool followed = kernel_args.ready != nullptr;
  const dim3 grid = followed ? dim3(static_cast<unsigned>(kFollowedBlocksPerSm * multiprocessors()))
                             : dim3(static_cast<unsigned>(args.shape.value_heads),
                                    static_cast<unsigned>(plan.chunks));
  launch("delta_chunks", followed ? delta_chunks_followed : delta_chunks_wgmma, grid,
         dim3(kDeltaThreads), sizeof(ChunkShared), stream, kernel_args);
}

}  // namespace openjev::cuda
