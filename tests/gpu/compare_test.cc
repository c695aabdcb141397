// mark_difference (cuda/kernels/compare.cu): a single byte that differs is seen wherever it is, and
// nothing outside the arrays counts. Prints one line a size that holds; exits with 1 at the first
// that does not.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "cuda/kernels/kernels.h"
#include "cuda/raii.h"

namespace {

using namespace openjev::cuda;

constexpr int kSame = 0x5a, kOther = 0xa5;
constexpr std::size_t kMargin = 16;  // bytes on either side

struct Arrays {
  Stream stream = make_stream();
  DeviceMemoryBlock a, b, differ = allocate_device(sizeof(std::uint32_t));

  void set(const DeviceMemoryBlock& block, std::size_t at, int value, std::size_t bytes) const {
    check_cuda(cudaMemsetAsync(block.as<std::byte>() + at, value, bytes, stream.get()), "set");
  }
  bool differing(std::size_t first, std::size_t bytes) const {
    set(differ, 0, 0, differ.bytes());
    mark_difference(a.as<std::byte>() + first, b.as<std::byte>() + first, bytes,
                    differ.as<std::uint32_t>(), stream.get());
    std::uint32_t found = 0;
    check_cuda(
        cudaMemcpyAsync(&found, differ.data(), sizeof found, cudaMemcpyDeviceToHost, stream.get()),
        "read");
    check_cuda(cudaStreamSynchronize(stream.get()), "compare");
    return found != 0;
  }
};

void expect(bool holds, const char* what, std::size_t bytes, std::size_t shift) {
  if (holds) return;
  std::printf("FAILED: %s, %zu bytes, %zu bytes from 16-byte alignment\n", what, bytes, shift);
  std::exit(1);
}

}  // namespace

int main() {
  // Whole and cut vectors, one block and more elements than all threads take at once.
  for (const std::size_t bytes : {2u, 16u, 30u, 4096u, 4098u, 5242880u, 5242882u}) {
    for (const std::size_t shift : {0u, 2u}) {
      const std::size_t all = bytes + 2 * kMargin, first = kMargin + shift;
      Arrays arrays;
      arrays.a = allocate_device(all);
      arrays.b = allocate_device(all);
      arrays.set(arrays.a, 0, kSame, all);
      arrays.set(arrays.b, 0, kOther, all);
      arrays.set(arrays.b, first, kSame, bytes);
      expect(!arrays.differing(first, bytes), "equal arrays", bytes, shift);
      for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) {
        arrays.set(arrays.b, first + at, kOther, 1);
        expect(arrays.differing(first, bytes), "one byte", bytes, shift);
        arrays.set(arrays.b, first + at, kSame, 1);
      }
      expect(!arrays.differing(first, bytes), "equal again", bytes, shift);
      std::printf("ok: %zu bytes, shifted by %zu\n", bytes, shift);
    }
  }
  return 0;
}
