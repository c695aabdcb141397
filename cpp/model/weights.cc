#include "model/weights.h"

#include <utility>

#include "model/weight_source.h"

namespace openjev {

Parameter::Parameter(Backend& backend, std::int64_t rows, std::int64_t cols,
                     const std::vector<float>& values)
    : buffer_(backend.allocate(values.size() * sizeof(float))),
      view_(View::contiguous(buffer_->data(), DType::kF32, rows, cols)) {
  backend.copy_in(view_, values.data());
}

namespace {

std::int64_t query_width(const ModelConfig& config) {
  return std::int64_t{config.heads} * config.head_dim;
}
std::int64_t kv_width(const ModelConfig& config) {
  return std::int64_t{config.kv_heads} * config.head_dim;
}

class Assembler {
 public:
  Assembler(const ModelConfig& config, Backend& backend, WeightSource& source,
            const Progress& progress)
      : config_(config), backend_(backend), source_(source), progress_(progress) {}

  ModelWeights assemble() {
    out_.dtype = source_.dtype();
    total_ = matrix_elements(config_) * static_cast<std::int64_t>(size_of(out_.dtype));
    const std::string name = "embed_tokens.weight";
    out_.embedding = source_.table(name, config_.vocab_size, config_.hidden_size);
    count(*out_.embedding, name);
    for (std::size_t i = 0; i < config_.layers.size(); ++i) out_.layers.push_back(layer(i));
    out_.final_norm = vector("norm.weight", config_.hidden_size);
    backend_.finish_weights();
    return std::move(out_);
  }

 private:
  void count(const Matrix& matrix, const std::string& name) {
    const std::int64_t elements = matrix.rows() * matrix.cols();
    out_.parameters += elements;
    out_.bytes += static_cast<std::int64_t>(matrix.bytes());
    done_ += elements * static_cast<std::int64_t>(size_of(out_.dtype));
    if (progress_) progress_(done_, total_, name);
  }

  std::unique_ptr<Matrix> matrix(const std::vector<WeightPart>& parts, std::int64_t cols) {
    auto out = source_.matrix(parts, cols);
    count(*out, parts.back().name);
    return out;
  }

  Parameter parameter(std::int64_t rows, const std::vector<float>& values) {
    out_.parameters += static_cast<std::int64_t>(values.size());
    out_.bytes += static_cast<std::int64_t>(values.size() * sizeof(float));
    return {backend_, rows, static_cast<std::int64_t>(values.size()) / rows, values};
  }
  Parameter vector(const std::string& name, std::int64_t width) {
    return parameter(1, source_.vector(name, width));
  }
  Parameter rounded_vector(const std::string& name, std::int64_t width) {
    return parameter(1, source_.rounded_vector(name, width));
  }

  LinearAttentionWeights linear(const std::string& p) {
    const DeltaShape& d = config_.delta;
    LinearAttentionWeights w;
    w.in_proj = matrix({{p + "in_proj_qkv.weight", d.conv_channels()},
                        {p + "in_proj_z.weight", d.values()},
                        {p + "in_proj_b.weight", d.value_heads},
                        {p + "in_proj_a.weight", d.value_heads}},
                       config_.hidden_size);
    w.out_proj = matrix({{p + "out_proj.weight", config_.hidden_size}}, d.values());
    w.conv = parameter(4, source_.convolution(p + "conv1d.weight", d.conv_channels()));
    w.a_log = rounded_vector(p + "A_log", d.value_heads);
    w.dt_bias = vector(p + "dt_bias", d.value_heads);
    w.norm = rounded_vector(p + "norm.weight", d.value_dim);
    return w;
  }

  FullAttentionWeights full(const std::string& p) {
    FullAttentionWeights w;
    w.qkv = matrix({{p + "q_proj.weight", 2 * query_width(config_)},
                    {p + "k_proj.weight", kv_width(config_)},
                    {p + "v_proj.weight", kv_width(config_)}},
                   config_.hidden_size);
    w.o_proj = matrix({{p + "o_proj.weight", config_.hidden_size}}, query_width(config_));
    w.q_norm = vector(p + "q_norm.weight", config_.head_dim);
    w.k_norm = vector(p + "k_norm.weight", config_.head_dim);
    return w;
  }

  LayerWeights layer(std::size_t index) {
    const std::string p = "layers." + std::to_string(index) + ".";
    LayerWeights w;
    w.kind = config_.layers[index];
    w.input_norm = vector(p + "input_layernorm.weight", config_.hidden_size);
    w.post_norm = vector(p + "post_attention_layernorm.weight", config_.hidden_size);
    if (w.kind == LayerKind::kLinear) {
      w.linear = linear(p + "linear_attn.");
    } else {
      w.full = full(p + "self_attn.");
    }
    w.gate_up = matrix({{p + "mlp.gate_proj.weight", config_.intermediate_size},
                        {p + "mlp.up_proj.weight", config_.intermediate_size}},
                       config_.hidden_size);
    w.down = matrix({{p + "mlp.down_proj.weight", config_.hidden_size}}, config_.intermediate_size);
    return w;
  }

  const ModelConfig& config_;
  Backend& backend_;
  WeightSource& source_;
  const Progress& progress_;
  ModelWeights out_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

std::int64_t matrix_elements(const ModelConfig& config) {
  const DeltaShape& d = config.delta;
  const std::int64_t hidden = config.hidden_size;
  std::int64_t sum = std::int64_t{config.vocab_size} * hidden;
  for (const LayerKind kind : config.layers) {
    const std::int64_t mixer =
        kind == LayerKind::kLinear
            ? hidden * (d.conv_channels() + d.values() + 2 * d.value_heads + d.values())
            : hidden * (3 * query_width(config) + 2 * kv_width(config));
    sum += mixer + 3 * hidden * config.intermediate_size;
  }
  return sum;
}

ModelWeights assemble_weights(const ModelConfig& config, Backend& backend, WeightSource& source,
                              const Progress& progress) {
  return Assembler(config, backend, source, progress).assemble();
}

}  // namespace openjev
