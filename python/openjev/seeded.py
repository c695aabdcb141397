"""Checkpoints with seeded values in the real export format, of any size and layout: for tests, benchmarks.

Their answers are arbitrary. Their files, tensors, tokenizers and prompts are those of real ones, so that what
works with them works with a trained one.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openjev.backbone import BackboneShape, layer_pattern
from openjev.checkpoints import SEEDED_ID
from openjev.package import CUA_PREFIX, CUA_SUFFIX, OPEN_JEV_PREFIX, OPEN_JEV_SUFFIX, Identity
from openjev.progress import progress_bar
from openjev.prompts import CUA_MAX_LENGTH, LETTERS
from openjev.safetensors_write import (
    ITEM_BYTES,
    TensorSource,
    WrittenFile,
    from_bf16_bits,
    to_bf16_bits,
    write_bytes,
    write_safetensors,
)
from openjev.small_tokenizer import build_tokenizer

DEFAULT_SEED = 20261202

Kind = Literal["scalar", "letters"]
DType = Literal["BF16", "F32"]

# Values drawn at a time: few enough to stay in the cache of a core.
_BLOCK = 1 << 18
_VOCABULARY_MULTIPLE = 64
_OPEN_JEV_MAX_LENGTH = 4096
_TEMPERATURE = 1.5
# The final norm gives elements of size about 1, of which less than half depends on the text before the fixed
# end of the prompt: these two spread the logits over about -2 to 2.
_READOUT_GAIN = 4.0
_READOUT_BIAS = 8.0
# Heads that forget within a token to heads that remember thousands.
_A_LOG = (math.log(0.001), math.log(2.0))

_CONFIG: Mapping[str, Any] = {
    "architectures": ["Qwen3_5TextModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 32768,
    "model_type": "qwen3_5_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000.0,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "use_cache": True,
}


def build_checkpoint(
    folder: Path,
    *,
    kind: Kind = "scalar",
    seed: int = DEFAULT_SEED,
    config: Mapping[str, Any] | None = None,
    dtype: DType = "BF16",
    prefix: str = "",
    shards: int = 1,
    max_length: int | None = None,
    progress: bool = False,
) -> Path:
    """Writes a checkpoint with seeded values into `folder` (made when missing) and returns the folder.

    `kind`: a scalar readout with Open-Jev's prompt, or the readout of 26 letters with Cua-S1's. `config`
    overrides numbers of config.json; `layer_types` follows `num_hidden_layers` unless it is given. `dtype` is
    that of the backbone's tensors, `prefix` goes before their names, `shards` is the number of weight files.
    The values depend on `seed` and the tensors' names and shapes only. `max_length`: 4,096 (scalar) or 16,384
    (letters) when None. `progress` shows a bar on stderr when that is a terminal. The same arguments give the
    same bytes. Raises ValueError for a number of shards or a vocabulary that cannot be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    full_config = _complete_config(config or {}, tokenizer.get_vocab_size(), dtype)
    sources = _backbone(BackboneShape.from_config(full_config), seed, dtype, prefix)
    files = [write_bytes(folder / "config.json", _json(full_config))]
    total = sum(source.nbytes for source in sources)
    with progress_bar(total, "building a seeded checkpoint", unit="B", shown=progress) as advance:
        files += _write_weights(folder, sources, shards, advance)
    files.append(write_bytes(folder / "tokenizer.json", tokenizer.to_str(pretty=False).encode("utf-8")))
    if kind == "letters":
        ids = [tokenizer.get_vocab()[letter] for letter in LETTERS]
        files.append(_write_letters_readout(folder, sources[0], ids))
        readout: dict[str, Any] = {"kind": "letters", "token_ids": ids}
    else:
        files.append(_write_scalar_readout(folder, int(full_config["hidden_size"]), seed))
        readout = {"kind": "scalar", "temperature": _TEMPERATURE}
    manifest = seeded_manifest(Identity(SEEDED_ID, f"seed-{seed}"), readout, files, max_length)
    write_bytes(folder / "decision.json", _json(manifest))
    return folder


def seeded_manifest(
    identity: Identity,
    readout: Mapping[str, Any],
    files: Sequence[WrittenFile],
    max_length: int | None = None,
) -> dict[str, Any]:
    """decision.json of weights that belong to no other checkpoint: base and checkpoint are `identity`.

    The prompt is Open-Jev's or Cua-S1's, as the readout's kind says, and `max_length` theirs when None.
    """
    letters = readout["kind"] == "letters"
    prefix, suffix = (CUA_PREFIX, CUA_SUFFIX) if letters else (OPEN_JEV_PREFIX, OPEN_JEV_SUFFIX)
    return {
        "format": "qwen35-decision/1",
        "base": identity.to_dict(),
        "checkpoint": identity.to_dict(),
        "merge": "none",
        "readout": readout,
        "prompt": {"prefix": prefix, "suffix": suffix, "strip": True},
        "max_length": max_length or (CUA_MAX_LENGTH if letters else _OPEN_JEV_MAX_LENGTH),
        "files": {file.name: {"bytes": file.nbytes, "sha256": file.sha256} for file in files},
    }


def _complete_config(overrides: Mapping[str, Any], vocabulary: int, dtype: DType) -> dict[str, Any]:
    padded = -(-vocabulary // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    config: dict[str, Any] = {
        **_CONFIG,
        "vocab_size": padded,
        "dtype": "bfloat16" if dtype == "BF16" else "float32",
        **overrides,
    }
    if "layer_types" not in overrides:
        interval = config["full_attention_interval"]
        config["layer_types"] = list(layer_pattern(config["num_hidden_layers"], interval))
    if config["vocab_size"] < vocabulary:
        raise ValueError(
            f"vocab_size: found {config['vocab_size']}, allowed: at least the tokenizer's {vocabulary}"
        )
    return config


def _backbone(shape: BackboneShape, seed: int, dtype: DType, prefix: str) -> list[TensorSource]:
    return [_source(name, dims, seed, dtype, prefix) for name, dims in shape.tensors()]


def _source(name: str, shape: tuple[int, ...], seed: int, dtype: DType, prefix: str) -> TensorSource:
    """The tensor's values are a function of its name: neither order nor sharding nor prefix changes them."""

    def blocks() -> Iterator[NDArray[np.generic]]:
        generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
        left = math.prod(shape)
        while left:
            values = _draw(generator, name, shape, min(left, _BLOCK))
            left -= values.size
            if dtype == "BF16":
                yield to_bf16_bits(values)
            elif name.endswith(("A_log", "linear_attn.norm.weight")):
                # Readers round these two to bf16 whatever they are stored as, as the reference does.
                yield from_bf16_bits(to_bf16_bits(values))
            else:
                yield values

    return TensorSource(prefix + name, dtype, shape, blocks)


def _draw(
    generator: np.random.Generator, name: str, shape: tuple[int, ...], count: int
) -> NDArray[np.float32]:
    """The next `count` values of tensor `name`, sized so that activations stay finite."""
    if name.endswith("A_log"):
        return generator.uniform(_A_LOG[0], _A_LOG[1], count).astype(np.float32)
    values = generator.standard_normal(count, dtype=np.float32)
    if name.endswith("dt_bias"):
        return values * np.float32(1.5) - np.float32(1.0)
    if name.endswith("linear_attn.norm.weight"):
        return values * np.float32(0.3) + np.float32(1.0)
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        # Stored is the multiplier minus 1: long queries and keys, so that attention picks tokens out.
        return values * np.float32(0.3) + np.float32(1.0)
    if name.endswith("norm.weight"):
        return values * np.float32(0.3)
    if name.endswith("conv1d.weight"):
        return values * np.float32(0.5)
    if name.endswith("embed_tokens.weight"):
        return values * np.float32(0.3)
    return values * np.float32(_gain(name) / math.sqrt(shape[-1]))


def _gain(name: str) -> float:
    """Size of a projection's outputs for inputs of size 1.

    Large q/k/v projections keep the delta rule's q.k away from 0, where its per-head norm would amplify
    rounding. Mixers write as much to the residual stream as the embedding, MLPs less.
    """
    if "in_proj_qkv" in name:
        return 3.0
    if name.endswith(("out_proj.weight", "o_proj.weight")):
        return 1.0
    return 0.5 if name.endswith("down_proj.weight") else 1.3


def _write_weights(
    folder: Path, sources: Sequence[TensorSource], shards: int, progress: Callable[[int], None]
) -> list[WrittenFile]:
    metadata = {"format": "pt"}
    if shards == 1:
        path = folder / "model.safetensors"
        return [write_safetensors(path, sources, metadata=metadata, progress=progress)]
    files: list[WrittenFile] = []
    weight_map: dict[str, str] = {}
    for number, part in enumerate(_split(sources, shards), start=1):
        path = folder / f"model-{number:05d}-of-{shards:05d}.safetensors"
        files.append(write_safetensors(path, part, metadata=metadata, progress=progress))
        weight_map.update({source.name: path.name for source in part})
    index = {"metadata": {"total_size": sum(s.nbytes for s in sources)}, "weight_map": weight_map}
    files.append(write_bytes(folder / "model.safetensors.index.json", _json(index)))
    return files


def _split(sources: Sequence[TensorSource], parts: int) -> list[list[TensorSource]]:
    """`parts` runs of tensors of about equal bytes, none empty."""
    if not 1 <= parts <= len(sources):
        raise ValueError(f"shards: found {parts}, allowed: 1 to the number of tensors, {len(sources)}")
    total = sum(source.nbytes for source in sources)
    split: list[list[TensorSource]] = [[]]
    done = 0
    for index, source in enumerate(sources):
        left = len(sources) - index
        missing = parts - len(split)
        if split[-1] and missing and (left == missing or done >= total * len(split) / parts):
            split.append([])
        split[-1].append(source)
        done += source.nbytes
    return split


def _write_scalar_readout(folder: Path, hidden: int, seed: int) -> WrittenFile:
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(b"readout")]))
    gain = np.float32(_READOUT_GAIN / math.sqrt(hidden))
    weight = generator.standard_normal(hidden, dtype=np.float32) * gain
    bias = np.full(1, _READOUT_BIAS, np.float32)
    tensors = [
        TensorSource("weight", "F32", (1, hidden), lambda: [weight]),
        TensorSource("bias", "F32", (1,), lambda: [bias]),
    ]
    return write_safetensors(folder / "readout.safetensors", tensors)


def _write_letters_readout(folder: Path, embedding: TensorSource, ids: Sequence[int]) -> WrittenFile:
    """The embedding rows of the letters as float32: the readout of a model with tied embeddings."""
    hidden = embedding.shape[1]
    wanted = (max(ids) + 1) * hidden
    drawn: list[NDArray[np.generic]] = []
    for block in embedding.blocks():
        drawn.append(block)
        if sum(part.size for part in drawn) >= wanted:
            break
    values = np.concatenate(drawn)[:wanted]
    rows = values if ITEM_BYTES[embedding.dtype] == 4 else from_bf16_bits(values.astype(np.uint16))
    weight = rows.reshape(-1, hidden)[list(ids)]
    source = TensorSource("weight", "F32", (len(ids), hidden), lambda: [weight])
    return write_safetensors(folder / "readout.safetensors", [source])


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
