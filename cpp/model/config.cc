#include "model/config.h"

#include "io/bad_checkpoint.h"
#include "io/json.h"

namespace openjev {
namespace {

// Bounds that no plausible model reaches; within them every product of sizes fits the integer types
// used.
constexpr std::int32_t kMaxLayers = 1024;
constexpr std::int32_t kMaxHeads = 1024;
constexpr std::int32_t kMaxWidth = 1 << 18;      // hidden, intermediate
constexpr std::int32_t kMaxPositions = 1 << 24;  // every one an exact float32
constexpr std::int32_t kMaxVocabulary = 1 << 24;
constexpr std::int32_t kMaxHeadDim = 256;
constexpr std::int32_t kHeadDimStep = 16;

std::int32_t size(const Fields& fields, const std::string& name, std::int32_t max) {
  return static_cast<std::int32_t>(fields.integer(name, 1, max));
}

std::int32_t head_size(const Fields& fields, const std::string& name) {
  const std::string allowed = "a multiple of 16 from 16 to 256";
  const Json& value = fields.require(name, allowed);
  if (!integer_in(value, kHeadDimStep, kMaxHeadDim) ||
      value.get<std::int32_t>() % kHeadDimStep != 0) {
    fields.refuse(name, shown(value), allowed);
  }
  return value.get<std::int32_t>();
}

void require_multiple(const Fields& fields, const std::string& name, std::int32_t value,
                      const std::string& divisor_name, std::int32_t divisor) {
  if (value % divisor != 0) {
    fields.refuse(name, std::to_string(value),
                  "a multiple of " + divisor_name + ", " + std::to_string(divisor));
  }
}

// An optional field that may only say what this forward pass does anyway.
void require_text(const Fields& fields, const std::string& name, const std::string& only) {
  const Json* value = fields.find(name);
  if (value != nullptr && *value != only) fields.refuse(name, shown(*value), text_label(only));
}

void require_flag(const Fields& fields, const std::string& name, bool only) {
  const char* allowed = only ? "true" : "false";
  if (fields.boolean_or(name, only) != only) fields.refuse(name, only ? "false" : "true", allowed);
}

void require_absent(const Fields& fields, const std::string& name) {
  if (const Json* value = fields.find(name)) fields.refuse(name, shown(*value), "no such field");
}

void check_model_type(const Fields& fields) {
  const std::string found = fields.text("model_type");
  if (found == "qwen3_5" || found == "qwen3_5_text") return;
  const bool experts = found.starts_with("qwen3_5_moe");
  fields.refuse("model_type", text_label(found) + (experts ? ", a mixture of experts" : ""),
                "\"qwen3_5\" or \"qwen3_5_text\"");
}

// What has one meaning here. A checkpoint that wants another would load and answer wrongly.
void check_architecture(const Fields& text) {
  require_text(text, "hidden_act", "silu");
  require_text(text, "output_gate_type", "swish");
  require_flag(text, "attention_bias", false);
  require_flag(text, "attn_output_gate", true);
  require_absent(text, "num_experts");
  require_absent(text, "quantization_config");
  text.integer("linear_conv_kernel_dim", 4, 4);
}

void read_sizes(const Fields& text, ModelConfig& out) {
  out.vocab_size = size(text, "vocab_size", kMaxVocabulary);
  out.hidden_size = size(text, "hidden_size", kMaxWidth);
  out.intermediate_size = size(text, "intermediate_size", kMaxWidth);
  out.max_position_embeddings = size(text, "max_position_embeddings", kMaxPositions);
  out.heads = size(text, "num_attention_heads", kMaxHeads);
  out.kv_heads = size(text, "num_key_value_heads", kMaxHeads);
  out.head_dim = head_size(text, "head_dim");
  out.delta.key_heads = size(text, "linear_num_key_heads", kMaxHeads);
  out.delta.value_heads = size(text, "linear_num_value_heads", kMaxHeads);
  out.delta.key_dim = head_size(text, "linear_key_head_dim");
  out.delta.value_dim = head_size(text, "linear_value_head_dim");
  require_multiple(text, "num_attention_heads", out.heads, "num_key_value_heads", out.kv_heads);
  require_multiple(text, "linear_num_value_heads", out.delta.value_heads, "linear_num_key_heads",
                   out.delta.key_heads);
  out.rms_norm_eps = static_cast<float>(text.positive("rms_norm_eps", 1.0));
}

// A number that may stand in rope_parameters, beside it, or in both; two must agree.
// `otherwise` is what it is in neither; 0: it must be given.
double rope_number(const Fields& text, const Fields& rope, const std::string& name, double max,
                   double otherwise) {
  const Json* inside = rope.find(name);
  const Json* beside = text.find(name);
  if (inside != nullptr && beside != nullptr && *inside != *beside) {
    text.refuse(name, shown(*beside), shown(*inside) + ", as in rope_parameters");
  }
  if (inside != nullptr) return rope.positive(name, max);
  if (beside == nullptr && otherwise > 0) return otherwise;
  return text.positive(name, max);
}

void read_rope(const Fields& text, ModelConfig& out) {
  const Json none = Json::object();
  const auto part = [&](const std::string& name) {
    return text.find(name) == nullptr ? Fields(none, text.file()) : text.object(name);
  };
  const Fields rope = part("rope_parameters"), scaling = part("rope_scaling");
  for (const Fields* fields : {&rope, &scaling}) {
    require_text(*fields, "rope_type", "default");
    require_text(*fields, "type", "default");
  }
  out.rope_theta = rope_number(text, rope, "rope_theta", 1e12, 0);
  const double factor = rope_number(text, rope, "partial_rotary_factor", 1.0, 0.25);
  out.rotary_dim = static_cast<std::int32_t>(out.head_dim * factor);
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0) {
    text.refuse("partial_rotary_factor",
                std::to_string(out.rotary_dim) + " rotary dimensions of head_dim " +
                    std::to_string(out.head_dim),
                "a positive even number of them");
  }
}

std::vector<LayerKind> read_layers(const Fields& text) {
  const std::int32_t count = size(text, "num_hidden_layers", kMaxLayers);
  std::vector<LayerKind> layers;
  if (text.find("layer_types") == nullptr) {
    const std::int32_t interval = text.find("full_attention_interval") == nullptr
                                      ? 4
                                      : size(text, "full_attention_interval", kMaxLayers);
    for (std::int32_t i = 1; i <= count; ++i) {
      layers.push_back(i % interval == 0 ? LayerKind::kFull : LayerKind::kLinear);
    }
    return layers;
  }
  const Json& types = text.array("layer_types");
  if (types.size() != static_cast<std::size_t>(count)) {
    text.refuse("layer_types", shown(types), std::to_string(count) + ", as num_hidden_layers says");
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool full = types[i] == "full_attention";
    if (!full && types[i] != "linear_attention") {
      text.refuse("layer_types[" + std::to_string(i) + "]", shown(types[i]),
                  "\"linear_attention\" or \"full_attention\"");
    }
    layers.push_back(full ? LayerKind::kFull : LayerKind::kLinear);
  }
  return layers;
}

}  // namespace

ModelConfig parse_model_config(const std::string& json_text, const std::string& file) {
  const Json json = parse_json(json_text, file);
  const Fields root(json, file);
  check_model_type(root);
  require_absent(root, "quantization_config");
  const bool nested = root.find("text_config") != nullptr;
  const Fields text = nested ? root.object("text_config") : root;
  if (nested && text.find("model_type") != nullptr) check_model_type(text);

  ModelConfig out;
  check_architecture(text);
  read_sizes(text, out);
  read_rope(text, out);
  out.tied_embeddings =
      text.boolean_or("tie_word_embeddings", root.boolean_or("tie_word_embeddings", false));
  out.layers = read_layers(text);
  return out;
}

}  // namespace openjev
