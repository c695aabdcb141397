"""The reference on the GPU: a Qwen3.5 text model of Transformers, on the weights that an engine holds.

Nothing is copied unless a dtype changes: parameters are views of the engine's device memory, so that the 27B
shapes fit beside each other. The torch fallback of the gated delta rule is asserted, unless FLA is asked for.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers
from transformers.models.qwen3_5 import modeling_qwen3_5

from openjev._runtime import Engine, testing
from openjev.backbone import PUBLISHED


def config(shape: str, layers: int = 0, vocab: int = 0) -> dict[str, Any]:
    """A flat config.json of a published size, or of its first `layers` layers, or with `vocab` tokens."""
    full = PUBLISHED[shape]
    part = replace(
        full,
        layer_types=full.layer_types[: layers or None],
        vocab_size=vocab or full.vocab_size,
    )
    return part.to_config()


class _Block:
    """What torch needs to see foreign device memory as a tensor of 16- or 32-bit integers."""

    def __init__(self, address: int, rows: int, cols: int, dtype: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": (rows, cols),
            "typestr": "<i2" if dtype == "BF16" else "<i4",
            "data": (address, False),
            "version": 3,
        }
        self.dtype = torch.bfloat16 if dtype == "BF16" else torch.float32

    def tensor(self) -> torch.Tensor:
        return torch.as_tensor(self, device="cuda").view(self.dtype)


def engine_tensors(engine: Engine, config: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the checkpoint, named as in its files, as a view of the engine's memory if it can be.

    Float32 vectors hold bfloat16 values and are given as bfloat16.
    """
    blocks = {name: _Block(*where).tensor() for name, where in testing.weights(engine).items()}
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    heads = config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    queries = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    parts = {
        "linear_attn.in_proj": {
            "linear_attn.in_proj_qkv": 2 * keys + values,
            "linear_attn.in_proj_z": values,
            "linear_attn.in_proj_b": heads,
            "linear_attn.in_proj_a": heads,
        },
        "self_attn.qkv": {"self_attn.q_proj": 2 * queries, "self_attn.k_proj": kv, "self_attn.v_proj": kv},
        "mlp.gate_up": {
            "mlp.gate_proj": config["intermediate_size"],
            "mlp.up_proj": config["intermediate_size"],
        },
    }
    for name, block in blocks.items():
        head, _, tail = name.partition(".")
        layer, _, part = tail.partition(".")
        if head == "layers" and part in parts:
            first = 0
            for piece, rows in parts[part].items():
                yield f"layers.{layer}.{piece}.weight", block[first : first + rows]
                first += rows
        elif part.endswith(("A_log", "dt_bias")):
            yield name, block[0].to(torch.bfloat16)
        elif part.endswith("conv1d"):
            yield f"{name}.weight", block.t().contiguous().to(torch.bfloat16)[:, None, :]
        else:
            yield f"{name}.weight", (block if block.shape[0] > 1 else block[0]).to(torch.bfloat16)


def build(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """A model whose parameters are `tensors` (copies where `dtype` is not theirs).

    Raises RuntimeError for a tensor that is missing or has no home.
    """
    settings = modeling_qwen3_5.Qwen3_5TextConfig(**config)
    settings._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = modeling_qwen3_5.Qwen3_5TextModel(settings).eval()
    state = {name: torch.nn.Parameter(t.to(dtype), requires_grad=False) for name, t in tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if missing or unexpected:
        raise RuntimeError(f"tensors: missing {missing[:3]}, without a home {unexpected[:3]}")
    # The frequencies stay float32, as from_pretrained keeps them.
    with torch.device("cuda"):
        model.rotary_emb = type(model.rotary_emb)(settings)
    if model.rotary_emb.inv_freq.dtype != torch.float32:
        raise RuntimeError("rotary frequencies are not float32")
    return model


def assert_rule(fla: bool) -> None:
    """Raises RuntimeError unless the gated delta rule will be computed by what was asked for.

    Without the package there is only the torch fallback; with it Transformers takes its kernels.
    """
    found = importlib.util.find_spec("fla") is not None
    if found != fla:
        raise RuntimeError(f"flash-linear-attention: installed {found}, asked for {fla}")


@torch.no_grad()
def last_hidden(model: Any, ids: np.ndarray) -> torch.Tensor:
    """float32 final-norm vector of the last token."""
    out = model(input_ids=torch.as_tensor(ids.astype(np.int64), device="cuda")[None], use_cache=False)
    return out.last_hidden_state[0, -1].float()


def relative_l2(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().cpu(), b.double().cpu()
    return float(torch.linalg.norm(a - b) / torch.linalg.norm(b))


def write_config(folder: Path, settings: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    return folder


def versions() -> str:
    return (
        f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.cuda.get_device_name()}"
    )
