// out = R(R(softmax(q K^T / 16 + causal mask) V) * R(sigmoid(gate))) along the paths of the chunk
// tree: per block of 64 keys, from a query's own chunk up to the root,
//   z = q k^T log2(e) / 16, m' = max(m, max z), w = 2^(z - m'),
//   l' = l 2^(m - m') + sum w, o' = o 2^(m - m') + R(w) V;       in the end o / l.
//
// This file chooses between two versions. The one here needs mma.sync alone: a block of four warps
// does a tile (64 queries) of one head. Queries, one block of keys and one of values take 96 KiB of
// shared memory and a lane 160 accumulators, so that two blocks share a multiprocessor: one copies
// while the other multiplies. Values arrive while q K^T is computed, the next keys during w V.
#include "cuda/kernels/attention_tiles.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr bool kUseWgmma = true;            // sm90/attention.cu; else the version here
constexpr int kSteps = kAttentionDim / 16;  // of 16 dimensions in q K^T

struct SharedTiles {
  std::uint32_t queries, keys, values;
};
constexpr int kSharedBytes = 3 * kTileBytes;

// scores = q K^T for the 16 queries of a warp.
__device__ __forceinline__ void multiply_keys(const SharedTiles& shared, int warp, int lane,
                                              float (&scores)[kScores]) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) scores[i] = 0.0f;
  const int query = kWarpRows * warp + lane % 16, key = lane % 8 + lane / 16 * 8;
#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t a[4];
    ptx::load_matrices(a, shared.queries + tile_byte(query, 2 * step + lane / 16));
#pragma unroll
    for (int pair = 0; pair < kChunk / 16; ++pair) {
      std::uint32_t
          b[4];  // keys 16 pair ... + 7: both halves of 16 dimensions, then the next 8 keys
      ptx::load_matrices(b, shared.keys + tile_byte(16 * pair + key, 2 * step + lane / 8 % 2));
      ptx::multiply_16x8x16(scores + 8 * pair, a, b[0], b[1]);
      ptx::multiply_16x8x16(scores + 8 * pair + 4, a, b[2], b[3]);
    }
  }
}

// out += w V.
__device__ __forceinline__ void multiply_values(const SharedTiles& shared, int lane,
                                                const std::uint32_t (&weights)[kChunk / 16][4],
                                                float (&out)[kOutputs]) {
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
    for (int pair = 0; pair < kAttentionDim / 16; ++pair) {
      std::uint32_t b[4];  // dimensions 16 pair ... + 7: both halves of 16 keys, then the next 8
      ptx::load_matrices<true>(
          b, shared.values + tile_byte(16 * step + lane % 16, 2 * pair + lane / 16));
      ptx::multiply_16x8x16(out + 8 * pair, weights[step], b[0], b[1]);
      ptx::multiply_16x8x16(out + 8 * pair + 4, weights[step], b[2], b[3]);
    }
  }
}

__global__ void __launch_bounds__(kTileThreads, 2)
    attention_mma(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::uint32_t base = ptx::shared_address(memory);
  const SharedTiles shared{base, base + kTileBytes, base + 2 * kTileBytes};
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  grid_dependency_wait();
  grid_dependency_launch();

  const int unit = static_cast<int>(blockIdx.x), head = unit % p.heads;
  const QueryTile queries = p.tiles[p.tile_count - 1 - unit / p.heads];  // long paths first
  if (queries.count <= 0) return;
  const int column = head / p.group * kAttentionDim;
  const int key = kWarpRows * warp + lane % kWarpRows;  // whose row this lane names in copies

  int block = queries.chunk, row = block_row(p, block, key);
  copy_queries(shared.queries, p, queries, head, warp, lane);
  copy_rows(shared.keys, p.k, column, row, warp, lane);
  ptx::copy_async_commit();

  OnlineSoftmax softmax;
  float out[kOutputs] = {};
  bool own = true;
  while (block != kNoBlock) {
    ptx::copy_async_wait<0>();
    __syncthreads();  // the keys are there, the values before are used up
    copy_rows(shared.values, block < 0 ? p.prefix_v : p.v, column, row, warp, lane);
    ptx::copy_async_commit();
    const int next = next_block(p, block);
    row = next == kNoBlock ? -1 : block_row(p, next, key);

    float scores[kScores], shrink[2];
    std::uint32_t weights[kChunk / 16][4];
    multiply_keys(shared, warp, lane, scores);
    if (own) mask_own_chunk(scores, queries.offset, warp, lane);
    own = false;
    softmax.step(scores, shrink);
    rescale(out, shrink);
    pack_weights(scores, weights);

    ptx::copy_async_wait<0>();
    __syncthreads();  // the values are there, the keys are used up
    if (next != kNoBlock) {
      copy_rows(shared.keys, next < 0 ? p.prefix_k : p.k, column, row, warp, lane);
      ptx::copy_async_commit();
    }
    multiply_values(shared, lane, weights, out);
    block = next;
  }
  write_output(p, queries, head, shared.queries, out, softmax, warp, lane);
}

MatrixRows device_rows(const View& view) {
  return {static_cast<const std::uint16_t*>(view.data), view.stride};
}

bool aligned(const View& view) {
  return view.empty() || vectorizes(view.data, view.stride, view.cols);
}

AttentionParams device_params(const AttentionArgs& args, const PlanView& plan) {
  check(args.head_dim == kAttentionDim, "attention on cuda: head_dim ", args.head_dim,
        "; compiled for ", kAttentionDim);
  check(args.kv_heads > 0 && args.heads % args.kv_heads == 0, "attention on cuda: ", args.heads,
        " heads are no multiple of ", args.kv_heads, " kv heads");
  check(aligned(args.q) && aligned(args.k) && aligned(args.v) && aligned(args.prefix_k) &&
            aligned(args.prefix_v) && aligned(args.gate) && aligned(args.out) &&
            args.gate_stride % kVector == 0,
        "attention on cuda: rows or heads are not aligned to 16 bytes");
  return {.q = device_rows(args.q),
          .k = device_rows(args.k),
          .v = device_rows(args.v),
          .prefix_k = device_rows(args.prefix_k),
          .prefix_v = device_rows(args.prefix_v),
          .gate = device_rows(args.gate),
          .out = static_cast<std::uint16_t*>(args.out.data),
          .out_stride = args.out.stride,
          .tiles = args.tiles.data(),
          .chunk_rows = plan.chunk_rows.data(),
          .chunk_parent = plan.chunk_parent.data(),
          .tile_count = static_cast<std::int32_t>(args.tiles.size()),
          .heads = args.heads,
          .group = args.heads / args.kv_heads,
          .gate_stride = args.gate_stride,
          .prefix_chunks = plan.prefix_length / kChunk};
}

}  // namespace

void attention(const AttentionArgs& args, const PlanView& plan, cudaStream_t stream) {
  const AttentionParams params = device_params(args, plan);
  if constexpr (kUseWgmma) {
    attention_sm90(params, stream);
  } else {
    const auto blocks =
        static_cast<unsigned>(params.tile_count) * static_cast<unsigned>(args.heads);
    launch("attention", attention_mma, dim3(blocks), dim3(kTileThreads), kSharedBytes, stream,
           params);
  }
}

void prepare_attention() {
  if constexpr (kUseWgmma) {
    prepare_attention_sm90();
  } else {
    allow_shared("shared memory of attention", attention_mma, kSharedBytes);
  }
}

}  // namespace openjev::cuda
