// What the two kernels of the delta rule share: tiles in shared memory and the products of a chunk.
//
// A tile [64, 128] of float16 stands as two panels [64, 64], so that a row of a panel is 128
// bytes, all banks once. Its 16-byte pieces are permuted by piece ^ (row % 8): eight rows at one
// column (ldmatrix) and one whole row (cp.async) both touch every bank once.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/ops.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/warp_roles.cuh"
#include "plan/plan_view.h"

namespace openjev::cuda {

inline constexpr int kDeltaThreads = 128;
inline constexpr int kFollowedBlocksPerSm = 2;  // of delta_chunks, where the scan runs beside it
inline constexpr int kPanelBytes = kChunk * 128;
inline constexpr int kTileBytes = 2 * kPanelBytes;

// Scratch of one chunk and value head, in bytes from its start:
//   w       W as a tile
//   u       U^T as C fragments of mma: [dv / 16][i / 16][lane] 16 bytes, see store_u
//   p       P as a panel; blocks above the diagonal are not written
//   decays  float32 [2, 64]: exp(b_i), exp(b_63 - b_i)
struct ChunkProducts {
  static constexpr int w = 0;
  static constexpr int u = kTileBytes;
  static constexpr int p = 2 * kTileBytes;
  static constexpr int decays = p + kPanelBytes;
  static constexpr int bytes = decays + 2 * kChunk * static_cast<int>(sizeof(float));
};

// The scratch ends with a word for each chunk and value head: not 0 once its products can be read.
// Used where the scan runs beside delta_chunks, null elsewhere.
std::uint32_t* ready_flags(const DeltaRuleArgs& args, const PlanView& plan);

__device__ __forceinline__ int tile_offset(int row, int piece) {
  return (piece >> 3) * kPanelBytes + row * 128 + (((piece & 7) ^ (row & 7)) << 4);
}

// A matrix of float16 whose rows may be strided.
struct Rows {
  const __half* data;
  std::int64_t stride;
};

// Starts copying rows 16 w .. 16 w + 15 of a chunk's tile in warp w: 128 columns from `column`.
// Lanes i and i + 16 hold the index of row 16 w + i, negative for a row of zeros.
__device__ __forceinline__ void gather_tile(std::uint32_t tile, const Rows& from, int column,
                                            int row_index) {
  const int thread = ptx::thread_index(), lane = thread % kWarp, warp = thread / kWarp;
  const int half = lane >> 4, piece = lane & 15;
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    const int row = __shfl_sync(~0u, row_index, i + half);
    const bool valid = row >= 0;
    const __half* source = from.data + (valid ? row : 0) * from.stride + column + piece * kVector;
    ptx::cp_async_16(tile + static_cast<std::uint32_t>(tile_offset(16 * warp + i + half, piece)),
                     source, valid);
  }
}

// Two 8 x 8 tiles side by side in one row of a C fragment: this lane's pairs (g, 2t..) of both.
// Lanes 2 i and 2 i + 1 swap one, so that each has four neighbours and four lanes fill a 32-byte
// sector.
struct FourColumns {
  int column;  // of the first, 0 to 12
  uint2 bits;
};

__device__ __forceinline__ FourColumns four_columns(std::uint32_t left, std::uint32_t right) {
  const int t = ptx::thread_index() % 4;
  const bool odd = (t & 1) != 0;
  const std::uint32_t other = __shfl_xor_sync(~0u, odd ? left : right, 1);
  return odd ? FourColumns{6 + 2 * t, {other, right}} : FourColumns{2 * t, {left, other}};
}

// What chunks compute without the state, and the scan over them. Defined in files of these names.
void prepare_delta_chunks();
void delta_chunks(const DeltaRuleArgs& args, const PlanView& plan, cudaStream_t stream);

}  // namespace openjev::cuda
