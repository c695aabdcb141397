#include "openjev_bench/device_data.h"

#include "core/random.h"

namespace openjev::bench {
namespace {

template <class T, class Make>
void fill(Backend& backend, View view, const Make& make) {
  check(view.stride == view.cols, "a view to fill must be contiguous");
  std::vector<T> values(static_cast<std::size_t>(view.rows * view.cols));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = make(i);
  backend.copy_in(view, values.data());
}

}  // namespace

void fill_uniform(Backend& backend, View view, std::uint64_t seed, float scale) {
  if (view.dtype == DType::kBF16)
    fill<std::uint16_t>(backend, view,
                        [&](std::uint64_t i) { return f32_to_bf16(uniform_of(seed, i, scale)); });
  else
    fill<float>(backend, view, [&](std::uint64_t i) { return uniform_of(seed, i, scale); });
}

void fill_indices(Backend& backend, View view, std::uint64_t seed, std::int32_t below) {
  check(view.dtype == DType::kI32 && below > 0, "indices are int32 below a positive number");
  fill<std::int32_t>(backend, view, [&](std::uint64_t i) {
    return static_cast<std::int32_t>(hash_of(seed, i) % static_cast<std::uint64_t>(below));
  });
}

}  // namespace openjev::bench
