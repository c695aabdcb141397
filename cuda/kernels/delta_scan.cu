// The scan of the delta rule along the chunks of a segment. Formulas: delta_rule.cu.
//
// Columns of S (and of U, X, O) never mix, so a block takes 64 of a head's 128 columns and each of
// its four warps 16 of them, for the whole segment. Everything is computed transposed:
//
//   X^T = U^T - S^T W^T     O^T = S^T Q^T diag(exp(b)) + X^T P^T     S^T <- e S^T + (f X)^T K
//
// where S^T [16, 128] stays in accumulators as float32, and S^T, X^T turn into left operands by
// packing their own registers. Right operands W, Q, P, K are read from shared memory by all warps.
// Warps exchange nothing: the one barrier a chunk is for the two stages of copies. Two blocks fit
// an SM (113 KiB, 255 registers), so that short segments of a branched plan overlap.
//
// Rounding: S and X to bfloat16 for the products only; f X, with f_i = exp(b_63 - b_i), is scaled
// in float32 and rounded once; O once.
#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/kernels/delta_scan.cuh"
#include "cuda/launch.h"
#include "cuda/ptx/mma.cuh"

namespace openjev::cuda {
namespace {

constexpr int kSlice = 64;  // columns of a block
constexpr int kSlices = kDeltaDim / kSlice;
constexpr int kWarpColumns = 16;
constexpr int kStateTiles = kDeltaDim / 8;  // C tiles of S^T
constexpr int kChunkTiles = kChunk / 8;     // C tiles of X^T and O^T
constexpr int kChunkSteps = kChunk / 16;
constexpr int kStateSize = kDeltaDim * kDeltaDim;

struct ScanKernelArgs {
  DeltaShape shape;
  Rows q, k;
  const unsigned char* products;
  const float* start;  // null: zero
  float* states;
  std::int64_t states_stride;
  __nv_bfloat16* out;
  std::int64_t out_stride;
  const Segment* segments;  // of this level
  const std::int32_t *chunk_rows, *chunk_length, *chunk_owned;
};

struct Tiles {
  unsigned char w[kTileBytes];
  unsigned char q[kTileBytes];
  unsigned char k[kTileBytes];
  unsigned char p[kPanelBytes];
};

struct Decays {
  float growth[kChunk];  // exp(b_i)
  float fade[kChunk];    // exp(b_63 - b_i)
};

constexpr int kStages = 2;

struct alignas(1024) ScanShared {
  Tiles tiles[kStages];
  Decays decays[kStages];
};
static_assert(2 * (sizeof(ScanShared) + 1024) <= 228 * 1024, "two blocks fit an SM");

struct Position {
  int warp, lane, g, t;
  int head;
  int key_column;    // first column of the head's keys
  int column_block;  // this warp's columns of the head, in blocks of 16
};

// Rows of a chunk: lane i has the indices of rows i and i + 32.
struct ChunkIndex {
  int low, high;
};

__device__ __forceinline__ ChunkIndex load_index(const ScanKernelArgs& a, int chunk, int lane) {
  const std::int32_t* rows = a.chunk_rows + static_cast<std::int64_t>(chunk) * kChunk;
  return {rows[lane], rows[lane + kWarp]};
}

__device__ __forceinline__ const unsigned char* products_of(const ScanKernelArgs& a, int chunk,
                                                            int head) {
  return a.products +
         (static_cast<std::int64_t>(chunk) * a.shape.value_heads + head) * ChunkProducts::bytes;
}

// Starts the copies of one chunk.
__device__ __forceinline__ void fetch(const ScanKernelArgs& a, const Position& at, int chunk,
                                      const ChunkIndex& index, Tiles& tiles, Decays& decays) {
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned char* products = products_of(a, chunk, at.head);
  const std::uint32_t w = ptx::shared_address(tiles.w), p = ptx::shared_address(tiles.p);
#pragma unroll
  for (int i = 0; i < kTileBytes; i += 16 * kDeltaThreads) {
    ptx::cp_async_16(w + static_cast<std::uint32_t>(i + 16 * thread),
                     products + ChunkProducts::w + i + 16 * thread);
  }
  // lanes i and i + 16 of warp w: row 16 w + i
  const int first = 16 * (at.warp & 1) + (at.lane & 15);
  const int low = __shfl_sync(~0u, index.low, first), high = __shfl_sync(~0u, index.high, first);
  const int row = at.warp < 2 ? low : high;
  gather_tile(ptx::shared_address(tiles.q), a.q, at.key_column, row);
  gather_tile(ptx::shared_address(tiles.k), a.k, at.key_column, row);
  // Block row i of P has i + 1 blocks, of two pieces each.
#pragma unroll
  for (int i = 0; i < kChunkSteps; ++i) {
    const int local = thread / 8, piece = thread % 8;
    if (piece < 2 * (i + 1)) {
      const int offset = tile_offset(16 * i + local, piece);
      ptx::cp_async_16(p + static_cast<std::uint32_t>(offset),
                       products + ChunkProducts::p + offset);
    }
  }
  constexpr int kDecayCopies = 2 * kChunk * static_cast<int>(sizeof(float)) / 16;
  if (thread < kDecayCopies) {
    ptx::cp_async_16(ptx::shared_address(decays.growth) + static_cast<std::uint32_t>(16 * thread),
                     products + ChunkProducts::decays + 16 * thread);
  }
}

// This warp's U^T, four fragments as delta_chunks left them.
__device__ __forceinline__ void load_u(const ScanKernelArgs& a, const Position& at, int chunk,
                                       uint4 (&u)[kChunkSteps]) {
  const uint4* from =
      reinterpret_cast<const uint4*>(products_of(a, chunk, at.head) + ChunkProducts::u);
#pragma unroll
  for (int i = 0; i < kChunkSteps; ++i) {
    u[i] = from[(at.column_block * kChunkSteps + i) * kWarp + at.lane];
  }
}

// Offset in a state [dk, dv] of element (g, 2t) of C tile `tile` of this warp's S^T.
__device__ __forceinline__ int state_offset(const Position& at, int tile) {
  return (8 * tile + 2 * at.t) * kDeltaDim + kWarpColumns * at.column_block + at.g;
}

__device__ void load_state(const float* state, const Position& at, float (&s)[kStateTiles][4]) {
#pragma unroll
  for (int n = 0; n < kStateTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] =
          state == nullptr ? 0.0f : state[state_offset(at, n) + (i & 1) * kDeltaDim + 8 * (i >> 1)];
    }
  }
}

__device__ void store_state(float* state, const Position& at, const float (&s)[kStateTiles][4]) {
#pragma unroll
  for (int n = 0; n < kStateTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state[state_offset(at, n) + (i & 1) * kDeltaDim + 8 * (i >> 1)] = s[n][i];
    }
  }
}

// C tiles 2 i and 2 i + 1, rounded, as the left operand of columns 16 i ...
__device__ __forceinline__ void pack_left(const float (&c0)[4], const float (&c1)[4],
                                          std::uint32_t (&a)[4]) {
  a[0] = pack_bf16(c0[0], c0[1]);
  a[1] = pack_bf16(c0[2], c0[3]);
  a[2] = pack_bf16(c1[0], c1[1]);
  a[3] = pack_bf16(c1[2], c1[3]);
}

// c[2 block], c[2 block + 1] += a times rows 16 block .. + 15 of a shared tile, transposed, columns
// 16 step .. + 15.
__device__ __forceinline__ void times_rows(float (&c)[kChunkTiles][4], const std::uint32_t (&a)[4],
                                           std::uint32_t tile, int block, int step,
                                           const Position& at) {
  const int row = 16 * block + (at.lane & 7) + ((at.lane >> 4) << 3);
  const int piece = 2 * step + ((at.lane >> 3) & 1);
  std::uint32_t b[4];
  ptx::ldmatrix_x4(b, tile + static_cast<std::uint32_t>(tile_offset(row, piece)));
  ptx::mma_bf16(c[2 * block], a, b[0], b[1]);
  ptx::mma_bf16(c[2 * block + 1], a, b[2], b[3]);
}

// x = u - R(s) W^T; o = R(s) Q^T
__device__ __forceinline__ void read_state(const float (&s)[kStateTiles][4],
                                           const uint4 (&u)[kChunkSteps], const Tiles& tiles,
                                           const Position& at, float (&x)[kChunkTiles][4],
                                           float (&o)[kChunkTiles][4]) {
  const std::uint32_t w = ptx::shared_address(tiles.w), q = ptx::shared_address(tiles.q);
  std::uint32_t left[kStateTiles / 2][4];
#pragma unroll
  for (int step = 0; step < kStateTiles / 2; ++step) {
    pack_left(s[2 * step], s[2 * step + 1], left[step]);
#pragma unroll
    for (int block = 0; block < kChunkSteps; ++block) times_rows(x, left[step], w, block, step, at);
  }
#pragma unroll
  for (int step = 0; step < kStateTiles / 2; ++step) {
#pragma unroll
    for (int block = 0; block < kChunkSteps; ++block) times_rows(o, left[step], q, block, step, at);
  }
#pragma unroll
  for (int i = 0; i < kChunkSteps; ++i) {
    const std::uint32_t pairs[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float (&c)[4] = x[2 * i + n / 2];
      c[n % 2 * 2] = low_bf16(pairs[n]) - c[n % 2 * 2];
      c[n % 2 * 2 + 1] = high_bf16(pairs[n]) - c[n % 2 * 2 + 1];
    }
  }
}

// o = o diag(growth) + R(x) P^T; s = e s + R(x diag(fade)) K
__device__ __forceinline__ void apply_values(const float (&x)[kChunkTiles][4], const Tiles& tiles,
                                             const Decays& decays, const Position& at,
                                             float (&o)[kChunkTiles][4],
                                             float (&s)[kStateTiles][4]) {
  const std::uint32_t p = ptx::shared_address(tiles.p), k = ptx::shared_address(tiles.k);
  const float total = decays.growth[kChunk - 1];
  std::uint32_t faded[kChunkSteps][4], plain[kChunkSteps][4];
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
    float f[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int tile = 2 * step + n, i = 8 * tile + 2 * at.t;
      const float2 growth = *reinterpret_cast<const float2*>(decays.growth + i);
      const float2 fade = *reinterpret_cast<const float2*>(decays.fade + i);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        o[tile][c] *= (c & 1) != 0 ? growth.y : growth.x;
        f[n][c] = x[tile][c] * ((c & 1) != 0 ? fade.y : fade.x);
      }
    }
    pack_left(f[0], f[1], faded[step]);
    pack_left(x[2 * step], x[2 * step + 1], plain[step]);
  }
#pragma unroll
  for (int n = 0; n < kStateTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= total;
  }
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
#pragma unroll
    for (int n = 0; n < kStateTiles; n += 2) {
      std::uint32_t b[4];
      const int row = 16 * step + (at.lane & 15), piece = n + (at.lane >> 4);
      ptx::ldmatrix_x4_trans(b, k + static_cast<std::uint32_t>(tile_offset(row, piece)));
      ptx::mma_bf16(s[n], faded[step], b[0], b[1]);
      ptx::mma_bf16(s[n + 1], faded[step], b[2], b[3]);
    }
#pragma unroll
    for (int block = step; block < kChunkSteps; ++block) {
      times_rows(o, plain[step], p, block, step, at);
    }
  }
}

// Rows of O that the chunk owns, 32 bytes of each by this warp.
__device__ __forceinline__ void store_out(const ScanKernelArgs& a, const Position& at,
                                          const ChunkIndex& index, int owned, int length,
                                          const float (&o)[kChunkTiles][4]) {
  const int column = at.head * kDeltaDim + kWarpColumns * at.column_block;
#pragma unroll
  for (int n = 0; n < kChunkTiles; ++n) {
    const std::uint32_t left = ptx::transpose_tile(pack_bf16(o[n][0], o[n][1]));
    const std::uint32_t right = ptx::transpose_tile(pack_bf16(o[n][2], o[n][3]));
    const FourColumns four = four_columns(left, right);
    const int i = 8 * n + at.g;
    const int row = __shfl_sync(~0u, n < kChunkTiles / 2 ? index.low : index.high, i % kWarp);
    if (i >= owned && i < length) {
      *reinterpret_cast<uint2*>(a.out + row * a.out_stride + column + four.column) = four.bits;
    }
  }
}

__device__ __forceinline__ Position this_position(const ScanKernelArgs& a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarp, 0);  // uniform
  const int head = static_cast<int>(blockIdx.x) / kSlices;
  const int slice = static_cast<int>(blockIdx.x) % kSlices;
  return {.warp = warp,
          .lane = lane,
          .g = lane / 4,
          .t = lane % 4,
          .head = head,
          .key_column = head / (a.shape.value_heads / a.shape.key_heads) * kDeltaDim,
          .column_block = slice * (kSlice / kWarpColumns) + warp};
}

__global__ void __launch_bounds__(kDeltaThreads, 2)
    delta_scan_kernel(const __grid_constant__ ScanKernelArgs a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  ScanShared& memory = *reinterpret_cast<ScanShared*>(shared);
  grid_dependency_wait();
  grid_dependency_launch();
  const Segment segment = a.segments[blockIdx.y];
  if (segment.chunk_count == 0) return;
  const Position at = this_position(a);
  const int last = segment.first_chunk + segment.chunk_count - 1;

  ChunkIndex index = load_index(a, segment.first_chunk, at.lane);
  ChunkIndex next = load_index(a, min(segment.first_chunk + 1, last), at.lane);
  fetch(a, at, segment.first_chunk, index, memory.tiles[0], memory.decays[0]);
  ptx::cp_async_commit();
  uint4 u[kChunkSteps];
  load_u(a, at, segment.first_chunk, u);
  const float* start =
      segment.start_state >= 0 ? a.states + segment.start_state * a.states_stride : a.start;
  float s[kStateTiles][4];
  load_state(start == nullptr ? nullptr : start + at.head * kStateSize, at, s);

  for (int chunk = segment.first_chunk, turn = 0; chunk <= last; ++chunk, turn ^= 1) {
    const int owned = a.chunk_owned[chunk], length = a.chunk_length[chunk];
    ptx::cp_async_wait<0>();
    __syncthreads();  // this chunk is here for all, and all are done with the other stage
    const ChunkIndex current = index;
    const Tiles& tiles = memory.tiles[turn];
    if (chunk < last) {
      fetch(a, at, chunk + 1, next, memory.tiles[turn ^ 1], memory.decays[turn ^ 1]);
    }
    ptx::cp_async_commit();
    index = next;
    next = load_index(a, min(chunk + 2, last), at.lane);
    float x[kChunkTiles][4] = {}, o[kChunkTiles][4] = {};
    read_state(s, u, tiles, at, x, o);
    load_u(a, at, min(chunk + 1, last), u);
    apply_values(x, tiles, memory.decays[turn], at, o, s);
    store_out(a, at, current, owned, length, o);
  }
  if (segment.end_state >= 0) {
    store_state(a.states + segment.end_state * a.states_stride + at.head * kStateSize, at, s);
  }
}

}  // namespace

void prepare_delta_scan() { allow_shared("delta_scan", delta_scan_kernel, sizeof(ScanShared)); }

void delta_scan(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream) {
  ScanKernelArgs kernel_args{.shape = args.shape,
                             .q = {args.q.row<const __nv_bfloat16>(0), args.q.stride},
                             .k = {args.k.row<const __nv_bfloat16>(0), args.k.stride},
                             .products = args.scratch.row<const unsigned char>(0),
                             .start = args.start.empty() ? nullptr : args.start.row<const float>(0),
                             .states = args.states.row<float>(0),
                             .states_stride = args.states.stride,
                             .out = args.out.row<__nv_bfloat16>(0),
                             .out_stride = args.out.stride,
                             .segments = nullptr,
                             .chunk_rows = plan.chunk_rows.data(),
                             .chunk_length = plan.chunk_length.data(),
                             .chunk_owned = plan.chunk_owned.data()};
  for (std::size_t level = 0; level + 1 < plan.level_begin.size(); ++level) {
    const std::int32_t first = plan.level_begin[level], end = plan.level_begin[level + 1];
    kernel_args.segments = plan.segments.data() + first;
    const dim3 grid(static_cast<unsigned>(args.shape.value_heads * kSlices),
                    static_cast<unsigned>(end - first));
    launch("delta_scan", delta_scan_kernel, grid, dim3(kDeltaThreads), sizeof(ScanShared), stream,
           kernel_args);
  }
}

}  // namespace openjev::cuda
