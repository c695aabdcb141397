// What the attention kernel is made of: its parameters, the walk along a path's key blocks, tiles
// in shared memory, the online softmax and the gated output.
//
// A tile is 64 rows of one head, 256 wide. Four warps work on it, 16 rows each. A lane holds, with
// g = lane / 4 and t = lane % 4, of a [64, 8 n] float32 product its elements 4 i + 2 h + e at
// (row 16 warp + g + 8 h, column 8 i + 2 t + e).
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cmath>
#include <cstdint>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace openjev::cuda {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kWarpRows = kChunk / kTileWarps;
inline constexpr int kScores = kChunk / 2;          // float32 a lane of a [64, 64] product
inline constexpr int kOutputs = kAttentionDim / 2;  // and of a [64, 256] product
inline constexpr int kRowBytes = 128;               // of a panel
inline constexpr int kPanelBytes = kChunk * kRowBytes;
inline constexpr int kTileBytes = kChunk * kAttentionDim * 2;
static_assert(kWarp * kVector == kAttentionDim, "a warp copies a row in one access a lane");

// Rows of bfloat16 in global memory.
struct MatrixRows {
  const std::uint16_t* data;
  std::int64_t stride;
};

struct AttentionParams {
  MatrixRows q, k, v, prefix_k, prefix_v, gate;
  std::uint16_t* out;
  std::int64_t out_stride;
  const QueryTile* tiles;
  const std::int32_t* chunk_rows;
  const std::int32_t* chunk_parent;
  std::int32_t tile_count;
  std::int32_t heads;
  std::int32_t group;  // query heads that read one kv head
  std::int32_t gate_stride;
  std::int32_t prefix_chunks;
};

// Blocks of 64 keys from a query's own chunk up to the root: chunks by their index, then the chunks
// of the kept prefix, last to first, as -(index + 1). The order is that of a path without a kept
// prefix: a query's bits depend on its path alone.
inline constexpr int kNoBlock = INT_MIN;

__device__ __forceinline__ int next_block(const AttentionParams& p, int block) {
  if (block < 0) return block == -1 ? kNoBlock : block + 1;
  const int parent = __ldg(p.chunk_parent + block);
  if (parent >= 0) return parent;
  return p.prefix_chunks > 0 ? -p.prefix_chunks : kNoBlock;
}

// The row, of k and v or of the prefix, with key `offset` of a block; -1: there is none.
__device__ __forceinline__ int block_row(const AttentionParams& p, int block, int offset) {
  return block < 0 ? -(block + 1) * kChunk + offset : __ldg(p.chunk_rows + block * kChunk + offset);
}

// Byte of 16-byte vector `vector` (0 to 31) of a row. Four panels of 64 columns, rows of 128 bytes
// whose eight vectors are permuted by the row: the 128-byte swizzle of wgmma. A tile stands at a
// multiple of 1024 bytes.
__device__ __forceinline__ std::uint32_t tile_byte(int row, int vector) {
  return static_cast<std::uint32_t>(vector / 8 * kPanelBytes + row * kRowBytes +
                                    ((vector ^ row) & 7) * 16);
}

// Starts copying 16 rows of a tile, columns `column` ... + 255, one row an access of the warp. Lane
// i names the source of row 16 warp + i % 16; below 0 the row becomes zeros.
__device__ __forceinline__ void copy_rows(std::uint32_t tile, const MatrixRows& from, int column,
                                          int source_row, int warp, int lane) {
  const std::uint16_t* source = from.data + column + lane * kVector;
#pragma unroll 4
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = __shfl_sync(~0u, source_row, i);
    ptx::cp_async_16(tile + tile_byte(kWarpRows * warp + i, lane),
                     source + (row < 0 ? 0 : row) * from.stride, row >= 0);
  }
}

__device__ __forceinline__ void copy_queries(std::uint32_t tile, const AttentionParams& p,
                                             const QueryTile& queries, int head, int warp,
                                             int lane) {
  const int i = kWarpRows * warp + lane % kWarpRows;
  copy_rows(tile, p.q, head * kAttentionDim, i < queries.count ? queries.query + i : -1, warp,
            lane);
}

// Keys after a query's own offset in its own chunk do not exist for it.
__device__ __forceinline__ void mask_own_chunk(float (&scores)[kScores], int offset, int warp,
                                               int lane) {
  const int first_row = offset + kWarpRows * warp + lane / 4, first_column = 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int row = first_row + 8 * (i / 2 % 2), column = first_column + 8 * (i / 4) + i % 2;
    if (column > row) scores[i] = -INFINITY;
  }
}

// Softmax over blocks of keys. Scores are exponents of 2: z = score * log2(e) / sqrt(256). A row
// keeps a reference m; its weights are 2^(z - m). m follows the largest z only once that exceeds it
// by more than kSlack, so weights stay below 2^kSlack and what has been accumulated is seldom
// rescaled. A row's m depends on that row alone.
struct OnlineSoftmax {
  static constexpr float kSlack = 8.0f;
  static constexpr float kScale = 1.4426950408889634f / 16.0f;
  static_assert(kAttentionDim == 16 * 16, "the scale is 256^-1/2");

  float reference[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // over this lane's columns

  // Scores become weights. `shrink` is what everything accumulated so far has to be multiplied
  // with.
  __device__ __forceinline__ void step(float (&scores)[kScores], float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int i = 2 * h; i < kScores; i += 4) most = fmaxf(most, fmaxf(scores[i], scores[i + 1]));
      most = lanes_max<4>(most) * kScale;
      const float fresh = most > reference[h] + kSlack ? most : reference[h];
      shrink[h] = exp2_fast(reference[h] - fresh);
      reference[h] = fresh;
      float total = 0.0f;
#pragma unroll
      for (int i = 2 * h; i < kScores; i += 4) {
        scores[i] = exp2_fast(fmaf(scores[i], kScale, -fresh));
        scores[i + 1] = exp2_fast(fmaf(scores[i + 1], kScale, -fresh));
        total += scores[i] + scores[i + 1];
      }
      sum[h] = sum[h] * shrink[h] + total;
    }
  }

  // 1 / sum over the whole row.
  __device__ __forceinline__ float inverse(int h) const { return 1.0f / lanes_sum<4>(sum[h]); }
};

// Multiplication by 1 changes nothing, so that a warp may skip it without changing any row's bits.
__device__ __forceinline__ void rescale(float (&out)[kOutputs], const float (&shrink)[2]) {
  if (!__any_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) out[i] *= shrink[i / 2 % 2];
}

// Weights as A operands: [i] is that of keys 16 i ... 16 i + 15.
__device__ __forceinline__ void pack_weights(const float (&weights)[kScores],
                                             std::uint32_t (&packed)[kChunk / 16][4]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i)
    packed[i / 4][i % 4] = pack_bf16(weights[2 * i], weights[2 * i + 1]);
}

// R(R(accumulated / sum) * sigmoid(gate)) of the tile's real rows. The 16 rows of a warp pass
// through its part of `tile`, which nobody else reads or writes, so that global accesses are whole
// rows.
__device__ __forceinline__ void write_output(const AttentionParams& p, const QueryTile& queries,
                                             int head, std::uint32_t tile,
                                             const float (&accumulated)[kOutputs],
                                             const OnlineSoftmax& softmax, int warp, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float inverse = softmax.inverse(h);
    const int row = kWarpRows * warp + lane / 4 + 8 * h;
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i)
      ptx::store_shared(tile + tile_byte(row, i) + static_cast<std::uint32_t>(lane % 4) * 4,
                        pack_bf16(accumulated[4 * i + 2 * h] * inverse,
                                  accumulated[4 * i + 2 * h + 1] * inverse));
  }
  __syncwarp();
  constexpr int kAtOnce = 8;  // gates under way
  const std::uint16_t* gate = p.gate.data + std::int64_t{head} * p.gate_stride + lane * kVector;
  std::uint16_t* out = p.out + std::int64_t{head} * kAttentionDim + lane * kVector;
  for (int first = kWarpRows * warp; first < kWarpRows * (warp + 1); first += kAtOnce) {
    uint4 gates[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t row = queries.query + min(first + i, queries.count - 1);
      gates[i] = *reinterpret_cast<const uint4*>(gate + row * p.gate.stride);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= queries.count) break;
      Float8 o = unpack8(ptx::load_shared_16(tile + tile_byte(first + i, lane)));
      const Float8 g = unpack8(gates[i]);
#pragma unroll
      for (int d = 0; d < kVector; ++d) o.v[d] *= sigmoid(g.v[d]);
      *reinterpret_cast<uint4*>(out + (queries.query + first + i) * p.out_stride) = pack8(o);
    }
  }
}

}  // namespace openjev::cuda
