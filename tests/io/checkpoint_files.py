"""Builders of checkpoint files for the tests of the readers, byte by byte where a broken file is wanted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DTYPE_BITS = {"BF16": 16, "F16": 16, "F32": 32, "U8": 8, "I64": 64, "F8_E4M3": 8, "F4": 4}

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "attention_bias": False,
    "attn_output_gate": True,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


def safetensors_bytes(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file image. `header`: bytes and str as they are, else as JSON; `length` replaces its true length."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def write_tensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int]]], fill: int = 0) -> None:
    """A valid file of tensors {name: (dtype, shape)}; tensor number i holds the byte `fill` + i."""
    header: dict[str, object] = {}
    data = b""
    for i, (name, (dtype, shape)) in enumerate(tensors.items()):
        size = math.prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
        data += bytes([(fill + i) % 256]) * size
    path.write_bytes(safetensors_bytes(header, data))


def write_index(folder: Path, weight_map: Mapping[str, object]) -> None:
    index = {"metadata": {"total_size": 0}, "weight_map": dict(weight_map)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def write_config(folder: Path, config: Mapping[str, object] = CONFIG) -> None:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
