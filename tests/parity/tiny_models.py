"""Seeded Qwen3.5 checkpoints of any shape, the same bits on every machine and without torch.

Every value comes from raw PCG64 words by integer arithmetic and one float64 product, so neither the numpy
version nor the C library can change it, and is a bfloat16 value, so one set of weights serves float32 and
bfloat16 files alike. Tensors are made one at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from openjev.backbone import BackboneShape
from openjev.safetensors_write import (
    TensorSource,
    WrittenFile,
    from_bf16_bits,
    to_bf16_bits,
    write_bytes,
    write_safetensors,
)

Storage = Literal["BF16", "F32", "published"]

LENGTHS = (1, 2, 3, 5, 63, 64, 65, 128, 200)
CUT = 64  # prefix length of the continuation goldens
PREFIXES = ("", "model.", "language_model.", "model.language_model.")


def config(
    hidden: int,
    intermediate: int,
    layers: int,
    attention: tuple[int, int, int],
    linear: tuple[int, int, int, int],
    sections: tuple[int, int, int],
    vocab: int = 512,
) -> dict[str, Any]:
    """A flat text config; attention: heads, kv heads, head dim; linear: key, value heads, key, value dim."""
    kinds = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)]
    return {
        "architectures": ["Qwen3_5TextModel"],
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "head_dim": attention[2],
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "layer_types": kinds,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": linear[2],
        "linear_num_key_heads": linear[0],
        "linear_num_value_heads": linear[1],
        "linear_value_head_dim": linear[3],
        "max_position_embeddings": 4096,
        "num_attention_heads": attention[0],
        "num_hidden_layers": layers,
        "num_key_value_heads": attention[1],
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": list(sections),
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
        "vocab_size": vocab,
    }


@dataclass(frozen=True)
class SeededModel:
    """What a seeded checkpoint is made from."""

    name: str
    seed: int
    config: Mapping[str, Any]

    def token_ids(self, count: int, stream: int = 0) -> npt.NDArray[np.int32]:
        words = _words(self.seed, f"tokens.{stream}", count) >> np.uint64(8)
        return (words % np.uint64(self.config["vocab_size"])).astype(np.int32)


# tiny: two periods of layers. tiny_r3: three value heads a key head, dk != dv, one kv head. tiny_hd: the head
# dims of the published checkpoints (128 / 128 / 256, 64 rotary dims).
MODELS = {
    m.name: m
    for m in (
        SeededModel("tiny", 20260101, config(128, 192, 8, (4, 2, 32), (2, 4, 32, 32), (2, 1, 1))),
        SeededModel("tiny_r3", 20260102, config(96, 160, 4, (6, 1, 32), (2, 6, 16, 32), (2, 1, 1))),
        SeededModel("tiny_hd", 20260103, config(256, 384, 4, (4, 2, 256), (2, 6, 128, 128), (11, 11, 10))),
    )
}


def _words(seed: int, name: str, count: int) -> npt.NDArray[np.uint64]:
    stream = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    return np.asarray(np.random.PCG64(stream).random_raw(count), np.uint64)


def _bell(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Nearly normal, mean 0 and variance 1: the sum of a word's four 16-bit parts, each uniform."""
    total = np.zeros(words.shape, np.int64)
    for part in range(4):
        total += ((words >> np.uint64(16 * part)) & np.uint64(0xFFFF)).astype(np.int64)
    return (total - 2 * 0xFFFF).astype(np.float64) * (math.sqrt(3.0) / 65536.0)


def _mean_and_spread(name: str, columns: int) -> tuple[float, float]:
    """Chosen so that activations stay of order one and no head is close to a zero of its normalization.

    The wide in_proj_qkv makes silu(q) and silu(k) mostly positive: q.k near zero would be amplified without
    bound by the norm after the delta rule. What is added to the residual stream is damped.
    """
    if name.endswith("dt_bias"):
        return -1.0, 1.5
    if name.endswith("linear_attn.norm.weight"):
        return 1.0, 0.3
    if name.endswith("norm.weight"):
        return 0.0, 0.3
    if name.endswith("conv1d.weight"):
        return 0.0, 0.5
    if name.endswith("embed_tokens.weight"):
        return 0.0, 1.0
    if "in_proj_qkv" in name:
        return 0.0, 3.0 / math.sqrt(columns)
    damped = any(part in name for part in ("out_proj", "o_proj", "down_proj"))
    return 0.0, (0.5 if damped else 1.3) / math.sqrt(columns)


def tensor_bits(model: SeededModel, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    """One tensor as bfloat16 bit patterns."""
    words = _words(model.seed, name, math.prod(shape))
    if name.endswith("A_log"):  # decay rates from 0.03 to 6 a step, before softplus
        values = -3.5 + 5.3 * ((words >> np.uint64(40)).astype(np.float64) / 2.0**24)
    else:
        mean, spread = _mean_and_spread(name, shape[-1])
        values = mean + spread * _bell(words)
    return to_bf16_bits(values.astype(np.float32)).reshape(shape)


def weights(model: SeededModel) -> dict[str, npt.NDArray[np.float32]]:
    """All tensors as float32, for the numpy reference."""
    shapes = BackboneShape.from_config(model.config).tensors()
    return {name: from_bf16_bits(tensor_bits(model, name, shape)) for name, shape in shapes}


def fingerprint(model: SeededModel) -> str:
    """SHA-256 over configuration, token ids and weights: goldens name what they were made from."""
    digest = hashlib.sha256(json.dumps(model.config, sort_keys=True).encode())
    digest.update(model.token_ids(max(LENGTHS)).astype("<i4").tobytes())
    for name, shape in sorted(BackboneShape.from_config(model.config).tensors()):
        digest.update(name.encode())
        digest.update(tensor_bits(model, name, shape).astype("<u2").tobytes())
    return digest.hexdigest()


def readout(model: SeededModel) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The scalar head of the checkpoint: weight [1, H] and bias [1]."""
    weight = _bell(_words(model.seed, "readout", model.config["hidden_size"])) * 0.1
    return weight.astype(np.float32)[None], np.array([0.0321], np.float32)


def write_arrays(
    path: Path,
    arrays: Mapping[str, npt.NDArray[np.float32]],
    metadata: Mapping[str, str] | None = None,
) -> WrittenFile:
    """Float32 arrays by name; the same arrays give the same bytes."""

    def source(name: str, values: npt.NDArray[np.float32]) -> TensorSource:
        return TensorSource(name, "F32", values.shape, lambda: [values])

    tensors = [source(name, values) for name, values in arrays.items()]
    return write_safetensors(path, tensors, metadata=metadata)


def _source(
    model: SeededModel, prefix: str, name: str, shape: tuple[int, ...], storage: Storage
) -> TensorSource:
    nudged = storage == "published" and name.endswith(("A_log", "linear_attn.norm.weight"))
    wide = storage == "F32" or nudged

    def blocks() -> Iterator[npt.NDArray[np.generic]]:
        bits = tensor_bits(model, name, shape)
        values = from_bf16_bits(bits) * np.float32(1 + 2**-11 if nudged else 1)
        yield values if wide else bits

    return TensorSource(prefix + name, "F32" if wide else "BF16", shape, blocks)


def _write_weights(
    folder: Path, model: SeededModel, storage: Storage, prefix: str, shards: int
) -> list[WrittenFile]:
    tensors = [
        _source(model, prefix, name, shape, storage)
        for name, shape in BackboneShape.from_config(model.config).tensors()
    ]
    if shards == 1:
        return [write_safetensors(folder / "model.safetensors", tensors)]
    files: list[WrittenFile] = []
    index: dict[str, str] = {}
    for shard in range(shards):
        path = folder / f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = tensors[shard::shards]
        files.append(write_safetensors(path, part))
        index |= dict.fromkeys((tensor.name for tensor in part), path.name)
    total = sum(tensor.nbytes for tensor in tensors)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    return [*files, write_bytes(folder / "model.safetensors.index.json", text.encode())]


def write_checkpoint(
    folder: Path, model: SeededModel, *, storage: Storage = "BF16", prefix: str = "", shards: int = 1
) -> Path:
    """A decision checkpoint without tokenizer; with the multimodal prefix its config is nested too.

    `storage`: the dtype of all tensors, or "published": as in the Qwen3.5 repositories A_log and
    linear_attn.norm are float32 values that are not bfloat16 ones, and the rest is bfloat16. The reference
    rounds the two when it loads; each is off by 2^-11 here, less than half a step, so it rounds back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flat = {**model.config, "dtype": "float32" if storage == "F32" else "bfloat16"}
    nested = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": flat,
    }
    root = nested if prefix == "model.language_model." else flat
    files = [write_bytes(folder / "config.json", json.dumps(root, indent=1).encode())]
    files += _write_weights(folder, model, storage, prefix, shards)
    head = dict(zip(("weight", "bias"), readout(model), strict=True))
    files.append(write_arrays(folder / "readout.safetensors", head))
    manifest = {
        "format": "qwen35-decision/1",
        "base": {"id": f"seeded/{model.name}", "revision": "0" * 40},
        "checkpoint": {"id": f"seeded/{model.name}", "revision": "0" * 40},
        "readout": {"kind": "scalar", "temperature": 1.7},
        "prompt": {"prefix": "", "suffix": "", "strip": True},
        "max_length": model.config["max_position_embeddings"],
        "files": {file.name: {"bytes": file.nbytes, "sha256": file.sha256} for file in files},
    }
    (folder / "decision.json").write_text(json.dumps(manifest, indent=1))
    return folder
