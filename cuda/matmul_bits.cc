#include "cuda/matmul_bits.h"

#include "cuda/check.h"
#include "cuda/kernels/kernels.h"

namespace openjev::cuda {
namespace {

std::size_t part_bytes(const MatmulTrial& trial, std::int64_t rows) {
  return static_cast<std::size_t>(rows * trial.n()) * size_of(trial.output(rows).dtype);
}

}  // namespace

MatmulBits::MatmulBits()
    : differ_(allocate_device(sizeof(std::uint32_t))),
      seen_(allocate_pinned(sizeof(std::uint32_t))) {}

bool MatmulBits::expect(MatmulTrial& trial, std::int64_t rows,
                        const cublasLtMatmulAlgo_t& algorithm) {
  rows_ = rows;
  const std::size_t bytes = part_bytes(trial, rows) * static_cast<std::size_t>(trial.parts());
  for (const bool accumulate : {false, true}) {
    DeviceMemoryBlock& expected = accumulate ? accumulated_ : plain_;
    expected = {};
    if (accumulate && trial.parts() > 1) continue;
    expected = allocate_device(bytes);
    if (!trial.compute(rows, algorithm, accumulate)) return false;
    check_cuda(cudaMemcpyAsync(expected.data(), trial.output(rows).data, bytes,
                               cudaMemcpyDeviceToDevice, trial.library().stream()),
               "keep an output");
  }
  return true;
}

bool MatmulBits::met(MatmulTrial& trial, std::int64_t rows, const cublasLtMatmulAlgo_t& algorithm) {
  const cudaStream_t stream = trial.library().stream();
  check_cuda(cudaMemsetAsync(differ_.data(), 0, differ_.bytes(), stream), "compare outputs");
  for (const bool accumulate : {false, true}) {
    if (accumulate && trial.parts() > 1) continue;
    if (!trial.compute(rows, algorithm, accumulate)) return false;
    compare(trial, rows, accumulate ? accumulated_ : plain_);
  }
  check_cuda(cudaMemcpyAsync(seen_.data(), differ_.data(), differ_.bytes(), cudaMemcpyDeviceToHost,
                             stream),
             "compare outputs");
  check_cuda(cudaStreamSynchronize(stream), "compare outputs");
  return *seen_.as<const std::uint32_t>() == 0;
}

void MatmulBits::compare(const MatmulTrial& trial, std::int64_t rows,
                         const DeviceMemoryBlock& expected) {
  check(rows <= rows_, "matmul bits: ", rows, " rows, expected are ", rows_);
  const std::size_t bytes = part_bytes(trial, rows), expected_bytes = part_bytes(trial, rows_);
  const auto* found = static_cast<const std::byte*>(trial.output(rows).data);
  for (std::size_t part = 0; part < static_cast<std::size_t>(trial.parts()); ++part) {
    mark_difference(found + part * bytes, expected.as<const std::byte>() + part * expected_bytes,
                    bytes, differ_.as<std::uint32_t>(), trial.library().stream());
  }
}

}  // namespace openjev::cuda
