"""The backbone's shape and its first values. The layers are Transformers' Qwen3.5 ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

# Head sizes, rotary part, taps and the 3:1 pattern are those of the published models.
SHAPE: Mapping[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
# Steps of the decay at the start: from a memory of one token to one of a thousand.
_STEPS = (0.001, 0.1)


def build(vocabulary: int, **overrides: Any) -> Any:
    """A backbone in float32 with values drawn from torch's generator."""
    config = Qwen3_5TextConfig(vocab_size=vocabulary, **{**SHAPE, **overrides})
    model: Any = Qwen3_5TextModel(config)
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if name.endswith("A_log"):
                parameter.uniform_(1.0, 16.0).log_()
            elif name.endswith("dt_bias"):
                steps = torch.empty_like(parameter).uniform_(*map(math.log, _STEPS)).exp()
                parameter.copy_(steps + torch.log(-torch.expm1(-steps)))
            elif name.endswith("conv1d.weight"):
                parameter.uniform_(-0.5, 0.5)
            elif name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                parameter.normal_(0.0, 1 / math.sqrt(2 * config.num_hidden_layers * parameter.shape[1]))
            elif name.endswith("proj.weight") or ".in_proj_" in name:
                parameter.normal_(0.0, 1 / math.sqrt(parameter.shape[1]))
            elif name == "embed_tokens.weight":
                parameter.normal_(0.0, 0.1)
    return model


def add_dropout(model: Any, rate: float) -> None:
    """Drops a share `rate` of what attention, delta rule and MLP add to the residual while training."""

    def drop(module: torch.nn.Module, _: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (F.dropout(output[0], rate, module.training), *output[1:])
        return F.dropout(output, rate, module.training)

    for layer in model.layers:
        for name in ("linear_attn", "self_attn", "mlp"):
            if hasattr(layer, name):
                getattr(layer, name).register_forward_hook(drop)


def new_head(hidden: int) -> torch.nn.Linear:
    """The scalar readout, float32, starting at zero."""
    head = torch.nn.Linear(hidden, 1)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return head
