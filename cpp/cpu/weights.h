// Weights in host memory: matrices packed for the kernels, and tables that are read where they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/ops.h"
#include "cpu/memory.h"

namespace openjev::cpu {

// W [rows, cols] in panels of `panel` rows of W: packed[panel index][k][row within the panel],
// zero-padded, in the weights' own dtype.
class PackedMatrix final : public Matrix {
 public:
  PackedMatrix(std::span<const View> parts, int panel, int threads);
  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  std::size_t bytes() const override { return bytes_; }
  DType dtype() const { return dtype_; }
  const void* data() const { return data_.get(); }

 private:
  std::int64_t rows_ = 0, cols_ = 0;
  DType dtype_ = DType::kF32;
  std::size_t bytes_ = 0;
  HostPointer data_;
};

class Table : public Matrix {
 public:
  explicit Table(View host) : host_(host) {}
  std::int64_t rows() const override { return host_.rows; }
  std::int64_t cols() const override { return host_.cols; }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(host_.rows * host_.cols) * size_of(host_.dtype);
  }
  void copy_row(std::int64_t row, float* out) const;

 private:
  View host_;
};

class OwnedTable final : public Table {
 public:
  OwnedTable(HostPointer bf16, std::int64_t rows, std::int64_t cols)
      : Table(View::contiguous(bf16.get(), DType::kBF16, rows, cols)), data_(std::move(bf16)) {}

 private:
  HostPointer data_;
};

}  // namespace openjev::cpu
