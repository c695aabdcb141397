#include "model/merge.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"
#include "core/parallel.h"

#if defined(__x86_64__)
#define OPENJEV_MERGE_X86 1
#endif

namespace openjev {
namespace {

constexpr std::int64_t kBlock = 256;               // columns at a time
constexpr std::int64_t kElementsAtOnce = 1 << 18;  // of one thread

inline float load(float stored) { return stored; }
inline float load(std::uint16_t stored) { return bf16_to_f32(stored); }
inline float rounded(float value, float) { return value; }
inline float rounded(float value, std::uint16_t) { return round_to_bf16(value); }
inline void store(float value, float& out) { out = value; }
inline void store(float value, std::uint16_t& out) { out = f32_to_bf16(value); }

struct Rows {
  const std::byte* weight;
  std::byte* out;
  const LowRank& update;
  std::int64_t first, last;
};

// Inlined into one function for each instruction set: a fused multiply-add must be an instruction,
// not a call, and has the same bits either way. Merges `kCount` columns from `begin`; that the
// compiler knows their number lets it use vectors throughout.
template <class T, std::int64_t kCount>
[[gnu::always_inline]] inline void merge_columns(const Rows& rows, std::int64_t r,
                                                 std::int64_t begin) {
  const LowRank& update = rows.update;
  const float* b = update.b.data() + r * update.rank;
  float sum[kCount] = {};
  for (std::int64_t k = 0; k < update.rank; ++k) {
    const float* a = update.a.data() + k * update.cols + begin;
    const float factor = b[k];
    for (std::int64_t c = 0; c < kCount; ++c) sum[c] = __builtin_fmaf(factor, a[c], sum[c]);
  }
  const std::size_t at = static_cast<std::size_t>(r * update.cols + begin) * sizeof(T);
  T values[kCount];
  std::memcpy(values, rows.weight + at, sizeof values);
  for (std::int64_t c = 0; c < kCount; ++c) {
    const float delta = rounded(update.scale * sum[c], T{});
    store(load(values[c]) + delta, values[c]);
  }
  std::memcpy(rows.out + at, values, sizeof values);
}

template <class T>
[[gnu::always_inline]] inline void merge_rows(const Rows& rows) {
  const std::int64_t cols = rows.update.cols;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    std::int64_t begin = 0;
    for (; begin + kBlock <= cols; begin += kBlock) merge_columns<T, kBlock>(rows, r, begin);
    for (; begin < cols; ++begin) merge_columns<T, 1>(rows, r, begin);
  }
}

using Kernel = void (*)(const Rows&);

template <class T>
void merge_rows_generic(const Rows& rows) {
  merge_rows<T>(rows);
}

#if defined(OPENJEV_MERGE_X86)
template <class T>
[[gnu::target("avx2,fma")]] void merge_rows_fma(const Rows& rows) {
  merge_rows<T>(rows);
}
#endif

template <class T>
Kernel best_kernel() {
#if defined(OPENJEV_MERGE_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &merge_rows_fma<T>;
#endif
  return &merge_rows_generic<T>;
}

}  // namespace

LowRank LowRank::some_rows(std::int64_t first, std::int64_t count) const {
  check(first >= 0 && count >= 0 && first + count <= rows, "rows ", first, "+", count, " of ",
        rows);
  LowRank out = *this;
  out.rows = count;
  out.b = b.subspan(static_cast<std::size_t>(first * rank), static_cast<std::size_t>(count * rank));
  return out;
}

void merge(View weight, const LowRank& update, void* out, int threads) {
  check(weight.rows == update.rows && weight.cols == update.cols && weight.stride == weight.cols,
        "an update of [", update.rows, ", ", update.cols, "] for a matrix of [", weight.rows, ", ",
        weight.cols, "]");
  check(weight.dtype == DType::kBF16 || weight.dtype == DType::kF32, "merge into ",
        name_of(weight.dtype));
  const Kernel kernel =
      weight.dtype == DType::kBF16 ? best_kernel<std::uint16_t>() : best_kernel<float>();
  const std::int64_t rows_each =
      std::max<std::int64_t>(1, kElementsAtOnce / std::max<std::int64_t>(1, update.cols));
  parallel_ranges(threads, update.rows, rows_each, [&](std::int64_t first, std::int64_t last, int) {
    kernel({static_cast<const std::byte*>(weight.data), static_cast<std::byte*>(out), update, first,
            last});
  });
}

}  // namespace openjev
