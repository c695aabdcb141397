// Inputs of the delta rule, in one pass over the merged projection. For channel c of row r, whose
// ancestors are p1, p2, p3 (rows of the kept tail beyond the root, zero without one):
//   s = silu(w0 m[p3] + w1 m[p2] + w2 m[p1] + w3 m[r])
// q, k and v are stored in float16, for the tensor cores of the delta rule:
//   q = s * rsqrt(sum s^2 + 1e-6) * dk^-1/2     k = s * rsqrt(sum s^2 + 1e-6)     v = s
//   beta = sigmoid(b)                           log_decay = -exp(A_log) * softplus(a + dt_bias)
//
// A thread owns 8 channels and walks down the rows of its block, a strip of loads at a time. Where
// parents are the rows before (nearly everywhere) a row's predecessors are still in registers, so
// `mixed` is read little more than once, and q, k and v are written once: 2 * rows * channels * 2
// bytes. 16 lanes hold a head, so its norm is four shuffles. A block has one strip where rows are
// few, to give every SM work, else four, which share the loads of the taps. One more column of
// blocks does beta and log_decay.
#include <cmath>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTaps = 4;
constexpr int kStrip = 4;
constexpr int kFewRows = 512;
constexpr int kHeadLanes = kDeltaDim / kVector;
constexpr float kEps = 1e-6f;
constexpr float kSoftplusLinear = 20.0f;  // beyond it softplus(x) = x, as in torch

struct Inputs {
  const std::uint16_t* mixed;
  std::int64_t mixed_stride;
  const std::uint16_t* tail;  // [3][channels] or null
  std::int64_t tail_stride;
  const float* conv;  // [4][channels]
  const __nv_bfloat16* beta_logit;
  std::int64_t beta_stride;
  const __nv_bfloat16* decay_logit;
  std::int64_t decay_stride;
  const float* a_log;
  const float* dt_bias;
  const std::int32_t* parent;
  std::uint16_t *q, *k, *v;
  std::int64_t q_stride, k_stride, v_stride;
  float* beta;
  float* log_decay;
  std::int64_t gate_stride, log_stride;
  std::int32_t rows, keys, channels, value_heads;
  float query_scale;
};

__device__ void gates(const Inputs& p, int first, int last) {
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * p.value_heads; i += kThreads) {
    const std::int64_t row = first + i / p.value_heads;
    const int head = i % p.value_heads;
    const float b = __bfloat162float(p.beta_logit[row * p.beta_stride + head]);
    const float a = __bfloat162float(p.decay_logit[row * p.decay_stride + head]) + p.dt_bias[head];
    const float softplus = a > kSoftplusLinear ? a : log1pf(expf(a));
    p.beta[row * p.gate_stride + head] = 1.0f / (1.0f + expf(-b));
    p.log_decay[row * p.log_stride + head] = -expf(p.a_log[head]) * softplus;
  }
}

// The lanes of the calling thread's head: half a warp.
__device__ __forceinline__ unsigned head_mask() {
  constexpr unsigned kHead = (1u << kHeadLanes) - 1;
  return threadIdx.x % kWarp < kHeadLanes ? kHead : kHead << kHeadLanes;
}

__device__ __forceinline__ uint4 mixed_at(const Inputs& p, int row, int channel) {
  return *reinterpret_cast<const uint4*>(p.mixed + row * p.mixed_stride + channel);
}

// The row's three predecessors, nearest first, wherever they are.
__device__ __forceinline__ void predecessors(const Inputs& p, int row, int channel,
                                             uint4 (&past)[kTaps - 1]) {
  int at = row, kept = kTaps - 2;
#pragma unroll
  for (int i = 0; i < kTaps - 1; ++i) {
    at = at >= 0 ? p.parent[at] : -1;
    past[i] = uint4{};
    if (at >= 0)
      past[i] = mixed_at(p, at, channel);
    else if (p.tail != nullptr)
      past[i] = *reinterpret_cast<const uint4*>(p.tail + (kept--) * p.tail_stride + channel);
  }
}

// Where a thread's 8 channels go, and by what they are multiplied beside their norm.
struct Destination {
  std::uint16_t* data;
  std::int64_t stride;
  float scale;  // 0: not normalized
};

__device__ __forceinline__ Destination destination(const Inputs& p, int channel) {
  if (channel < p.keys) return {p.q + channel, p.q_stride, p.query_scale};
  if (channel < 2 * p.keys) return {p.k + (channel - p.keys), p.k_stride, 1.0f};
  return {p.v + (channel - 2 * p.keys), p.v_stride, 0.0f};
}

// s and what becomes of it, for one row and 8 channels; before: nearest first.
__device__ __forceinline__ uint4 finish_row(const Float8 (&tap)[kTaps], const uint4& held,
                                            const uint4 (&before)[kTaps - 1], float scale) {
  const Float8 now = unpack8(held);
  const Float8 past[kTaps - 1] = {unpack8(before[0]), unpack8(before[1]), unpack8(before[2])};
  Float8 s;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    s.v[i] = silu(tap[0].v[i] * past[2].v[i] + tap[1].v[i] * past[1].v[i] +
                  tap[2].v[i] * past[0].v[i] + tap[3].v[i] * now.v[i]);
  }
  if (scale == 0.0f) return pack8_f16(s);  // the same for the 16 lanes of a head
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) squares += s.v[i] * s.v[i];
  scale *= rsqrtf(lanes_sum<kHeadLanes>(squares, head_mask()) + kEps);
#pragma unroll
  for (int i = 0; i < kVector; ++i) s.v[i] *= scale;
  return pack8_f16(s);
}

// A block does kStrips strips of kStrip rows, one after the other.
template <int kStrips>
__global__ void __launch_bounds__(kThreads, 2) delta_inputs_strips(const Inputs p) {
  constexpr int kBefore = kTaps - 1;
  const int first = static_cast<int>(blockIdx.y) * (kStrips * kStrip);
  const int last = min(first + kStrips * kStrip, p.rows);
  if (blockIdx.x + 1 == gridDim.x) {
    grid_dependency_wait();
    grid_dependency_launch();
    gates(p, first, last);
    return;
  }
  const int channel =
      (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kVector;
  const bool mine = channel < p.channels;
  const int at = mine ? channel : 0;
  // The weights and the plan were there before the kernel that this one waits for began: a plan is
  // copied before the pass's first kernel.
  Float8 tap[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const auto* weight = reinterpret_cast<const float4*>(p.conv + t * p.channels + at);
    const float4 low = weight[0], high = weight[1];
    tap[t] = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
  // How many rows in a row up to the one before have the row before them as parent.
  int line = 0;
#pragma unroll
  for (int i = kBefore - 1; i > 0; --i)
    line = first >= i && p.parent[first - i] == first - i - 1 ? line + 1 : 0;
  grid_dependency_wait();
  grid_dependency_launch();
  if (!mine) return;

  // Rows beyond the ends are clamped and not used.
  const auto load = [&](int row) { return mixed_at(p, min(max(row, 0), p.rows - 1), at); };
  const Destination to = destination(p, at);
  uint4 past[kBefore];
#pragma unroll
  for (int i = 0; i < kBefore; ++i) past[i] = load(first - 1 - i);
#pragma unroll 1
  for (int strip = first; strip < last; strip += kStrip) {
    uint4 held[kStrip];
    int parent[kStrip];
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      held[i] = load(strip + i);
      parent[i] = p.parent[min(strip + i, p.rows - 1)];
    }
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      const int row = strip + i;
      if (row >= last) return;
      line = row > 0 && parent[i] == row - 1 ? line + 1 : 0;
      uint4 before[kBefore] = {past[0], past[1], past[2]};
      if (line < kBefore) predecessors(p, row, at, before);
      const uint4 out = finish_row(tap, held[i], before, to.scale);
      *reinterpret_cast<uint4*>(to.data + row * to.stride) = out;
      past[2] = past[1];
      past[1] = past[0];
      past[0] = held[i];
    }
  }
}

template <int kStrips>
void launch_strips(const Inputs& p, cudaStream_t stream) {
  const int per_block = kThreads * kVector, rows = kStrips * kStrip;
  const dim3 grid(static_cast<unsigned>((p.channels + per_block - 1) / per_block + 1),
                  static_cast<unsigned>((p.rows + rows - 1) / rows));
  launch("delta_inputs", delta_inputs_strips<kStrips>, grid, dim3(kThreads), 0, stream, p);
}

}  // namespace

void delta_inputs(const DeltaInputsArgs& args, cudaStream_t stream) {
  const DeltaShape& shape = args.shape;
  check(shape.key_dim == kDeltaDim && shape.value_dim == kDeltaDim,
        "delta_inputs on cuda: head dims ", shape.key_dim, " and ", shape.value_dim,
        "; compiled for ", kDeltaDim);
  for (const View& view : {args.mixed, args.q, args.k, args.v})
    check(vectorizes(view.data, view.stride, view.cols),
          "delta_inputs on cuda: rows are not aligned to 16 bytes");
  check(args.tail.empty() || vectorizes(args.tail.data, args.tail.stride, args.tail.cols),
        "delta_inputs on cuda: the tail is not aligned to 16 bytes");
  Inputs p{};
  p.mixed = static_cast<const std::uint16_t*>(args.mixed.data);
  p.mixed_stride = args.mixed.stride;
  p.tail = args.tail.empty() ? nullptr : static_cast<const std::uint16_t*>(args.tail.data);
  p.tail_stride = args.tail.stride;
  p.conv = static_cast<const float*>(args.conv.data);
  p.beta_logit = static_cast<const __nv_bfloat16*>(args.beta_logit.data);
  p.beta_stride = args.beta_logit.stride;
  p.decay_logit = static_cast<const __nv_bfloat16*>(args.decay_logit.data);
  p.decay_stride = args.decay_logit.stride;
  p.a_log = static_cast<const float*>(args.a_log.data);
  p.dt_bias = static_cast<const float*>(args.dt_bias.data);
  p.parent = args.parent_row.data();
  p.q = static_cast<std::uint16_t*>(args.q.data);
  p.k = static_cast<std::uint16_t*>(args.k.data);
  p.v = static_cast<std::uint16_t*>(args.v.data);
  p.q_stride = args.q.stride;
  p.k_stride = args.k.stride;
  p.v_stride = args.v.stride;
  p.beta = static_cast<float*>(args.beta.data);
  p.log_decay = static_cast<float*>(args.log_decay.data);
  p.gate_stride = args.beta.stride;
  p.log_stride = args.log_decay.stride;
  p.rows = static_cast<std::int32_t>(args.mixed.rows);
  p.keys = static_cast<std::int32_t>(shape.keys());
  p.channels = static_cast<std::int32_t>(shape.conv_channels());
  p.value_heads = shape.value_heads;
  p.query_scale = 1.0f / std::sqrt(static_cast<float>(kDeltaDim));
  if (p.rows == 0) return;
  if (p.rows <= kFewRows)
    launch_strips<1>(p, stream);
  else
    launch_strips<4>(p, stream);
}

}  // namespace openjev::cuda
