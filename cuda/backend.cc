// The CUDA backend behind the plugin's one exported function.
#include "backend/backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "cuda/device.h"
#include "cuda/graph_cache.h"
#include "cuda/kernels/kernels.h"
#include "cuda/matmul.h"
#include "cuda/ops.h"
#include "cuda/plan_upload.h"
#include "cuda/raii.h"
#include "cuda/weights.h"

namespace openjev::cuda {
namespace {

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : memory_(allocate_device(bytes)) {}
  void* data() const override { return memory_.data(); }
  std::size_t bytes() const override { return memory_.bytes(); }

 private:
  DeviceMemoryBlock memory_;
};

std::size_t pitch(const View& view) {
  return static_cast<std::size_t>(view.stride) * size_of(view.dtype);
}

std::size_t width(const View& view) {
  return static_cast<std::size_t>(view.cols) * size_of(view.dtype);
}

MatmulOptions matmul_options(const BackendOptions& options, const Device& device) {
  if (options.matmul_mode != "invariant" && options.matmul_mode != "fast") {
    fail(ErrorKind::kBadRequest, "matmul_mode ", options.matmul_mode,
         ": unknown; allowed are invariant and fast");
  }
  MatmulOptions out;
  out.invariant = options.matmul_mode == "invariant";
  out.tuning_file = device.tuning_file(options.tuning_file, options.matmul_mode);
  out.parts = options.matmul_parts;
  return out;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options)
      : device_(options.device_index),
        graph_mode_(parse_graph_mode(options.graph_mode)),
        stream_(make_stream()),
        matmul_(matmul_options(options, device_), stream_.get()),
        graphs_(graph_mode_, options.graph_entries, stream_.get()),
        ops_(matmul_, stream_.get()) {
    prepare_delta_rule();
    prepare_attention();
  }
  ~CudaBackend() override { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

  std::string name() const override { return "cuda"; }
  std::string describe() const override { return device_.describe(); }
  int threads() const override { return 1; }
  DType activation_dtype() const override { return DType::kBF16; }
  DType delta_dtype() const override { return DType::kF16; }

  // Whatever a thread of the caller's does here begins with one of those that select the device.
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    device_.use();
    return std::make_unique<DeviceBuffer>(bytes);
  }

  void copy_in(View destination, const void* source) override {
    if (destination.empty()) return;
    check_cuda(cudaMemcpy2DAsync(destination.data, pitch(destination), source, width(destination),
                                 width(destination), static_cast<std::size_t>(destination.rows),
                                 cudaMemcpyHostToDevice, stream_.get()),
               "copy to the device");
    synchronize();
  }

  // Through pinned memory when it fits: a pageable copy costs a staging of the driver's own.
  void copy_out(void* destination, View source) override {
    if (source.empty()) return;
    const std::size_t bytes = width(source) * static_cast<std::size_t>(source.rows);
    void* to = bytes <= results_.bytes() ? results_.data() : destination;
    check_cuda(cudaMemcpy2DAsync(to, width(source), source.data, pitch(source), width(source),
                                 static_cast<std::size_t>(source.rows), cudaMemcpyDeviceToHost,
                                 stream_.get()),
               "copy from the device");
    synchronize();
    if (to != destination) std::memcpy(destination, to, bytes);
  }

  void copy(View source, View destination) override {
    check(source.rows == destination.rows && source.cols == destination.cols &&
              source.dtype == destination.dtype,
          "copy between different shapes");
    if (source.empty()) return;
    check_cuda(cudaMemcpy2DAsync(destination.data, pitch(destination), source.data, pitch(source),
                                 width(source), static_cast<std::size_t>(source.rows),
                                 cudaMemcpyDeviceToDevice, stream_.get()),
               "copy on the device");
  }

  std::unique_ptr<Matrix> make_matrix(std::span<const View> parts) override {
    auto matrix = weights_.stack(parts);
    remember(*matrix);
    return matrix;
  }
  std::unique_ptr<Matrix> make_table(View host) override {
    const View parts[] = {host};
    return weights_.stack(parts);
  }
  std::unique_ptr<Matrix> make_random_matrix(std::int64_t rows, std::int64_t cols,
                                             std::uint64_t seed, float scale) override {
    auto matrix = make_random(rows, cols, seed, scale);
    remember(*matrix);
    return matrix;
  }
  std::unique_ptr<Matrix> make_random_table(std::int64_t rows, std::int64_t cols,
                                            std::uint64_t seed, float scale) override {
    return make_random(rows, cols, seed, scale);
  }
  View storage(const Matrix& matrix) const override {
    return static_cast<const DeviceMatrix&>(matrix).view();
  }
  void finish_weights() override {
    weights_.finish();
    synchronize();
  }

  PlanView upload(const PlanView& host, bool pad) override {
    device_.use();
    const std::int64_t moves = plan_.moves();
    const PlanView out =
        plan_.upload(host, pad && graph_mode_ == GraphMode::kBucketed, stream_.get());
    if (plan_.moves() != moves) graphs_.clear();
    return out;
  }
  bool worth_recording(const PlanView& plan) const override {
    return graph_mode_ == GraphMode::kExact ||
           (graph_mode_ == GraphMode::kBucketed && plan.rows <= kMostBucketRows);
  }
  void run(const PlanView& plan, const std::function<void()>& launches) override {
    graphs_.run(plan, launches);
  }
  bool record_missed(const std::function<void(const PlanView&)>& launches) override {
    device_.use();
    return graphs_.record_missed(launches);
  }
  std::vector<std::int32_t> warm_up_lengths(std::int32_t most) const override {
    std::vector<std::int32_t> out{most};
    if (graph_mode_ != GraphMode::kBucketed) return out;
    for (std::int32_t rows = 1; bucket_rows(rows) <= std::min(most, kMostBucketRows);
         rows = bucket_rows(rows) + 1)
      out.push_back(bucket_rows(rows));
    return out;
  }
  void buffers_moved() override { graphs_.clear(); }

  void tune(std::int64_t rows, const Steps& steps) override {
    device_.use();
    matmul_.tune(tuned_, rows, steps);
    graphs_.clear();
  }

  DeviceMemory memory() const override {
    device_.use();
    DeviceMemory out;
    check_cuda(cudaMemGetInfo(&out.free, &out.total), "read the free device memory");
    return out;
  }
  GraphStats graph_stats() const override { return graphs_.stats(); }
  Ops& ops() override { return ops_; }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_.get()), "run a pass"); }

 private:
  std::unique_ptr<DeviceMatrix> make_random(std::int64_t rows, std::int64_t cols,
                                            std::uint64_t seed, float scale) {
    auto matrix = std::make_unique<DeviceMatrix>(rows, cols);
    fill_random(matrix->view(), seed, scale, stream_.get());
    return matrix;
  }
  void remember(const DeviceMatrix& matrix) { tuned_.push_back(matrix.view()); }

  static constexpr std::size_t kResultBytes = std::size_t{1} << 20;

  Device device_;
  GraphMode graph_mode_;
  Stream stream_;
  PinnedMemoryBlock results_ = allocate_pinned(kResultBytes);
  WeightStream weights_;
  std::vector<View> tuned_;  // what matmul multiplies by; owned by the model's weights
  PlanUpload plan_;
  Matmul matmul_;
  GraphCache graphs_;
  CudaOps ops_;
};

}  // namespace
}  // namespace openjev::cuda

// What the registry looks for. Throws Error when there is no usable device.
extern "C" __attribute__((visibility("default"))) openjev::Backend* openjev_make_backend(
    const openjev::BackendOptions* options) {
  return std::make_unique<openjev::cuda::CudaBackend>(*options).release();
}
