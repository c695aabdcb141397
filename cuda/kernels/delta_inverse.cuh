// M = (I + A)^-1 of a chunk, A strictly lower triangular [64, 64], by four warps in shared memory:
// the 16 x 16 diagonal blocks by forward substitution in float32, the blocks below by products of
// blocks in tf32. Warp w owns row block w of A until the diagonal block is inverted, column block w
// after.
#pragma once

#include "cuda/kernels/numerics.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/warp_roles.cuh"
#include "plan/plan_view.h"

namespace openjev::cuda {

inline constexpr int kBlock = 16;
inline constexpr int kBlocks = kChunk / kBlock;

struct Lane {
  int warp, lane, g, t;
};

__device__ __forceinline__ Lane this_lane() {
  const int thread = ptx::thread_index(), lane = thread % kWarp;
  // The shuffle tells the compiler that the warp's index is uniform.
  const int warp = __shfl_sync(~0u, thread / kWarp, 0);
  return {warp, lane, lane / 4, lane % 4};
}

// Element (row, col) of A or M. Groups of eight floats are permuted by row, so that a warp reads or
// writes pairs (g, 2t..) of a fragment without bank conflicts.
__device__ __forceinline__ int at(int row, int col) {
  return row * kChunk + (col ^ ((row & 7) << 3));
}

__device__ __forceinline__ float2 pair_at(const float* m, int row, int col) {
  return *reinterpret_cast<const float2*>(m + at(row, col));
}

// M_rr = (I + A_rr)^-1 in place by forward substitution, r this warp; a lane owns a column.
__device__ __forceinline__ void invert_diagonal_block(float* m, const Lane& l) {
  const int first = kBlock * l.warp, col = l.lane % kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sum = i == col ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 a = *reinterpret_cast<const float4*>(m + at(first + i, first + j));
      const float row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int n = 0; n < 4 && j + n < i; ++n) sum -= row[n] * x[j + n];
    }
    x[i] = sum;
  }
  __syncwarp();
  if (l.lane < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) m[at(first + i, first + col)] = x[i];
  }
}

// c += a b^T for 16 x 16 blocks: `a` two fragments of eight columns each, b in shared memory from
// (row, col). Slots t and t + 4 of an instruction hold columns 2t and 2t + 1 of both operands: then
// a C tile is an A fragment as it is, and b is read in pairs.
__device__ __forceinline__ void times_transposed(float (&c)[2][4], const std::uint32_t (&a)[2][4],
                                                 const float* m, int row, int col, const Lane& l) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 b = pair_at(m, row + 8 * n + l.g, col + 8 * step + 2 * l.t);
      ptx::mma_tf32(c[n], a[step], ptx::to_tf32(b.x), ptx::to_tf32(b.y));
    }
  }
}

__device__ __forceinline__ void as_left_operand(const float (&c)[2][4], std::uint32_t (&a)[2][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    a[step][0] = ptx::to_tf32(c[step][0]);
    a[step][1] = ptx::to_tf32(c[step][2]);
    a[step][2] = ptx::to_tf32(c[step][1]);
    a[step][3] = ptx::to_tf32(c[step][3]);
  }
}

// M_cc^T, c this warp: element i of n is that of row g + 8 (i / 2) and column 8 n + 2t + i % 2.
__device__ __forceinline__ void load_diagonal(const float* m, const Lane& l,
                                              float (&diagonal)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      diagonal[n][i] =
          m[at(kBlock * l.warp + 8 * n + 2 * l.t + (i & 1), kBlock * l.warp + l.g + 8 * (i >> 1))];
    }
  }
}

// Column c of M below the diagonal, c this warp, transposed and in registers:
//   M_rc^T = -(sum_{c <= m < r} M_mc^T A_rm^T) M_rr^T        below[r - 1]: M_rc^T
// No other warp's result is needed beyond the diagonal blocks.
__device__ __forceinline__ void invert_column(const float* m, const Lane& l,
                                              const float (&diagonal)[2][4],
                                              float (&below)[kBlocks - 1][2][4]) {
  std::uint32_t column[kBlocks - 1][2][4];  // M_mc^T
#pragma unroll
  for (int r = 0; r < kBlocks; ++r) {
    if (r < l.warp) continue;
    if (r == l.warp) {
      if (r < kBlocks - 1) as_left_operand(diagonal, column[r < kBlocks - 1 ? r : 0]);
      continue;
    }
    float sum[2][4] = {};
#pragma unroll
    for (int k = 0; k < r; ++k) {
      if (k >= l.warp) times_transposed(sum, column[k], m, kBlock * r, kBlock * k, l);
    }
    std::uint32_t left[2][4];
    as_left_operand(sum, left);
    float product[2][4] = {};
    times_transposed(product, left, m, kBlock * r, kBlock * r, l);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) below[r - 1][n][i] = -product[n][i];
    }
    if (r < kBlocks - 1) as_left_operand(below[r - 1], column[r < kBlocks - 1 ? r : 0]);
  }
}

__device__ __forceinline__ void store_column(float* m, const Lane& l,
                                             const float (&below)[kBlocks - 1][2][4]) {
#pragma unroll
  for (int r = 1; r < kBlocks; ++r) {
    if (r <= l.warp) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        m[at(kBlock * r + 8 * n + 2 * l.t + (i & 1), kBlock * l.warp + l.g + 8 * (i >> 1))] =
            below[r - 1][n][i];
      }
    }
  }
}

}  // namespace openjev::cuda
