// Inputs of the delta rule, in one pass over the merged projection. For channel c of row r, whose
// ancestors are p1, p2, p3 (rows of the kept tail beyond the root, zero without one):
//   s = R(silu(R(w0 m[p3] + w1 m[p2] + w2 m[p1] + w3 m[r])))
//   q = s * rsqrt(sum s^2 + 1e-6) * dk^-1/2     k = s * rsqrt(sum s^2 + 1e-6)     v = s
//   beta = R(sigmoid(b))                        log_decay = -exp(A_log) * softplus(a + dt_bias)
//
// A thread owns 8 channels of a strip of rows. It loads the strip and the three rows before it at
// once: where parents are the rows before (nearly everywhere) those are all that it needs, so
// `mixed` is read (1 + 3 / strip) times, mostly from L2, and q, k and v are written once: 2 * rows
// * channels * 2 bytes of memory traffic. 16 lanes hold a head, so its norm is four shuffles.
// Strips are short where rows are few, to give every SM work. One more column of blocks does beta
// and log_decay.
#include <cmath>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTaps = 4;
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
    p.beta[row * p.gate_stride + head] = round_bf16(1.0f / (1.0f + expf(-b)));
    p.log_decay[row * p.log_stride + head] = -expf(p.a_log[head]) * softplus;
  }
}

__device__ __forceinline__ uint4 mixed_at(const Inputs& p, int row, int channel) {
  return *reinterpret_cast<const uint4*>(p.mixed + row * p.mixed_stride + channel);
}

// The row's three predecessors, nearest first, wherever they are.
__device__ __noinline__ void predecessors(const Inputs& p, int row, int channel,
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

// c, s and what becomes of it, for one row and 8 channels.
__device__ __forceinline__ void finish_row(const Inputs& p, int row, int channel, bool mine,
                                           const Float8 (&tap)[kTaps], const uint4& now,
                                           const uint4& past1, const uint4& past2,
                                           const uint4& past3) {
  const Float8 x0 = unpack8(now), x1 = unpack8(past1), x2 = unpack8(past2), x3 = unpack8(past3);
  Float8 s;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float c = tap[0].v[i] * x3.v[i] + tap[1].v[i] * x2.v[i] + tap[2].v[i] * x1.v[i] +
                    tap[3].v[i] * x0.v[i];
    s.v[i] = round_bf16(silu(round_bf16(c)));
    squares += s.v[i] * s.v[i];
  }
  const float norm = rsqrtf(lanes_sum<kHeadLanes>(squares) + kEps);
  std::uint16_t* to = p.v + row * p.v_stride + (channel - 2 * p.keys);
  float scale = 1.0f;
  if (channel < p.keys) {
    to = p.q + row * p.q_stride + channel;
    scale = norm * p.query_scale;
  } else if (channel < 2 * p.keys) {
    to = p.k + row * p.k_stride + (channel - p.keys);
    scale = norm;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) s.v[i] *= scale;
  if (mine) *reinterpret_cast<uint4*>(to) = pack8(s);
}

template <int kStrip>
__global__ void __launch_bounds__(kThreads) delta_inputs_strip(const Inputs p) {
  constexpr int kBefore = kTaps - 1;
  const int first = static_cast<int>(blockIdx.y) * kStrip;
  grid_dependency_wait();
  grid_dependency_launch();
  if (blockIdx.x + 1 == gridDim.x) {
    gates(p, first, min(first + kStrip, p.rows));
    return;
  }
  const int channel =
      (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kVector;
  const bool mine = channel < p.channels;  // whole heads, but a warp holds two
  const int at = mine ? channel : 0;

  // Rows and parents of first - 3 ... first + kStrip - 1; those outside are clamped and not used.
  uint4 held[kBefore + kStrip];
  int parent[kBefore + kStrip];
#pragma unroll
  for (int i = 0; i < kBefore + kStrip; ++i) {
    const int row = min(max(first - kBefore + i, 0), p.rows - 1);
    held[i] = mixed_at(p, row, at);
    parent[i] = p.parent[row];
  }
  Float8 tap[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const auto* weight = reinterpret_cast<const float4*>(p.conv + t * p.channels + at);
    const float4 low = weight[0], high = weight[1];
    tap[t] = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
#pragma unroll
  for (int i = kBefore; i < kBefore + kStrip; ++i) {
    const int row = first - kBefore + i;
    if (row >= p.rows) break;
    const bool in_line = row >= kBefore && parent[i] == row - 1 && parent[i - 1] == row - 2 &&
                         parent[i - 2] == row - 3;
    if (in_line) {
      finish_row(p, row, at, mine, tap, held[i], held[i - 1], held[i - 2], held[i - 3]);
    } else {
      uint4 past[kBefore];
      predecessors(p, row, at, past);
      finish_row(p, row, at, mine, tap, held[i], past[0], past[1], past[2]);
    }
  }
}

template <int kStrip>
void launch_strips(const Inputs& p, cudaStream_t stream) {
  const int per_block = kThreads * kVector;
  const dim3 grid(static_cast<unsigned>((p.channels + per_block - 1) / per_block + 1),
                  static_cast<unsigned>((p.rows + kStrip - 1) / kStrip));
  launch("delta_inputs", delta_inputs_strip<kStrip>, grid, dim3(kThreads), 0, stream, p);
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
    launch_strips<4>(p, stream);
  else
    launch_strips<8>(p, stream);
}

}  // namespace openjev::cuda
