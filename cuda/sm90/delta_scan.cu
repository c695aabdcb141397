// The scan of the delta rule along the chunks of a segment. Formulas: kernels/delta_rule.cu.
//
// Columns of S (and of U, X, O) never mix, so a block takes 64 of a head's 128 columns for the
// whole segment and computes everything transposed:
//
//   X^T = U^T - S^T W^T     O^T = S^T Q^T diag(exp(b)) + X^T P^T     S^T <- e S^T + (f X)^T K
//
// One warpgroup multiplies: S^T [64, 128] stays in its accumulators as float32, and S^T, X^T turn
// into left operands by packing their own registers. Right operands W, Q, P, K are in shared
// memory; a second warpgroup copies them. The products of a chunk queue up in two stages
//
//   X^T, S^T Q^T | S^T, O^T
//
// so that X is scaled and packed during S^T Q^T, S is packed during O^T, and O is written during
// the next X^T. W, Q and the decays are handed over apart from K and P: each has two buffers, and a
// copy has one and a half chunks of time. Two blocks fit an SM (113 KiB, 128 registers on average),
// so that short segments of a branched plan overlap.
//
// Rounding: S and X to bfloat16 for the products only; f X, with f_i = exp(b_63 - b_i), is scaled
// in float32 and rounded once; O once.
#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/kernels/delta_scan.cuh"
#include "cuda/launch.h"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/warp_roles.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/delta_scan_copies.cuh"

namespace openjev::cuda {
namespace {

using namespace scan;

constexpr int kStateTiles = kDeltaDim / 8;  // 8 columns of S^T
constexpr int kChunkTiles = kChunk / 8;     // 8 columns of X^T and O^T
constexpr int kKeySteps = kDeltaDim / 16;
constexpr int kStateSize = kDeltaDim * kDeltaDim;
constexpr int kCopierRegisters = 40;
constexpr int kMultiplierRegisters = 216;
static_assert(kCopierRegisters + kMultiplierRegisters <= 65536 / 2 / kDeltaThreads);

// Accumulators, see wgmma.cuh; rows are columns of the head.
using State = float[kStateTiles * 4];
using Values = float[kChunkTiles * 4];

// This warp's U^T, four fragments as delta_chunks left them.
__device__ __forceinline__ void load_u(const ScanKernelArgs& a, const Position& at, int chunk,
                                       uint4 (&u)[kChunkSteps]) {
  const uint4* from =
      reinterpret_cast<const uint4*>(products_of(a, chunk, at.head) + ChunkProducts::u);
#pragma unroll
  for (int i = 0; i < kChunkSteps; ++i) {
    u[i] = __ldcg(from + (at.column_block * kChunkSteps + i) * kWarp + at.lane);
  }
}

__device__ __forceinline__ void unpack_u(const uint4 (&u)[kChunkSteps], Values& x) {
#pragma unroll
  for (int i = 0; i < kChunkSteps; ++i) {
    const std::uint32_t pairs[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      x[8 * i + 2 * n] = low_f16(pairs[n]);
      x[8 * i + 2 * n + 1] = high_f16(pairs[n]);
    }
  }
}

// Offset in a state [dk, dv] of accumulator `i` of this thread.
__device__ __forceinline__ int state_offset(const Position& at, int i) {
  const int key = i / 4 * 8 + 2 * at.t + i % 2,
            column = 16 * at.column_block + at.g + i % 4 / 2 * 8;
  return key * kDeltaDim + column;
}

__device__ __forceinline__ void load_state(const float* state, const Position& at, State& s) {
  if (state == nullptr) {
#pragma unroll
    for (int i = 0; i < kStateTiles * 4; ++i) s[i] = 0.0f;
  } else {
#pragma unroll
    for (int i = 0; i < kStateTiles * 4; ++i) s[i] = state[state_offset(at, i)];
  }
}

__device__ __forceinline__ void store_state(float* state, const Position& at, const State& s) {
#pragma unroll
  for (int i = 0; i < kStateTiles * 4; ++i) state[state_offset(at, i)] = s[i];
}

// Accumulators of 16 columns, rounded, as a left operand of 16 steps.
__device__ __forceinline__ void pack_left(const float* c, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack_f16(c[2 * i], c[2 * i + 1]);
}

__device__ __forceinline__ void pack_state(const State& s, std::uint32_t (&left)[kKeySteps][4]) {
#pragma unroll
  for (int step = 0; step < kKeySteps; ++step) pack_left(s + 8 * step, left[step]);
}

// Offset of 16 steps of k in a k-major tile, in units of descriptors.
__device__ __forceinline__ constexpr std::uint64_t key_step(int step) {
  return static_cast<std::uint64_t>(step / 4 * kPanelBytes + step % 4 * 32) / 16;
}

// x -= S^T W^T, issued.
__device__ __forceinline__ void subtract_read(const std::uint32_t (&left)[kKeySteps][4],
                                              const Front& front, Values& x) {
  const std::uint64_t w = ptx::k_major(ptx::shared_address(front.w));
  ptx::products_begin();
#pragma unroll
  for (int step = 0; step < kKeySteps; ++step)
    ptx::subtract_64x64x16(x, left[step], w + key_step(step));
  ptx::products_commit();
}

// o = S^T Q^T, issued.
__device__ __forceinline__ void read_queries(const std::uint32_t (&left)[kKeySteps][4],
                                             const Front& front, Values& o) {
  const std::uint64_t q = ptx::k_major(ptx::shared_address(front.q));
  ptx::products_begin();
#pragma unroll
  for (int step = 0; step < kKeySteps; ++step)
    ptx::multiply_64x64x16(o, left[step], q + key_step(step), step != 0);
  ptx::products_commit();
}

// s += (f X)^T K, issued.
__device__ __forceinline__ void write_state(const std::uint32_t (&faded)[kChunkSteps][4],
                                            const Back& back, State& s) {
  const std::uint64_t k = ptx::column_major_panels(ptx::shared_address(back.k), kPanelBytes);
  ptx::products_begin();
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step)
    ptx::multiply_64x128x16(s, faded[step], k + static_cast<std::uint64_t>(step * (16 * 128 / 16)));
  ptx::products_commit();
}

// o += X^T P^T, issued.
__device__ __forceinline__ void read_chunk(const std::uint32_t (&plain)[kChunkSteps][4],
                                           const Back& back, Values& o) {
  const std::uint64_t p = ptx::k_major(ptx::shared_address(back.p));
  ptx::products_begin();
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step)
    ptx::multiply_64x64x16(o, plain[step], p + key_step(step), true);
  ptx::products_commit();
}

__device__ __forceinline__ void pack_values(const Values& x, const Decays& decays, int t,
                                            std::uint32_t (&faded)[kChunkSteps][4],
                                            std::uint32_t (&plain)[kChunkSteps][4]) {
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
    float f[8];
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float2 fade = *reinterpret_cast<const float2*>(decays.fade + 16 * step + 2 * i + 2 * t);
#pragma unroll
      for (int h = 0; h < 4; h += 2) {
        f[i + h] = x[8 * step + i + h] * fade.x;
        f[i + h + 1] = x[8 * step + i + h + 1] * fade.y;
      }
    }
    pack_left(f, faded[step]);
    pack_left(x + 8 * step, plain[step]);
  }
}

// Pinned, so that it happens where it is written: beside products that do not use s.
__device__ __forceinline__ void scale(State& s, float by) {
#pragma unroll
  for (int i = 0; i < kStateTiles * 4; ++i) s[i] *= by;
  ptx::pin(s);
}

__device__ __forceinline__ void grow(const Decays& decays, int t, Values& o) {
#pragma unroll
  for (int n = 0; n < kChunkTiles; ++n) {
    const float2 growth = *reinterpret_cast<const float2*>(decays.growth + 8 * n + 2 * t);
#pragma unroll
    for (int h = 0; h < 4; h += 2) {
      o[4 * n + h] *= growth.x;
      o[4 * n + h + 1] *= growth.y;
    }
  }
}

// The rows that a chunk owns: offsets `owned` ... `length` - 1, which are consecutive rows from
// `row`. Loaded one after the other, a chunk apart, so that no load waits for another.
struct OutRows {
  int owned, length;
  int row;
};

__device__ __forceinline__ OutRows owned_rows(const ScanKernelArgs& a, int chunk) {
  return {a.chunk_owned[chunk], a.chunk_length[chunk], 0};
}

__device__ __forceinline__ int first_row(const ScanKernelArgs& a, int chunk, const OutRows& rows) {
  return a.chunk_rows[static_cast<std::int64_t>(chunk) * kChunk + min(rows.owned, kChunk - 1)];
}

using OutBits = std::uint32_t[kChunkTiles * 2];

// Rounded and transposed: pairs of columns of one row.
__device__ __forceinline__ void pack_out(const Values& o, OutBits& bits) {
#pragma unroll
  for (int i = 0; i < kChunkTiles * 2; ++i) bits[i] = pack_bf16(o[2 * i], o[2 * i + 1]);
}

// 32 bytes of each row by this warp.
__device__ __forceinline__ void store_out(const ScanKernelArgs& a, const Position& at,
                                          const OutRows& rows, const OutBits& bits) {
  __nv_bfloat16* to = a.out + at.head * kDeltaDim + 16 * at.column_block;
#pragma unroll
  for (int n = 0; n < kChunkTiles; ++n) {
    const FourColumns four =
        four_columns(ptx::transpose_tile(bits[2 * n]), ptx::transpose_tile(bits[2 * n + 1]));
    const int i = 8 * n + at.g;
    if (i >= rows.owned && i < rows.length) {
      *reinterpret_cast<uint2*>(to + (rows.row + (i - rows.owned)) * a.out_stride + four.column) =
          four.bits;
    }
  }
}

// The multiplying warpgroup.
__device__ __forceinline__ void scan_columns(const ScanKernelArgs& a, const Position& at,
                                             const Segment& segment, const ScanShared& memory) {
  State s;
  Values x, o = {};
  uint4 u[kChunkSteps];
  wait_ready(a, segment.first_chunk, at.head);
  load_u(a, at, segment.first_chunk, u);
  const float* start =
      segment.start_state >= 0 ? a.states + segment.start_state * a.states_stride : a.start;
  load_state(start == nullptr ? nullptr : start + at.head * kStateSize, at, s);
  unpack_u(u, x);
  std::uint32_t left[kKeySteps][4];
  pack_state(s, left);

  const int count = segment.chunk_count;
  OutRows before{0, 0, 0}, rows = owned_rows(a, segment.first_chunk);
  OutBits bits = {};  // of the chunk before
  for (int n = 0; n < count; ++n) {
    const Front& front = memory.front[n % kStages];
    const Back& back = memory.back[n % kStages];
    const Decays& decays = memory.decays[n % kStages];
    FrontRing::wait_full(n);
    subtract_read(left, front, x);
    read_queries(left, front, o);
    store_out(a, at, before, bits);
    const int chunk = segment.first_chunk + n, following = chunk + (n + 1 < count ? 1 : 0);
    load_u(a, at, following, u);
    before = rows;
    before.row = first_row(a, chunk, before);
    rows = owned_rows(a, following);

    ptx::products_wait<1>(x);
    std::uint32_t faded[kChunkSteps][4], plain[kChunkSteps][4];
    pack_values(x, decays, at.t, faded, plain);
    scale(s, decays.growth[kChunk - 1]);
    ptx::products_wait<0>(o);
    grow(decays, at.t, o);

    BackRing::wait_full(n);
    write_state(faded, back, s);
    read_chunk(plain, back, o);
    FrontRing::release(n, count);
    unpack_u(u, x);
    ptx::pin(x);
    ptx::products_wait<1>(s);
    pack_state(s, left);
    ptx::products_wait<0>(o);
    BackRing::release(n, count);
    pack_out(o, bits);
  }
  store_out(a, at, before, bits);
  if (segment.end_state >= 0) {
    store_state(a.states + segment.end_state * a.states_stride + at.head * kStateSize, at, s);
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    delta_scan_wgmma(const __grid_constant__ ScanKernelArgs a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  ScanShared& memory = *reinterpret_cast<ScanShared*>(shared);
  // Beside delta_chunks, whose every block has waited for what came before it.
  const bool follows = a.ready != nullptr;
  if (!follows) grid_dependency_wait();
  grid_dependency_launch();
  const Segment segment = a.segments[blockIdx.y];
  if (segment.chunk_count == 0) return;
  const Position at = this_position(a);
  const int role = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kDeltaThreads, 0);
  if (role == 0) {
    ptx::give_registers<kCopierRegisters>();
    Copier(a, at, memory).run(segment.first_chunk, segment.chunk_count);
  } else {
    ptx::take_registers<kMultiplierRegisters>();
    scan_columns(a, at, segment, memory);
  }
  // The end of this kernel is to mean the end of delta_chunks too.
  if (follows) grid_dependency_wait();
}

}  // namespace

void prepare_delta_scan() { allow_shared("delta_scan", delta_scan_wgmma, sizeof(ScanShared)); }

void delta_scan(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream) {
  ScanKernelArgs kernel_args{.shape = args.shape,
                             .q = {args.q.row<const __half>(0), args.q.stride},
                             .k = {args.k.row<const __half>(0), args.k.stride},
                             .products = args.scratch.row<const unsigned char>(0),
                             .ready = nullptr,
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
    kernel_args.ready = level == 0 ? ready_flags(args, plan) : nullptr;
    const dim3 grid(static_cast<unsigned>(args.shape.value_heads * kSlices),
                    static_cast<unsigned>(end - first));
    launch("delta_scan", delta_scan_wgmma, grid, dim3(kThreads), sizeof(ScanShared), stream,
           kernel_args);
  }
}

}  // namespace openjev::cuda
