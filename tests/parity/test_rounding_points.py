"""The forward pass of `bench/rounding_points.py` against Transformers on the same weights.

Without rounding it is Transformers in float32; with the reference's rounding points it is as far from that as
Transformers in bfloat16 is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from bench import rounding_points as points
from transformers.models.qwen3_5 import modeling_qwen3_5

from openjev.backbone import BackboneShape

SHAPE = BackboneShape(
    vocab_size=points.VOCAB,
    hidden_size=256,
    intermediate_size=512,
    layer_types=("linear_attention", "linear_attention", "linear_attention", "full_attention"),
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
)
TENSORS = {
    "input_norm": ["input_layernorm"],
    "post_norm": ["post_attention_layernorm"],
    "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
    "down": ["mlp.down_proj"],
    "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "o": ["self_attn.o_proj"],
    "q_norm": ["self_attn.q_norm"],
    "k_norm": ["self_attn.k_norm"],
    "in": [f"linear_attn.in_proj_{part}" for part in ("qkv", "z", "b", "a")],
    "delta_norm": ["linear_attn.norm"],
    "out": ["linear_attn.out_proj"],
}

pytestmark = pytest.mark.filterwarnings("default")


def by_file_name(model: points.Model, reference: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights as `reference` names them: matrices of several linear layers are cut at their sizes."""
    sizes = {name: len(tensor) for name, tensor in reference.state_dict().items()}
    yield "embed_tokens.weight", model.tensors["embed"]
    yield "norm.weight", model.tensors["norm"]
    for key, tensor in model.tensors.items():
        layer, _, name = key.partition(".")
        linear = f"layers.{layer}.linear_attn"
        if name in TENSORS:
            parts = [f"layers.{layer}.{part}.weight" for part in TENSORS[name]]
            yield from zip(parts, tensor.split([sizes[part] for part in parts]), strict=True)
        elif name == "conv":
            yield f"{linear}.conv1d.weight", tensor.T[:, None, :].contiguous()
        elif name == "a_log":
            yield f"{linear}.A_log", tensor
        elif name == "dt_bias":
            yield f"{linear}.dt_bias", tensor


def transformers(model: points.Model) -> Any:
    config = modeling_qwen3_5.Qwen3_5TextConfig(**model.shape.to_config())
    config._attn_implementation = "sdpa"
    built = modeling_qwen3_5.Qwen3_5TextModel(config).eval()
    built.load_state_dict(dict(by_file_name(model, built)))
    return built


@torch.no_grad()
@pytest.mark.parametrize("tokens", [1, 3, 65])
def test_it_is_the_forward_pass_of_transformers_and_rounds_where_it_rounds(tokens: int) -> None:
    model = points.seeded(SHAPE, 7)
    reference = transformers(model)
    ids = torch.randint(0, points.VOCAB, (8, tokens), generator=torch.Generator().manual_seed(tokens))
    exact = points.Pass(model, ids, frozenset()).final()
    assert points.distance(exact, reference(input_ids=ids, use_cache=False).last_hidden_state) < 1e-5

    frequencies = reference.rotary_emb
    kept = frequencies.inv_freq.clone()
    reference.to(torch.bfloat16)
    frequencies.inv_freq = kept  # from_pretrained keeps it in float32, a cast of the module does not
    rounded = reference(input_ids=ids, use_cache=False).last_hidden_state.float()
    emulated = points.Pass(model, ids, points.REFERENCE).final()
    assert points.distance(emulated, exact) == pytest.approx(points.distance(rounded, exact), rel=0.15)
    assert points.distance(points.Pass(model, ids, points.OURS).final(), exact) < points.distance(
        rounded, exact
    )
