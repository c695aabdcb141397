"""The tensors of a Qwen3.5 / Qwen3.8 text backbone, from the numbers of its config.json.

Used where weights are made or counted without loading them; reading a checkpoint is the native module's work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

FULL_ATTENTION = "full_attention"
LINEAR_ATTENTION = "linear_attention"


@dataclass(frozen=True)
class BackboneShape:
    """Sizes of a backbone, named as in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int = 4

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> BackboneShape:
        """From a config.json, flat or with `text_config`. Raises KeyError for a missing number."""
        text = config.get("text_config", config)
        layers = text.get("layer_types") or layer_pattern(
            text["num_hidden_layers"], text.get("full_attention_interval", 4)
        )
        numbers = {
            name: int(text[name])
            for name in BackboneShape.__dataclass_fields__
            if name not in ("layer_types", "linear_conv_kernel_dim")
        }
        conv = int(text.get("linear_conv_kernel_dim", 4))
        return BackboneShape(layer_types=tuple(layers), linear_conv_kernel_dim=conv, **numbers)

    def to_config(self) -> dict[str, Any]:
        """A flat config.json of these sizes, with what all published text backbones have in common."""
        sizes = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **sizes,
            "architectures": ["Qwen3_5TextModel"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "layer_types": list(self.layer_types),
            "num_hidden_layers": len(self.layer_types),
            "attention_bias": False,
            "attn_output_gate": True,
            "hidden_act": "silu",
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": False,
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor's name (without prefix) and shape, in the order of the forward pass."""
        yield "embed_tokens.weight", (self.vocab_size, self.hidden_size)
        for index, kind in enumerate(self.layer_types):
            prefix = f"layers.{index}."
            yield prefix + "input_layernorm.weight", (self.hidden_size,)
            mixer = self._full_mixer() if kind == FULL_ATTENTION else self._linear_mixer()
            for name, shape in mixer:
                yield prefix + name, shape
            yield prefix + "post_attention_layernorm.weight", (self.hidden_size,)
            yield prefix + "mlp.gate_proj.weight", (self.intermediate_size, self.hidden_size)
            yield prefix + "mlp.up_proj.weight", (self.intermediate_size, self.hidden_size)
            yield prefix + "mlp.down_proj.weight", (self.hidden_size, self.intermediate_size)
        yield "norm.weight", (self.hidden_size,)

    def parameters(self) -> int:
        """Weights of the backbone, embedding included, output matrix not."""
        return sum(math.prod(shape) for _, shape in self.tensors())

    def _linear_mixer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        values = self.linear_num_value_heads * self.linear_value_head_dim
        channels = 2 * self.linear_num_key_heads * self.linear_key_head_dim + values
        heads = self.linear_num_value_heads
        yield "linear_attn.in_proj_qkv.weight", (channels, self.hidden_size)
        yield "linear_attn.in_proj_z.weight", (values, self.hidden_size)
        yield "linear_attn.in_proj_b.weight", (heads, self.hidden_size)
        yield "linear_attn.in_proj_a.weight", (heads, self.hidden_size)
        yield "linear_attn.conv1d.weight", (channels, 1, self.linear_conv_kernel_dim)
        yield "linear_attn.A_log", (heads,)
        yield "linear_attn.dt_bias", (heads,)
        yield "linear_attn.norm.weight", (self.linear_value_head_dim,)
        yield "linear_attn.out_proj.weight", (self.hidden_size, values)

    def _full_mixer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        queries = self.num_attention_heads * self.head_dim
        keys = self.num_key_value_heads * self.head_dim
        yield "self_attn.q_proj.weight", (2 * queries, self.hidden_size)
        yield "self_attn.k_proj.weight", (keys, self.hidden_size)
        yield "self_attn.v_proj.weight", (keys, self.hidden_size)
        yield "self_attn.o_proj.weight", (self.hidden_size, queries)
        yield "self_attn.q_norm.weight", (self.head_dim,)
        yield "self_attn.k_norm.weight", (self.head_dim,)


def layer_pattern(layers: int, interval: int = 4) -> tuple[str, ...]:
    """Every `interval`-th layer is full attention, the others are linear."""
    return tuple(FULL_ATTENTION if (i + 1) % interval == 0 else LINEAR_ATTENTION for i in range(layers))


def _published(
    hidden: int, intermediate: int, layers: int, heads: tuple[int, int], linear_values: int
) -> BackboneShape:
    """A published size: vocabulary, head sizes and the count of linear key heads are the same for all."""
    return BackboneShape(
        vocab_size=248320,
        hidden_size=hidden,
        intermediate_size=intermediate,
        layer_types=layer_pattern(layers),
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=linear_values,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    )


QWEN_0_8B = _published(1024, 3584, 24, (8, 2), 16)
QWEN_2B = replace(QWEN_0_8B, hidden_size=2048, intermediate_size=6144)
QWEN_4B = _published(2560, 9216, 32, (16, 4), 32)
QWEN_9B = replace(QWEN_4B, hidden_size=4096, intermediate_size=12288)
QWEN_27B = _published(5120, 17408, 64, (24, 4), 48)
PUBLISHED: Mapping[str, BackboneShape] = {
    "0.8b": QWEN_0_8B,
    "2b": QWEN_2B,
    "4b": QWEN_4B,
    "9b": QWEN_9B,
    "27b": QWEN_27B,
}
