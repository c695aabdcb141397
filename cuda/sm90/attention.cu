// out = R(R(softmax(q K^T / 16 + causal mask) V) * sigmoid(gate)) along the paths of the chunk
// tree: per block of 64 keys, from a query's own chunk up to the root,
//   z = q k^T log2(e) / 16, m' = max(m, max z), w = 2^(z - m'),
//   l' = l 2^(m - m') + sum w, o' = o 2^(m - m') + R(w) V;       in the end o / l.
//
// A block does one tile (64 queries) of two query heads of one kv head, so that both use the keys
// and values it copies. Two warpgroups multiply, one head each; a third copies: two tiles each of
// keys and values (128 KiB, besides 64 KiB of queries) are under way, handed over by barriers in
// shared memory. Per block n of keys a multiplying warpgroup issues S(n) = Q K(n)^T and then O +=
// W(n - 1) V(n - 1), W from registers: the softmax of S(n) runs during the second product, and
// beside the other head's products. 128 + 32 accumulators and 16 registers of weights a lane: the
// copying warpgroup gives most of its registers up.
#include "cuda/kernels/attention_tiles.cuh"
#include "cuda/launch.h"
#include "cuda/ptx/warp_roles.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace openjev::cuda {
namespace {

constexpr int kHeads = 2;  // of a block
constexpr int kThreads = (kHeads + 1) * kTileThreads;
constexpr unsigned kStages = 2;
constexpr int kCopierRegisters = 40;
constexpr int kMultiplierRegisters = 232;
static_assert(kCopierRegisters + kHeads * kMultiplierRegisters <= 65536 / kTileThreads);

// A ring of tiles: `full` once copied, `empty` once every multiplying warp is done with it.
struct Ring {
  std::uint32_t tiles, full, empty;

  __device__ __forceinline__ std::uint32_t tile(unsigned n) const {
    return tiles + n % kStages * kTileBytes;
  }
  __device__ __forceinline__ std::uint32_t full_at(unsigned n) const {
    return full + n % kStages * 8;
  }
  __device__ __forceinline__ std::uint32_t empty_at(unsigned n) const {
    return empty + n % kStages * 8;
  }
  __device__ __forceinline__ void wait_full(unsigned n) const {
    ptx::barrier_wait(full_at(n), n / kStages % 2);
  }
  __device__ __forceinline__ void wait_empty(unsigned n) const {
    ptx::barrier_wait(empty_at(n), n / kStages % 2 ^ 1);
  }
  __device__ __forceinline__ void release(unsigned n, int lane) const {
    if (lane == 0) ptx::barrier_arrive(empty_at(n));
  }
  __device__ __forceinline__ void init() const {
    for (unsigned n = 0; n < kStages; ++n) {
      ptx::barrier_init(full_at(n), kTileThreads);
      ptx::barrier_init(empty_at(n), kHeads * kTileWarps);
    }
  }
};

struct Shared {
  std::uint32_t queries;  // kHeads tiles
  Ring keys, values;
};
constexpr int kBarriers = (kHeads + 2 * kStages) * kTileBytes;  // where they start
constexpr int kTileAlign = 1024;
constexpr int kSharedBytes = kBarriers + 4 * kStages * 8 + kTileAlign;

__device__ __forceinline__ Shared shared_layout(const void* memory) {
  const std::uint32_t base =
      (ptx::shared_address(memory) + kTileAlign - 1) / kTileAlign * kTileAlign;
  const std::uint32_t keys = base + kHeads * kTileBytes, values = keys + kStages * kTileBytes,
                      barriers = base + kBarriers;
  return {base,
          {keys, barriers, barriers + 8 * kStages},
          {values, barriers + 16 * kStages, barriers + 24 * kStages}};
}

// The copying warpgroup. Copies are committed one tile a group; a tile is announced once the next
// one has been started, so that two are always under way.
class Copier {
 public:
  __device__ __forceinline__ Copier(int column, int warp, int lane)
      : column_(column), warp_(warp), lane_(lane) {}

  __device__ __forceinline__ void copy(const Ring& ring, unsigned n, const MatrixRows& from,
                                       int row) {
    ring.wait_empty(n);
    copy_rows(ring.tile(n), from, column_, row, warp_, lane_);
    ptx::cp_async_commit();
    if (started_ != 0) announce<1>();
    started_ = ring.full_at(n);
  }

  template <int kPending>
  __device__ __forceinline__ void announce() {
    ptx::cp_async_wait<kPending>();
    ptx::publish_shared_writes();
    ptx::barrier_arrive(started_);
  }

 private:
  int column_, warp_, lane_;
  std::uint32_t started_ = 0;
};

// In the order in which they are needed: K(0), K(1), V(0), K(2), V(1), ...
__device__ __forceinline__ void copy_blocks(const AttentionParams& p, const Shared& shared,
                                            int block, int column, int warp, int lane) {
  Copier copier(column, warp, lane);
  const int key = kWarpRows * warp + lane % kWarpRows;
  int row = block_row(p, block, key);
  copier.copy(shared.keys, 0, p.k, row);
  for (unsigned n = 0; block != kNoBlock; ++n) {
    const int next = next_block(p, block);
    int next_row = -1;
    if (next != kNoBlock) {
      next_row = block_row(p, next, key);
      copier.copy(shared.keys, n + 1, next < 0 ? p.prefix_k : p.k, next_row);
    }
    copier.copy(shared.values, n, block < 0 ? p.prefix_v : p.v, row);
    block = next;
    row = next_row;
  }
  copier.announce<0>();
}

// scores = Q K^T, issued.
__device__ __forceinline__ void multiply_keys(std::uint32_t queries, std::uint32_t keys,
                                              float (&scores)[kScores]) {
  const std::uint64_t a = ptx::k_major(queries), b = ptx::k_major(keys);
#pragma unroll
  for (int step = 0; step < kAttentionDim / 16; ++step) {
    const std::uint64_t offset = (step / 4 * kPanelBytes + step % 4 * 32) / 16;
    ptx::multiply_64x64x16(scores, a + offset, b + offset, step != 0);
  }
  ptx::products_commit();
}

// out += W V, issued.
__device__ __forceinline__ void multiply_values(std::uint32_t values,
                                                const std::uint32_t (&weights)[kChunk / 16][4],
                                                float (&out)[kOutputs]) {
  const std::uint64_t b = ptx::column_major_panels(values, kPanelBytes);
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step)
    ptx::multiply_64x256x16(out, weights[step], b + step * (16 * kRowBytes / 16));
  ptx::products_commit();
}

// A multiplying warpgroup: one head. `mine` false: the block's second head does not exist.
__device__ __forceinline__ void attend(const AttentionParams& p, const Shared& shared,
                                       const QueryTile& queries, int head, int index, bool mine,
                                       int warp, int lane) {
  const std::uint32_t tile = shared.queries + static_cast<std::uint32_t>(index * kTileBytes);
  copy_queries(tile, p, queries, head, warp, lane);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::publish_shared_writes();
  ptx::named_barrier(1 + index, kTileThreads);

  OnlineSoftmax softmax;
  float out[kOutputs] = {}, scores[kScores], shrink[2];
  std::uint32_t weights[kChunk / 16][4];
  shared.keys.wait_full(0);
  ptx::products_begin();
  multiply_keys(tile, shared.keys.tile(0), scores);
  ptx::products_wait<0>(scores);
  shared.keys.release(0, lane);
  mask_own_chunk(scores, queries.offset, warp, lane);
  softmax.step(scores, shrink);
  pack_weights(scores, weights);

  unsigned n = 1;
  for (int block = next_block(p, queries.chunk); block != kNoBlock; ++n) {
    shared.keys.wait_full(n);
    ptx::pin(out);
    ptx::products_begin();
    multiply_keys(tile, shared.keys.tile(n), scores);
    shared.values.wait_full(n - 1);
    ptx::products_begin();
    multiply_values(shared.values.tile(n - 1), weights, out);
    block = next_block(p, block);
    ptx::products_wait<1>(scores);
    shared.keys.release(n, lane);
    softmax.step(scores, shrink);
    ptx::products_wait<0>(out);
    shared.values.release(n - 1, lane);
    rescale(out, shrink);
    pack_weights(scores, weights);
  }
  shared.values.wait_full(n - 1);
  ptx::pin(out);
  ptx::products_begin();
  multiply_values(shared.values.tile(n - 1), weights, out);
  ptx::products_wait<0>(out);

  ptx::named_barrier(1 + index, kTileThreads);  // no warp reads the queries any more
  if (mine) write_output(p, queries, head, tile, out, softmax, warp, lane);
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_wgmma(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared = shared_layout(memory);
  const int role = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kTileThreads, 0);
  const int warp = static_cast<int>(threadIdx.x) / kWarp % kTileWarps,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  if (threadIdx.x == 0) {
    shared.keys.init();
    shared.values.init();
  }
  __syncthreads();
  grid_dependency_wait();
  grid_dependency_launch();

  const int pairs = (p.group + kHeads - 1) / kHeads, per_tile = p.heads / p.group * pairs;
  const int unit = static_cast<int>(blockIdx.x);
  const QueryTile queries = p.tiles[p.tile_count - 1 - unit / per_tile];  // long paths first
  if (queries.count <= 0) return;
  const int kv_head = unit % per_tile / pairs, first = unit % pairs * kHeads;
  if (role == kHeads) {
    ptx::give_registers<kCopierRegisters>();
    copy_blocks(p, shared, queries.chunk, kv_head * kAttentionDim, warp, lane);
  } else {
    ptx::take_registers<kMultiplierRegisters>();
    const bool mine = first + role < p.group;
    attend(p, shared, queries, kv_head * p.group + (mine ? first + role : first), role, mine, warp,
           lane);
  }
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
  const std::int32_t pairs = (params.group + kHeads - 1) / kHeads;
  const auto blocks = static_cast<unsigned>(params.tile_count) *
                      static_cast<unsigned>(params.heads / params.group * pairs);
  launch("attention", attention_wgmma, dim3(blocks), dim3(kThreads), kSharedBytes, stream, params);
}

void prepare_attention() {
  allow_shared("shared memory of attention", attention_wgmma, kSharedBytes);
}

}  // namespace openjev::cuda
