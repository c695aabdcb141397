#include "model/weights.h"

#include <cstring>

namespace openjev {

Parameter::Parameter(Backend& backend, std::int64_t rows, std::int64_t cols,
                     const std::vector<float>& values)
    : buffer_(backend.allocate(values.size() * sizeof(float))),
      view_(View::contiguous(buffer_->data(), DType::kF32, rows, cols)) {
  backend.copy_in(view_, values.data());
}

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

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
         const Progress& progress)
      : checkpoint_(checkpoint), config_(config), backend_(backend), progress_(progress) {}

  ModelWeights load() {
    const HostTensor table =
        checkpoint_.tensor("embed_tokens.weight", Shape{config_.vocab_size, hidden()});
    out_.dtype = table.dtype;
    total_ = expected_parameters() * static_cast<std::int64_t>(size_of(out_.dtype));
    out_.embedding = backend_.make_table(view_of(table, config_.vocab_size, hidden()));
    count(table, out_.embedding->bytes());
    for (std::size_t i = 0; i < config_.layers.size(); ++i) out_.layers.push_back(layer(i));
    out_.final_norm = vector("norm.weight", hidden());
    return std::move(out_);
  }

 private:
  std::int64_t hidden() const { return config_.hidden_size; }
  std::int64_t query_width() const { return std::int64_t{config_.heads} * config_.head_dim; }
  std::int64_t kv_width() const { return std::int64_t{config_.kv_heads} * config_.head_dim; }

  std::int64_t expected_parameters() const {
    const DeltaShape& d = config_.delta;
    std::int64_t sum = std::int64_t{config_.vocab_size} * hidden();
    for (const LayerKind kind : config_.layers) {
      const std::int64_t mixer =
          kind == LayerKind::kLinear
              ? hidden() * (d.conv_channels() + d.values() + 2 * d.value_heads + d.values())
              : hidden() * (3 * query_width() + 2 * kv_width());
      sum += mixer + 3 * hidden() * config_.intermediate_size;
    }
    return sum;
  }

  static View view_of(const HostTensor& tensor, std::int64_t rows, std::int64_t cols) {
    return View::contiguous(const_cast<std::byte*>(tensor.bytes.data()), tensor.dtype, rows, cols);
  }

  void count(const HostTensor& tensor, std::size_t resident) {
    std::int64_t elements = 1;
    for (const std::int64_t n : tensor.shape) elements *= n;
    out_.parameters += elements;
    out_.bytes += static_cast<std::int64_t>(resident);
    done_ += static_cast<std::int64_t>(tensor.bytes.size());
    if (progress_) progress_(std::min(done_, total_), total_, tensor.name);
  }

  HostTensor same_dtype(const std::string& name, const Shape& shape) const {
    HostTensor tensor = checkpoint_.tensor(name, shape);
    if (tensor.dtype != out_.dtype) {
      fail(ErrorKind::kBadCheckpoint, tensor.file.string(), ": tensor ", tensor.name, " has dtype ",
           name_of(tensor.dtype), "; allowed is ", name_of(out_.dtype),
           ", the dtype of embed_tokens.weight");
    }
    return tensor;
  }

  struct Part {
    std::string name;
    std::int64_t rows;
  };

  std::unique_ptr<Matrix> matrix(const std::vector<Part>& parts, std::int64_t cols) {
    std::vector<HostTensor> tensors;
    std::vector<View> views;
    for (const Part& part : parts) {
      tensors.push_back(same_dtype(part.name, Shape{part.rows, cols}));
      views.push_back(view_of(tensors.back(), part.rows, cols));
    }
    auto out = backend_.make_matrix(views);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      count(tensors[i], i == 0 ? out->bytes() : 0);
      checkpoint_.release(tensors[i]);
    }
    return out;
  }

  Parameter vector(const std::string& name, std::int64_t width) {
    const HostTensor tensor = same_dtype(name, Shape{width});
    count(tensor, static_cast<std::size_t>(width) * sizeof(float));
    return {backend_, 1, width, to_floats(tensor)};
  }

  // A_log and linear_attn.norm: F32 in the Qwen3.5 files, but the reference runs with BF16 values.
  Parameter rounded_vector(const std::string& name, std::int64_t width) {
    const HostTensor tensor = checkpoint_.tensor(name, Shape{width});
    count(tensor, static_cast<std::size_t>(width) * sizeof(float));
    std::vector<float> values = to_floats(tensor);
    if (out_.dtype == DType::kBF16) {
      for (float& value : values) value = round_to_bf16(value);
    }
    return {backend_, 1, width, values};
  }

  // [channels, 1, 4] in the file, [4, channels] for the kernels.
  Parameter convolution(const std::string& name, std::int64_t channels) {
    const HostTensor tensor = same_dtype(name, Shape{channels, 1, 4});
    count(tensor, static_cast<std::size_t>(channels) * 4 * sizeof(float));
    const std::vector<float> values = to_floats(tensor);
    std::vector<float> by_tap(values.size());
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      for (std::size_t tap = 0; tap < 4; ++tap)
        by_tap[tap * static_cast<std::size_t>(channels) + c] = values[c * 4 + tap];
    }
    return {backend_, 4, channels, by_tap};
  }

  LinearAttentionWeights linear(const std::string& p) {
    const DeltaShape& d = config_.delta;
    LinearAttentionWeights w;
    w.in_proj = matrix({{p + "in_proj_qkv.weight", d.conv_channels()},
                        {p + "in_proj_z.weight", d.values()},
                        {p + "in_proj_b.weight", d.value_heads},
                        {p + "in_proj_a.weight", d.value_heads}},
                       hidden());
    w.out_proj = matrix({{p + "out_proj.weight", hidden()}}, d.values());
    w.conv = convolution(p + "conv1d.weight", d.conv_channels());
    w.a_log = rounded_vector(p + "A_log", d.value_heads);
    w.dt_bias = vector(p + "dt_bias", d.value_heads);
    w.norm = rounded_vector(p + "norm.weight", d.value_dim);
    return w;
  }

  FullAttentionWeights full(const std::string& p) {
    FullAttentionWeights w;
    w.qkv = matrix({{p + "q_proj.weight", 2 * query_width()},
                    {p + "k_proj.weight", kv_width()},
                    {p + "v_proj.weight", kv_width()}},
                   hidden());
    w.o_proj = matrix({{p + "o_proj.weight", hidden()}}, query_width());
    w.q_norm = vector(p + "q_norm.weight", config_.head_dim);
    w.k_norm = vector(p + "k_norm.weight", config_.head_dim);
    return w;
  }

  LayerWeights layer(std::size_t index) {
    const std::string p = "layers." + std::to_string(index) + ".";
    LayerWeights w;
    w.kind = config_.layers[index];
    w.input_norm = vector(p + "input_layernorm.weight", hidden());
    w.post_norm = vector(p + "post_attention_layernorm.weight", hidden());
    if (w.kind == LayerKind::kLinear) {
      w.linear = linear(p + "linear_attn.");
    } else {
      w.full = full(p + "self_attn.");
    }
    w.gate_up = matrix({{p + "mlp.gate_proj.weight", config_.intermediate_size},
                        {p + "mlp.up_proj.weight", config_.intermediate_size}},
                       hidden());
    w.down = matrix({{p + "mlp.down_proj.weight", hidden()}}, config_.intermediate_size);
    return w;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Backend& backend_;
  const Progress& progress_;
  ModelWeights out_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                          const Progress& progress) {
  return Loader(checkpoint, config, backend, progress).load();
}

}  // namespace openjev
