"""Mutated checkpoint files through the bindings: each is read or refused with CheckpointError."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openjev._runtime import read_manifest, testing
from openjev.errors import CheckpointError
from tests.io.checkpoint_files import CONFIG, safetensors_bytes, write_config, write_tensors

NUMBERS = ["0", "1", "-1", "1.5", "1e999", "64", "9223372036854775808", "18446744073709551616", "4294967296"]
TOKENS = ["{", "}", "[", "]", ",", ":", '"', "null", "true", '"a":{},', '"shape":[],', "\\u0000", "[" * 5000]
HEADER = {
    "__metadata__": {"format": "pt"},
    "model.embed_tokens.weight": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
    "model.norm.weight": {"dtype": "F32", "shape": [4], "data_offsets": [64, 80]},
    "empty": {"dtype": "F32", "shape": [0, 3], "data_offsets": [80, 80]},
    "scalar": {"dtype": "I64", "shape": [], "data_offsets": [80, 88]},
}


def flip_bytes(text: bytes, rng: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        if out:
            out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def replace_number(text: bytes, rng: random.Random) -> bytes:
    numbers = list(re.finditer(rb"\d+", text))
    if not numbers:
        return text
    number = rng.choice(numbers)
    return text[: number.start()] + rng.choice(NUMBERS).encode() + text[number.end() :]


def truncate(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randint(0, len(text))]


def move_slice(text: bytes, rng: random.Random) -> bytes:
    begin, end = sorted(rng.randint(0, len(text)) for _ in range(2))
    rest = text[:begin] + text[end:] if rng.random() < 0.5 else text
    at = rng.randint(0, len(rest))
    return rest[:at] + text[begin:end] + rest[at:] if rng.random() < 0.7 else rest


def insert_token(text: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(TOKENS).encode() + text[at:]


EDITS: list[Callable[[bytes, random.Random], bytes]] = [
    flip_bytes,
    replace_number,
    truncate,
    move_slice,
    insert_token,
]


def mutate(text: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(EDITS)(text, rng)
    return text


def mutated_file(rng: random.Random) -> bytes:
    header, data = mutate(json.dumps(HEADER).encode(), rng), bytes(88)
    if rng.random() < 0.2:
        data = mutate(data, rng)
    size = len(header) + len(data)
    lengths = [0, 1, rng.randint(0, size + 1), len(header) + 1, size, size + 1, 100_000_001, 2**63, 2**64 - 1]
    return safetensors_bytes(header, data, length=rng.choice(lengths) if rng.random() < 0.3 else None)


def replace_file(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is overwritten
    path.write_bytes(content)


def read_or_refuse(read: Callable[[], Any]) -> bool:
    """Whether `read` returned; any error but CheckpointError passes through and fails the test."""
    try:
        read()
    except CheckpointError as refusal:
        assert ": found " in str(refusal)
        assert ", allowed " in str(refusal)
        return False
    return True


def test_10000_mutated_safetensors_files(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "mutated.safetensors"

    def read() -> None:
        file = testing.SafetensorsFile(path)
        tensors = file.tensors()
        sizes = {name: end - begin for name, (_, _, begin, end) in tensors.items()}
        assert {name: len(file.read(name)) for name in tensors} == sizes

    outcomes = []
    for _ in range(10_000):
        replace_file(path, mutated_file(rng))
        outcomes.append(read_or_refuse(read))
    assert 100 < sum(outcomes) < 9000


def test_2000_mutated_configs() -> None:
    rng = random.Random(5)
    texts = (mutate(json.dumps(CONFIG).encode(), rng) for _ in range(2000))
    outcomes = [read_or_refuse(lambda text=text: testing.parse_config(text)) for text in texts]  # type: ignore[misc]
    assert 10 < sum(outcomes) < 1900


@pytest.mark.parametrize("kind", ["decision.json", "open_jev_export.json"])
def test_1000_mutated_manifests(tmp_path: Path, kind: str) -> None:
    write_config(tmp_path, {**CONFIG, "hidden_size": 4})
    write_tensors(tmp_path / "readout.safetensors", {"weight": ("F32", [1, 4]), "bias": ("F32", [1])})
    manifest = {
        "decision.json": {
            "format": "qwen35-decision/1",
            "base": {"id": "base", "revision": "0"},
            "readout": {"kind": "scalar", "temperature": 1.5},
            "prompt": {"prefix": "<", "suffix": ">", "strip": True},
            "max_length": 4096,
            "files": {"readout.safetensors": {"bytes": (tmp_path / "readout.safetensors").stat().st_size}},
        },
        "open_jev_export.json": {
            "format": "open-jev-text-merged/1",
            "model_id": "base",
            "base_revision": "0",
            "checkpoint_revision": "1",
            "temperature": 1.5,
            "max_length": 4096,
            "chat_prefix": "<",
            "chat_suffix": ">",
            "head_weight": [1, 2.5, -3, 4e-3],
            "head_bias": 0.5,
        },
    }[kind]
    rng = random.Random(6)
    outcomes = []
    for _ in range(1000):
        replace_file(tmp_path / kind, mutate(json.dumps(manifest).encode(), rng))
        outcomes.append(read_or_refuse(lambda: read_manifest(str(tmp_path))))
    assert 10 < sum(outcomes) < 950


def test_1000_mutated_shard_indexes(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_tensors(tmp_path / "one.safetensors", {"embed_tokens.weight": ("BF16", [4, 2])})
    index = {"metadata": {"total_size": 16}, "weight_map": {"embed_tokens.weight": "one.safetensors"}}
    path = tmp_path / "model.safetensors.index.json"
    rng = random.Random(7)
    outcomes = []
    for _ in range(1000):
        replace_file(path, mutate(json.dumps(index).encode(), rng))
        outcomes.append(
            read_or_refuse(lambda: testing.checkpoint_tensor(tmp_path, "embed_tokens.weight", [4, 2]))
        )
    assert 10 < sum(outcomes) < 950
