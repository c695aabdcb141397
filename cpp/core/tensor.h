// A view of a matrix somewhere: it owns nothing and knows no device. Rows are contiguous; `stride`
// is the distance between the starts of two rows, in elements, so a range of columns is a view too.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"

namespace openjev {

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  static View contiguous(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
    return {data, dtype, rows, cols, cols};
  }

  bool empty() const { return rows == 0 || cols == 0; }

  template <class T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }

  // Columns [first, first + count) of every row.
  View columns(std::int64_t first, std::int64_t count) const {
    check(first >= 0 && count >= 0 && first + count <= cols, "columns ", first, "+", count, " of ",
          cols);
    View out = *this;
    out.data = static_cast<char*>(data) + first * static_cast<std::int64_t>(size_of(dtype));
    out.cols = count;
    return out;
  }

  View first_rows(std::int64_t count) const {
    check(count >= 0 && count <= rows, "first ", count, " rows of ", rows);
    View out = *this;
    out.rows = count;
    return out;
  }

  // Rows [first, first + count).
  View rows_from(std::int64_t first, std::int64_t count) const {
    check(first >= 0 && count >= 0 && first + count <= rows, "rows ", first, "+", count, " of ",
          rows);
    View out = *this;
    out.data =
        static_cast<char*>(data) + first * stride * static_cast<std::int64_t>(size_of(dtype));
    out.rows = count;
    return out;
  }
};

}  // namespace openjev
