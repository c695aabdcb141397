// Per head of 256 values: n = x * rsqrt(mean(x^2) + eps) * (1 + w), then for f < rotary / 2 with
// c = cos(p inv[f]), s = sin(p inv[f]), p the row's position, inv[f] = 1 / theta^(2 f / rotary):
//   out[f]              = R(n[f] c - n[f + rotary / 2] s)
//   out[f + rotary / 2] = R(n[f + rotary / 2] c + n[f] s)
// Dimensions beyond the rotary ones are R(n).
//
// A warp does up to four heads of one row: 8 values a lane, so a head is one 16-byte access a lane,
// four of them in flight, and the row's cosines and sines, one or a few a lane, serve all four. A
// pair stands in lanes rotary / 16 apart. Queries and keys are jobs of one launch. 2 * rows * heads
// * 256 * 2 bytes.
#include <cmath>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kHeadDim = kAttentionDim;
constexpr int kHeadsPerWarp = 4;
constexpr int kWarps = 4;
constexpr int kJobs = 2;
constexpr int kMostPairs = kHeadDim / 2;

static_assert(kWarp * kVector == kHeadDim, "a warp holds a head");

struct Job {
  const std::uint16_t* in;
  std::int64_t in_stride;
  std::uint16_t* out;
  std::int64_t out_stride;
  const float* weight;
  const std::int32_t* position;
  std::int32_t heads;
  std::int32_t head_stride;
  std::int32_t groups;  // of kHeadsPerWarp heads of a row, rounded up
  std::int32_t units;   // rows * groups
};

struct Params {
  Job jobs[kJobs];
  float eps;
  std::int32_t pairs;           // rotary_dim / 2
  float frequency[kMostPairs];  // inv
};

// What a lane knows of the row's rotation.
struct Rotation {
  Float8 cos, sin;  // of its 8 dimensions; sin is negative in the first half
  int partner;      // the lane with the other half of its pairs
  bool active;
};

__device__ __forceinline__ Rotation rotation_of(const Params& p, std::int32_t position, int lane,
                                                float2* table) {
  for (int f = lane; f < p.pairs; f += kWarp) {
    sincosf(__fmul_rn(static_cast<float>(position), p.frequency[f]), &table[f].y, &table[f].x);
  }
  __syncwarp();
  const int half = p.pairs / kVector;  // lanes of one half
  const bool first = lane < half;
  Rotation r;
  r.active = lane < 2 * half;
  r.partner = r.active ? (first ? lane + half : lane - half) : lane;
  const int begin = r.active ? (first ? lane : lane - half) * kVector : 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float2 entry = r.active ? table[begin + i] : float2{1.0f, 0.0f};
    r.cos.v[i] = entry.x;
    r.sin.v[i] = first ? -entry.y : entry.y;
  }
  return r;
}

__device__ __forceinline__ Float8 normalized(const Float8& x, const Float8& weight, float eps) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) squares += x.v[i] * x.v[i];
  const float inverse = rsqrtf(lanes_sum(squares) * (1.0f / kHeadDim) + eps);
  Float8 n;
#pragma unroll
  for (int i = 0; i < kVector; ++i) n.v[i] = x.v[i] * inverse * (1.0f + weight.v[i]);
  return n;
}

__device__ __forceinline__ Float8 rotated(const Float8& n, const Rotation& r) {
  Float8 out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float other = __shfl_sync(~0u, n.v[i], r.partner);
    const float turned = n.v[i] * r.cos.v[i] + other * r.sin.v[i];
    out.v[i] = r.active ? turned : n.v[i];
  }
  return out;
}

__device__ __forceinline__ Float8 load_weight(const float* weight, int lane) {
  const float4* at = reinterpret_cast<const float4*>(weight) + 2 * lane;
  const float4 a = at[0], b = at[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__global__ void __launch_bounds__(kWarps* kWarp)
    norm_rope_heads(const __grid_constant__ Params params) {
  __shared__ float2 tables[kWarps][kMostPairs];
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  grid_dependency_wait();
  grid_dependency_launch();

  int unit = static_cast<int>(blockIdx.x) * kWarps + warp;
  const bool second = unit >= params.jobs[0].units;
  const Job& job = params.jobs[second ? 1 : 0];
  if (second) unit -= params.jobs[0].units;
  if (unit >= job.units) return;
  const std::int64_t row = unit / job.groups;
  const int first_head = unit % job.groups * kHeadsPerWarp;
  const int heads = min(kHeadsPerWarp, job.heads - first_head);

  uint4 bits[kHeadsPerWarp];
  const std::uint16_t* in = job.in + row * job.in_stride + lane * kVector;
#pragma unroll
  for (int h = 0; h < kHeadsPerWarp; ++h) {
    const std::int64_t head = first_head + min(h, heads - 1);
    bits[h] = *reinterpret_cast<const uint4*>(in + head * job.head_stride);
  }
  const Float8 weight = load_weight(job.weight, lane);
  const Rotation rotation = rotation_of(params, job.position[row], lane, tables[warp]);
  std::uint16_t* out = job.out + row * job.out_stride + lane * kVector;
#pragma unroll
  for (int h = 0; h < kHeadsPerWarp; ++h) {
    const Float8 n = normalized(unpack8(bits[h]), weight, params.eps);
    const uint4 result = pack8(rotated(n, rotation));
    if (h < heads) *reinterpret_cast<uint4*>(out + (first_head + h) * kHeadDim) = result;
  }
}

Job device_job(const NormRopeJob& job) {
  check(vectorizes(job.in.data, job.in.stride, job.head_stride) &&
            vectorizes(job.out.data, job.out.stride, job.out.cols) &&
            vectorizes(job.weight.data, job.weight.stride, job.weight.cols),
        "norm_rope on cuda: rows or heads are not aligned to 16 bytes");
  const std::int32_t groups = (job.heads + kHeadsPerWarp - 1) / kHeadsPerWarp;
  return {.in = static_cast<const std::uint16_t*>(job.in.data),
          .in_stride = job.in.stride,
          .out = static_cast<std::uint16_t*>(job.out.data),
          .out_stride = job.out.stride,
          .weight = static_cast<const float*>(job.weight.data),
          .position = job.position.data(),
          .heads = job.heads,
          .head_stride = job.head_stride,
          .groups = groups,
          .units = static_cast<std::int32_t>(job.in.rows) * groups};
}

}  // namespace

void norm_rope(std::span<const NormRopeJob> jobs, const RopeShape& shape, cudaStream_t stream) {
  check(shape.head_dim == kHeadDim, "norm_rope on cuda: head_dim ", shape.head_dim,
        "; compiled for ", kHeadDim);
  check(shape.rotary_dim >= 0 && shape.rotary_dim <= kHeadDim &&
            shape.rotary_dim % (2 * kVector) == 0,
        "norm_rope on cuda: rotary_dim ", shape.rotary_dim, "; allowed are multiples of ",
        2 * kVector, " up to ", kHeadDim);
  check(jobs.size() <= kJobs, "norm_rope on cuda: ", jobs.size(), " jobs; at most ", kJobs);
  Params params{};
  params.eps = shape.eps;
  params.pairs = shape.rotary_dim / 2;
  for (std::int32_t f = 0; f < params.pairs; ++f) {
    const double exponent = 2.0 * f / shape.rotary_dim;
    params.frequency[f] = 1.0f / static_cast<float>(std::pow(shape.theta, exponent));
  }
  std::int32_t units = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    params.jobs[i] = device_job(jobs[i]);
    units += params.jobs[i].units;
  }
  launch("norm_rope", norm_rope_heads, dim3(static_cast<unsigned>((units + kWarps - 1) / kWarps)),
         dim3(kWarps * kWarp), 0, stream, params);
}

}  // namespace openjev::cuda
