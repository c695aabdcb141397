// Contiguous arrays: seeded values, and conversions between float32 and bfloat16.
#include "core/random.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/numerics.cuh"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t element() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void fill_bf16(__nv_bfloat16* out, std::int64_t count, std::uint64_t seed, float scale) {
  grid_dependency_wait();
  if (const std::int64_t i = element(); i < count)
    out[i] = __float2bfloat16_rn(uniform_of(seed, static_cast<std::uint64_t>(i), scale));
}

__global__ void fill_f32(float* out, std::int64_t count, std::uint64_t seed, float scale) {
  grid_dependency_wait();
  if (const std::int64_t i = element(); i < count)
    out[i] = uniform_of(seed, static_cast<std::uint64_t>(i), scale);
}

__global__ void narrow_all(const float* in, __nv_bfloat16* out, std::int64_t count) {
  grid_dependency_wait();
  if (const std::int64_t i = element(); i < count) out[i] = __float2bfloat16_rn(in[i]);
}

__global__ void widen_all(const __nv_bfloat16* in, float* out, std::int64_t count) {
  grid_dependency_wait();
  if (const std::int64_t i = element(); i < count) out[i] = __bfloat162float(in[i]);
}

dim3 blocks(std::int64_t count) {
  return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads));
}

}  // namespace

void fill_random(View out, std::uint64_t seed, float scale, cudaStream_t stream) {
  const std::int64_t count = out.rows * out.cols;
  check(out.stride == out.cols, "fill_random: the rows are not contiguous");
  if (out.dtype == DType::kBF16)
    launch("fill_random", fill_bf16, blocks(count), dim3(kThreads), 0, stream,
           static_cast<__nv_bfloat16*>(out.data), count, seed, scale);
  else
    launch("fill_random", fill_f32, blocks(count), dim3(kThreads), 0, stream,
           static_cast<float*>(out.data), count, seed, scale);
}

void narrow(const float* in, std::uint16_t* out, std::int64_t count, cudaStream_t stream) {
  launch("narrow", narrow_all, blocks(count), dim3(kThreads), 0, stream, in,
         reinterpret_cast<__nv_bfloat16*>(out), count);
}

void widen(const std::uint16_t* in, float* out, std::int64_t count, cudaStream_t stream) {
  launch("widen", widen_all, blocks(count), dim3(kThreads), 0, stream,
         reinterpret_cast<const __nv_bfloat16*>(in), out, count);
}

}  // namespace openjev::cuda
