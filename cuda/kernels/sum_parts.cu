// out = R(part_0 + part_1 + ... [+ out]): what a product leaves whose K was split.
//
// The parts are added in their order in float32 and rounded once. A thread does 8 columns of one
// row: 32 bytes of each part, 16 of out; rows * cols * (4 count + 2 [+ 2]) bytes in all, nothing is
// reused. Widths that are no multiple of 8 take one element a thread.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // parts of which a thread loads before it adds

struct SumParts {
  const float* parts;  // [count][rows, cols], contiguous
  std::int64_t part;   // elements of one
  std::int32_t count;
  std::uint16_t* out;
  std::int64_t out_stride;
  std::int32_t width;  // items (vectors or elements) a row
  std::int64_t items;  // in all
};

template <bool kAccumulate>
__global__ void __launch_bounds__(kThreads) sum_vectors(const SumParts p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= p.items) return;
  const auto row = static_cast<std::int64_t>(static_cast<std::uint32_t>(item) /
                                             static_cast<std::uint32_t>(p.width));
  auto* out = reinterpret_cast<uint4*>(p.out + row * p.out_stride) + (item - row * p.width);
  const uint4 before = kAccumulate ? *out : uint4{};
  const float* from = p.parts + item * kVector;
  Float8 sum{};
#pragma unroll kInFlight
  for (int i = 0; i < p.count; ++i, from += p.part) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    const float x[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum.v[j] += x[j];
  }
  if (kAccumulate) {
    const Float8 add = unpack8(before);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum.v[j] += add.v[j];
  }
  *out = pack8(sum);
}

template <bool kAccumulate>
__global__ void __launch_bounds__(kThreads) sum_elements(const SumParts p) {
  grid_dependency_wait();
  grid_dependency_launch();
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= p.items) return;
  const std::int64_t row = item / p.width, column = item - row * p.width;
  auto* out = reinterpret_cast<__nv_bfloat16*>(p.out) + row * p.out_stride + column;
  float sum = 0.0f;
  for (int i = 0; i < p.count; ++i) sum += p.parts[i * p.part + item];
  if (kAccumulate) sum += __bfloat162float(*out);
  *out = __float2bfloat16_rn(sum);
}

}  // namespace

void sum_parts(View parts, int count, View out, bool accumulate, cudaStream_t stream) {
  check(parts.dtype == DType::kF32 && out.dtype == DType::kBF16 && parts.stride == parts.cols &&
            parts.cols == out.cols && parts.rows == count * out.rows,
        "sum_parts: ", parts.rows, " x ", parts.cols, " are not ", count,
        " contiguous float32 parts of ", out.rows, " x ", out.cols, " bfloat16");
  if (out.empty()) return;
  const bool vectors =
      vectorizes(parts.data, parts.stride, out.cols) && vectorizes(out.data, out.stride, out.cols);
  SumParts p{static_cast<const float*>(parts.data),
             out.rows * out.cols,
             count,
             static_cast<std::uint16_t*>(out.data),
             out.stride,
             static_cast<std::int32_t>(vectors ? out.cols / kVector : out.cols),
             0};
  p.items = out.rows * p.width;
  check(p.items <= UINT32_MAX, "sum_parts on cuda: ", p.items, " items are too many");
  const dim3 grid(static_cast<unsigned>((p.items + kThreads - 1) / kThreads));
  const auto kernel = vectors ? (accumulate ? sum_vectors<true> : sum_vectors<false>)
                              : (accumulate ? sum_elements<true> : sum_elements<false>);
  launch("sum_parts", kernel, grid, dim3(kThreads), 0, stream, p);
}

}  // namespace openjev::cuda
