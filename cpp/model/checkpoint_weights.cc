// Weights from a checkpoint's files, with or without an adapter merged into them.
#include <cstddef>
#include <cstring>
#include <memory>

#include "model/adapter.h"
#include "model/merge.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace openjev {
namespace {

using Shape = std::vector<std::int64_t>;

std::vector<float> to_floats(const HostTensor& tensor) {
  const std::size_t item = size_of(tensor.dtype);
  std::vector<float> out(tensor.bytes.size() / item);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&out[i], tensor.bytes.data() + 4 * i, 4);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
      out[i] = bf16_to_f32(bits);
    }
  }
  return out;
}

View view_of(const HostTensor& tensor, std::int64_t rows, std::int64_t cols) {
  return View::contiguous(const_cast<std::byte*>(tensor.bytes.data()), tensor.dtype, rows, cols);
}

class CheckpointSource final : public WeightSource {
 public:
  // `adapter` may be null; `threads` merge it.
  CheckpointSource(const Checkpoint& checkpoint, const Adapter* adapter, const ModelConfig& config,
                   Backend& backend, int threads)
      : checkpoint_(checkpoint),
        adapter_(adapter),
        backend_(backend),
        threads_(threads),
        dtype_(
            checkpoint.tensor("embed_tokens.weight", Shape{config.vocab_size, config.hidden_size})
                .dtype) {}

  DType dtype() const override { return dtype_; }

  std::unique_ptr<Matrix> table(const std::string& name, std::int64_t rows,
                                std::int64_t cols) override {
    return backend_.make_table(view_of(checkpoint_.tensor(name, Shape{rows, cols}), rows, cols));
  }

  std::unique_ptr<Matrix> matrix(const std::vector<WeightPart>& parts, std::int64_t cols) override {
    std::vector<HostTensor> tensors;
    std::vector<View> views;
    for (const WeightPart& part : parts) {
      tensors.push_back(same_dtype(part.name, Shape{part.rows, cols}));
      views.push_back(view_of(tensors.back(), part.rows, cols));
    }
    merge_adapted(parts, views);
    auto out = backend_.make_matrix(views);
    for (const HostTensor& tensor : tensors) checkpoint_.release(tensor);
    return out;
  }

  std::vector<float> vector(const std::string& name, std::int64_t width) override {
    return to_floats(same_dtype(name, Shape{width}));
  }

  std::vector<float> rounded_vector(const std::string& name, std::int64_t width) override {
    std::vector<float> values = to_floats(checkpoint_.tensor(name, Shape{width}));
    if (dtype_ == DType::kBF16) {
      for (float& value : values) value = round_to_bf16(value);
    }
    return values;
  }

  // [channels, 1, 4] in the file.
  std::vector<float> convolution(const std::string& name, std::int64_t channels) override {
    const std::vector<float> values = to_floats(same_dtype(name, Shape{channels, 1, 4}));
    std::vector<float> by_tap(values.size());
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      for (std::size_t tap = 0; tap < 4; ++tap)
        by_tap[tap * static_cast<std::size_t>(channels) + c] = values[c * 4 + tap];
    }
    return by_tap;
  }

 private:
  // Replaces the views of adapted parts by merged ones in `merged_`, which the next call reuses.
  void merge_adapted(const std::vector<WeightPart>& parts, std::vector<View>& views) {
    if (adapter_ == nullptr) return;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (adapter_->find(parts[i].name) != nullptr) bytes += bytes_of(views[i]);
    if (merged_bytes_ < bytes) {
      merged_.reset();  // first, so that there are never two
      merged_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      merged_bytes_ = bytes;
    }
    std::byte* out = merged_.get();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const LowRank* update = adapter_->find(parts[i].name);
      if (update == nullptr) continue;
      merge(views[i], *update, out, threads_);
      views[i].data = out;
      out += bytes_of(views[i]);
    }
  }

  static std::size_t bytes_of(const View& view) {
    return static_cast<std::size_t>(view.rows * view.cols) * size_of(view.dtype);
  }

  HostTensor same_dtype(const std::string& name, const Shape& shape) const {
    HostTensor tensor = checkpoint_.tensor(name, shape);
    if (tensor.dtype != dtype_) {
      fail(ErrorKind::kBadCheckpoint, tensor.file.string(), ": tensor ", tensor.name, " has dtype ",
           name_of(tensor.dtype), "; allowed is ", name_of(dtype_),
           ", the dtype of embed_tokens.weight");
    }
    return tensor;
  }

  const Checkpoint& checkpoint_;
  const Adapter* adapter_;
  Backend& backend_;
  int threads_;
  DType dtype_;
  std::unique_ptr<std::byte[]> merged_;
  std::size_t merged_bytes_ = 0;
};

}  // namespace

ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                          const Progress& progress) {
  CheckpointSource source(checkpoint, nullptr, config, backend, 1);
  return assemble_weights(config, backend, source, progress);
}

ModelWeights load_merged_weights(const Checkpoint& checkpoint, const Adapter& adapter,
                                 const ModelConfig& config, Backend& backend, int threads,
                                 const Progress& progress) {
  CheckpointSource source(checkpoint, &adapter, config, backend, threads);
  return assemble_weights(config, backend, source, progress);
}

}  // namespace openjev
