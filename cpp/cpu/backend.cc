#include "cpu/backend.h"

#include <cstring>

#include "core/parallel.h"
#include "core/random.h"
#include "cpu/memory.h"
#include "cpu/ops.h"
#include "cpu/weights.h"

namespace openjev::cpu {
namespace {

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : data_(allocate_host(bytes)), bytes_(bytes) {}
  void* data() const override { return data_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  HostPointer data_;
  std::size_t bytes_;
};

void copy_rows(const View& from, const View& to) {
  check(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype,
        "copy between different shapes");
  const std::size_t item = size_of(from.dtype), width = static_cast<std::size_t>(from.cols) * item;
  for (std::int64_t r = 0; r < from.rows; ++r) {
    std::memcpy(
        static_cast<char*>(to.data) + static_cast<std::size_t>(r * to.stride) * item,
        static_cast<const char*>(from.data) + static_cast<std::size_t>(r * from.stride) * item,
        width);
  }
}

HostPointer random_bf16(std::int64_t rows, std::int64_t cols, std::uint64_t seed, float scale) {
  const auto count = static_cast<std::uint64_t>(rows * cols);
  HostPointer out = allocate_host(2 * count);
  auto* bits = static_cast<std::uint16_t*>(out.get());
  for (std::uint64_t i = 0; i < count; ++i) bits[i] = f32_to_bf16(uniform_of(seed, i, scale));
  return out;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int threads)
      : kernels_(kernels), threads_(threads), ops_(kernels, threads) {}

  std::string name() const override { return "cpu"; }
  std::string describe() const override {
    return std::string(kernels_.name) + ", " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
  }
  int threads() const override { return threads_; }
  DType activation_dtype() const override { return DType::kF32; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<HostBuffer>(bytes);
  }
  void copy_in(View destination, const void* source) override {
    copy_rows({const_cast<void*>(source), destination.dtype, destination.rows, destination.cols,
               destination.cols},
              destination);
  }
  void copy_out(void* destination, View source) override {
    copy_rows(source, {destination, source.dtype, source.rows, source.cols, source.cols});
  }
  void copy(View source, View destination) override { copy_rows(source, destination); }
  std::unique_ptr<Matrix> make_matrix(std::span<const View> parts) override {
    return std::make_unique<PackedMatrix>(parts, kernels_.panel, threads_);
  }
  std::unique_ptr<Matrix> make_table(View host) override { return std::make_unique<Table>(host); }
  std::unique_ptr<Matrix> make_random_matrix(std::int64_t rows, std::int64_t cols,
                                             std::uint64_t seed, float scale) override {
    const HostPointer values = random_bf16(rows, cols, seed, scale);
    const View parts[] = {View::contiguous(values.get(), DType::kBF16, rows, cols)};
    return make_matrix(parts);
  }
  std::unique_ptr<Matrix> make_random_table(std::int64_t rows, std::int64_t cols,
                                            std::uint64_t seed, float scale) override {
    return std::make_unique<OwnedTable>(random_bf16(rows, cols, seed, scale), rows, cols);
  }
  PlanView upload(const PlanView& host, bool) override { return host; }
  Ops& ops() override { return ops_; }
  void synchronize() override {}

 private:
  const KernelTable& kernels_;
  int threads_;
  CpuOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    fail(ErrorKind::kBadRequest, "threads ", options.threads, ": allowed are 0 (all cores) to ",
         kMostThreads);
  }
  const int threads = options.threads == 0 ? available_threads() : options.threads;
  return std::make_unique<CpuBackend>(select_kernels(options.cpu_isa.c_str()), threads);
}

}  // namespace openjev::cpu
