// How the scan of the delta rule (delta_scan.cu) gets its operands: buffers in shared memory, and
// the warpgroup that fills them with cp.async.
#pragma once

#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/flags.cuh"
#include "cuda/ptx/warp_roles.cuh"

namespace openjev::cuda::scan {

inline constexpr int kSlice = 64;  // columns of a block
inline constexpr int kSlices = kDeltaDim / kSlice;
inline constexpr int kChunkSteps = kChunk / 16;
inline constexpr int kStages = 2;
inline constexpr int kThreads = 2 * kDeltaThreads;

struct ScanKernelArgs {
  DeltaShape shape;
  Rows q, k;
  const unsigned char* products;
  const std::uint32_t* ready;  // a flag a chunk and head, while delta_chunks may run; else null
  const float* start;          // null: zero
  float* states;
  std::int64_t states_stride;
  __nv_bfloat16* out;
  std::int64_t out_stride;
  const Segment* segments;  // of this level
  const std::int32_t *chunk_rows, *chunk_length, *chunk_owned;
};

// What reads the state, and what writes it.
struct Front {
  unsigned char w[kTileBytes];
  unsigned char q[kTileBytes];
};
struct Back {
  unsigned char k[kTileBytes];
  unsigned char p[kPanelBytes];  // zeros in the blocks above the diagonal
};

struct Decays {
  float growth[kChunk];  // exp(b_i)
  float fade[kChunk];    // exp(b_63 - b_i)
};

struct alignas(1024) ScanShared {
  Front front[kStages];
  Back back[kStages];
  Decays decays[kStages];
};
static_assert(2 * (sizeof(ScanShared) + 1024) <= 228 * 1024, "two blocks fit an SM");

// Stages handed over by named barriers of both warpgroups, which take no shared memory. Nobody
// arrives at a barrier that nobody waits for, so that none is left half full.
template <int kFirstBarrier>
struct Ring {
  static constexpr int kFull = kFirstBarrier, kEmpty = kFirstBarrier + kStages;

  static __device__ __forceinline__ void wait_full(int n) {
    ptx::named_barrier(kFull + n % kStages, kThreads);
  }
  static __device__ __forceinline__ void announce(int n) {
    ptx::named_barrier_arrive(kFull + n % kStages, kThreads);
  }
  static __device__ __forceinline__ void wait_empty(int n) {
    if (n >= kStages) ptx::named_barrier(kEmpty + n % kStages, kThreads);
  }
  static __device__ __forceinline__ void release(int n, int count) {
    if (n + kStages < count) ptx::named_barrier_arrive(kEmpty + n % kStages, kThreads);
  }
};
using FrontRing = Ring<1>;
using BackRing = Ring<1 + 2 * kStages>;

struct Position {
  int warp, lane, g, t;
  int head;
  int key_column;    // first column of the head's keys
  int slice;         // 64 columns of the head
  int column_block;  // this warp's columns of the head, in blocks of 16
};

__device__ __forceinline__ Position this_position(const ScanKernelArgs& a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarp % 4, 0);  // uniform
  const int head = static_cast<int>(blockIdx.x) / kSlices;
  const int slice = static_cast<int>(blockIdx.x) % kSlices;
  return {.warp = warp,
          .lane = lane,
          .g = lane / 4,
          .t = lane % 4,
          .head = head,
          .key_column = head / (a.shape.value_heads / a.shape.key_heads) * kDeltaDim,
          .slice = slice,
          .column_block = slice * (kSlice / 16) + warp};
}

__device__ __forceinline__ const unsigned char* products_of(const ScanKernelArgs& a, int chunk,
                                                            int head) {
  return a.products +
         (static_cast<std::int64_t>(chunk) * a.shape.value_heads + head) * ChunkProducts::bytes;
}

// Until the products of the chunk can be read.
__device__ __forceinline__ void wait_ready(const ScanKernelArgs& a, int chunk, int head) {
  if (a.ready == nullptr) return;
  ptx::wait_nonzero(a.ready + static_cast<std::int64_t>(chunk) * a.shape.value_heads + head);
}

// The copying warpgroup, the first one.
class Copier {
 public:
  __device__ __forceinline__ Copier(const ScanKernelArgs& a, const Position& at, ScanShared& memory)
      : a_(a), at_(at), memory_(memory), thread_(kWarp * at.warp + at.lane) {}

  // Copies are committed a stage a group; one is announced once the next has been started. With the
  // front of a chunk it is announced that the products of the chunk after it are ready.
  __device__ __forceinline__ void run(int first_chunk, int count) const {
    clear_above_diagonal();
    int row = chunk_row(first_chunk);
    wait_ready(a_, first_chunk, at_.head);
    for (int n = 0; n < count; ++n) {
      const int chunk = first_chunk + n;
      FrontRing::wait_empty(n);
      copy_front(chunk, row, n % kStages);
      if (n > 0) announce<1, BackRing>(n - 1);
      const int next_row = chunk_row(first_chunk + min(n + 1, count - 1));
      BackRing::wait_empty(n);
      copy_back(chunk, row, n % kStages);
      if (n + 1 < count) wait_ready(a_, chunk + 1, at_.head);
      announce<1, FrontRing>(n);
      if (thread_ == 0 && n + 2 < count) {
        ptx::prefetch_l2(
            products_of(a_, chunk + 2, at_.head) + ChunkProducts::u + at_.slice * kHalf, kHalf);
      }
      row = next_row;
    }
    announce<0, BackRing>(count - 1);
  }

 private:
  static constexpr int kHalf = kTileBytes / kSlices;  // of U^T

  // Row 16 w + i of the chunk for lanes i and i + 16 of warp w.
  __device__ __forceinline__ int chunk_row(int chunk) const {
    return a_.chunk_rows[static_cast<std::int64_t>(chunk) * kChunk + 16 * at_.warp + at_.lane % 16];
  }

  __device__ __forceinline__ void copy_front(int chunk, int row, int stage) const {
    const unsigned char* products = products_of(a_, chunk, at_.head) + 16 * thread_;
    const std::uint32_t w =
        ptx::shared_address(memory_.front[stage].w) + static_cast<std::uint32_t>(16 * thread_);
#pragma unroll
    for (int i = 0; i < kTileBytes; i += 16 * kDeltaThreads) {
      ptx::cp_async_16(w + static_cast<std::uint32_t>(i), products + ChunkProducts::w + i);
    }
    gather_tile(ptx::shared_address(memory_.front[stage].q), a_.q, at_.key_column, row);
    if (thread_ < static_cast<int>(sizeof(Decays)) / 16) {
      ptx::cp_async_16(
          ptx::shared_address(&memory_.decays[stage]) + static_cast<std::uint32_t>(16 * thread_),
          products + ChunkProducts::decays);
    }
    ptx::cp_async_commit();
  }

  __device__ __forceinline__ void copy_back(int chunk, int row, int stage) const {
    gather_tile(ptx::shared_address(memory_.back[stage].k), a_.k, at_.key_column, row);
    const unsigned char* products = products_of(a_, chunk, at_.head) + ChunkProducts::p;
    const std::uint32_t p = ptx::shared_address(memory_.back[stage].p);
    // Block row i of P has i + 1 blocks, of two pieces each.
#pragma unroll
    for (int i = 0; i < kChunkSteps; ++i) {
      if (thread_ % 8 < 2 * (i + 1)) {
        const int offset = tile_offset(16 * i + thread_ / 8, thread_ % 8);
        ptx::cp_async_16(p + static_cast<std::uint32_t>(offset), products + offset);
      }
    }
    ptx::cp_async_commit();
  }

  __device__ __forceinline__ void clear_above_diagonal() const {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
#pragma unroll
      for (int i = 0; i < kChunkSteps; ++i) {
        if (thread_ % 8 >= 2 * (i + 1)) {
          *reinterpret_cast<uint4*>(memory_.back[stage].p +
                                    tile_offset(16 * i + thread_ / 8, thread_ % 8)) = {0, 0, 0, 0};
        }
      }
    }
  }

  template <int kPending, class Of>
  __device__ __forceinline__ void announce(int n) const {
    ptx::cp_async_wait<kPending>();
    ptx::publish_shared_writes();
    Of::announce(n);
  }

  const ScanKernelArgs& a_;
  const Position& at_;
  ScanShared& memory_;
  int thread_;
};

}  // namespace openjev::cuda::scan
