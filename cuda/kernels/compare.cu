// Whether two arrays hold the same bits: *differ = 1 where they do not, else it stays as it is.
//
// A grid-stride loop over 16 bytes a thread and array, or over 2 where the arrays are not aligned
// for more. 2 * bytes read, next to nothing written.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/launch.h"

namespace openjev::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kBlocks = 1024;

__device__ __forceinline__ bool unequal(uint4 a, uint4 b) {
  return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) != 0;
}
__device__ __forceinline__ bool unequal(std::uint16_t a, std::uint16_t b) { return a != b; }

template <class Word>
__global__ void compare(const Word* a, const Word* b, std::size_t count, std::uint32_t* differ) {
  grid_dependency_wait();
  bool found = false;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * kThreads)
    found = found || unequal(a[i], b[i]);
  if (found) *differ = 1;
}

template <class Word>
void launch_compare(const void* a, const void* b, std::size_t bytes, std::uint32_t* differ,
                    cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(Word);
  const auto blocks = std::min((count + kThreads - 1) / kThreads, kBlocks);
  launch("compare", compare<Word>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream,
         static_cast<const Word*>(a), static_cast<const Word*>(b), count, differ);
}

}  // namespace

void mark_difference(const void* a, const void* b, std::size_t bytes, std::uint32_t* differ,
                     cudaStream_t stream) {
  const auto unaligned = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                         std::uintptr_t{bytes};
  check(unaligned % 2 == 0, "mark_difference: ", bytes, " bytes are not whole 2-byte words");
  if (unaligned % sizeof(uint4) == 0) {
    launch_compare<uint4>(a, b, bytes, differ, stream);
  } else {
    launch_compare<std::uint16_t>(a, b, bytes, differ, stream);
  }
}

}  // namespace openjev::cuda
