"""Writes the merged folder of a base and an adapter: shard by shard, resumable, the manifest last.

The folder is written beside `out` under a temporary name and renamed when it is whole. A shard that is
finished is noted there; the same export started again keeps it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjev.backbone import BackboneShape
from openjev.errors import CheckpointError
from openjev.json_fields import JsonFields
from openjev.native import runtime
from openjev.package import ADAPTER_CONFIG, ADAPTER_TENSORS, sha256_of
from openjev.safetensors_write import ITEM_BYTES, TensorSource, WrittenFile, write_bytes, write_safetensors
from openjev.sources import AdaptedBase
from openjev.tokens import open_base_tokenizer

MERGE = "bf16(W + bf16(scale*B@A))"
SHARD_BYTES = 5_000_000_000
_BLOCK_BYTES = 1 << 26
_NOTES = "export.notes"
# Beside the weights: tokenizer.json, readout, manifests.
_OTHER_BYTES = 64_000_000
_INDEX = "model.safetensors.index.json"

Progress = Callable[[int, int, str], None]


def export(
    source: AdaptedBase,
    out: Path,
    *,
    compat: bool = False,
    threads: int = 0,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Path:
    """Merges the adapter of `source` into its base and writes an export folder to `out`. Returns `out`.

    `compat` also writes open_jev_export.json, the manifest of older readers. `threads`: 0 takes all cores;
    the bytes do not depend on it. `progress` is called with (bytes done, bytes in all, file).

    Raises CheckpointError for a wrong source, an `out` that exists, and too little free disk, before writing.
    """
    manifest = source.manifest()
    if compat and manifest["readout"] != "scalar":
        raise CheckpointError(f"{out}: --compat: found a readout of letters, allowed: a scalar one")
    if out.exists():
        raise CheckpointError(f"{out}: found a file or folder of that name, allowed: a name that is free")
    return _Export(source, manifest, out, threads or os.cpu_count() or 1, shard_bytes, progress).write(compat)


class _Export:
    def __init__(
        self,
        source: AdaptedBase,
        manifest: Mapping[str, Any],
        out: Path,
        threads: int,
        shard_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._manifest = manifest
        self._out = out
        self._work = out.with_name(out.name + ".partial")
        self._threads = threads
        self._progress = progress
        self._reader = runtime().MergedReader(str(source.base), str(source.package.adapter))
        fields = JsonFields(source.base / "config.json")
        text = fields.get("text_config")
        self._config: dict[str, Any] = dict(text if isinstance(text, dict) else fields.items())
        shape = BackboneShape.from_config(self._config)
        self._sources = [self._tensor(name, dims) for name, dims in shape.tensors()]
        self._shards = split_by_bytes(self._sources, shard_bytes)
        self._total = sum(item.nbytes for item in self._sources)
        self._done = 0

    def write(self, compat: bool) -> Path:
        self._begin()
        notes = self._notes()
        files = [self._shard(number, notes) for number in range(len(self._shards))]
        if len(self._shards) > 1:
            files.append(self._index())
        files.append(write_bytes(self._work / "config.json", _json(self._flat_config())))
        tokenizer = open_base_tokenizer(self._source.tokenizer_file).to_str(pretty=False)
        files.append(write_bytes(self._work / "tokenizer.json", tokenizer.encode("utf-8")))
        files.append(self._readout())
        if compat:
            files.append(write_bytes(self._work / "open_jev_export.json", _json(self._older_manifest())))
        (self._work / _NOTES).unlink()
        write_bytes(self._work / "decision.json", _json(self._decision(files)))
        for path in self._work.iterdir():
            _sync(path)
        self._work.rename(self._out)
        return self._out

    def _begin(self) -> None:
        """A folder to write to, with room for what is missing; that of another export is cleared."""
        open_base_tokenizer(self._source.tokenizer_file)  # a missing or broken one is better known now
        self._work.mkdir(parents=True, exist_ok=True)
        notes = self._work / _NOTES
        if notes.is_file() and _read_notes(notes).get("of") != self._identity():
            shutil.rmtree(self._work)
            self._work.mkdir()
        there = sum(path.stat().st_size for path in self._work.iterdir())
        needed = self._total + _OTHER_BYTES - there
        free = shutil.disk_usage(self._work).free
        if free < needed:
            raise CheckpointError(
                f"{self._out}: found {free / 1e9:.1f} GB free on its disk, allowed: {needed / 1e9:.1f} GB "
                "or more"
            )

    def _identity(self) -> dict[str, Any]:
        """What the bytes of the shards depend on."""
        package, base = self._source.package, self._source.base
        weights = sorted(base.glob("*.safetensors"))
        return {
            "adapter": sha256_of(package.adapter / ADAPTER_TENSORS),
            "adapter_config": sha256_of(package.adapter / ADAPTER_CONFIG),
            "config": sha256_of(base / "config.json"),
            "weights": [[p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in weights],
            "shards": [[item.name for item in shard] for shard in self._shards],
        }

    def _notes(self) -> dict[str, Any]:
        path = self._work / _NOTES
        notes = _read_notes(path) if path.is_file() else {}
        return notes or {"of": self._identity(), "files": {}}

    def _shard(self, number: int, notes: dict[str, Any]) -> WrittenFile:
        """The shard that is there already, if it is what was noted, or a new one."""
        shard, path = self._shards[number], self._work / self._shard_name(number)
        noted = notes["files"].get(path.name)
        size = sum(item.nbytes for item in shard)
        there = noted and path.is_file() and path.stat().st_size == noted["nbytes"]
        if there and sha256_of(path) == noted["sha256"]:
            self._advance(size, path.name)
            return WrittenFile(path.name, noted["nbytes"], noted["sha256"])
        unfinished = path.with_suffix(".unfinished")
        written = write_safetensors(
            unfinished,
            shard,
            metadata={"format": "pt"},
            progress=lambda count: self._advance(count, path.name),
        )
        os.replace(unfinished, path)
        file = WrittenFile(path.name, written.nbytes, written.sha256)
        notes["files"][path.name] = asdict(file)
        write_bytes(self._work / (_NOTES + ".unfinished"), _json(notes))
        os.replace(self._work / (_NOTES + ".unfinished"), self._work / _NOTES)
        return file

    def _advance(self, count: int, what: str) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total, what)

    def _shard_name(self, number: int) -> str:
        count = len(self._shards)
        return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"

    def _tensor(self, name: str, shape: tuple[int, ...]) -> TensorSource:
        dtype = self._reader.dtype

        def blocks() -> Iterator[NDArray[np.generic]]:
            row_bytes = math.prod(shape[1:]) * ITEM_BYTES[dtype]
            step = max(1, _BLOCK_BYTES // max(1, row_bytes))
            for first in range(0, shape[0], step):
                count = min(step, shape[0] - first)
                yield self._reader.read(name, shape, first, count, self._threads)
            self._reader.release(name, shape)

        return TensorSource(name, dtype, shape, blocks)

    def _index(self) -> WrittenFile:
        names = {
            item.name: self._shard_name(number) for number, shard in enumerate(self._shards) for item in shard
        }
        index = {"metadata": {"total_size": self._total}, "weight_map": names}
        return write_bytes(self._work / _INDEX, _json(index))

    def _flat_config(self) -> dict[str, Any]:
        dtype = "bfloat16" if self._reader.dtype == "BF16" else "float32"
        own = {"architectures": ["Qwen3_5TextModel"], "model_type": "qwen3_5_text", "dtype": dtype}
        return {k: v for k, v in self._config.items() if k != "torch_dtype"} | own

    def _readout(self) -> WrittenFile:
        weight, bias = self._source.readout()
        tensors = [TensorSource("weight", "F32", weight.shape, lambda: [weight])]
        if bias.size:
            tensors.append(TensorSource("bias", "F32", bias.shape, lambda: [bias]))
        return write_safetensors(self._work / "readout.safetensors", tensors)

    def _decision(self, files: Sequence[WrittenFile]) -> dict[str, Any]:
        manifest = self._manifest
        readout: dict[str, Any] = {"kind": manifest["readout"]}
        if manifest["readout"] == "scalar":
            readout["temperature"] = manifest["temperature"]
        else:
            readout["token_ids"] = manifest["token_ids"]
        return {
            "format": "qwen35-decision/1",
            "base": manifest["base"],
            "checkpoint": manifest["checkpoint"],
            "merge": MERGE if self._reader.dtype == "BF16" else "W + scale*B@A",
            "readout": readout,
            "prompt": {
                "prefix": manifest["prompt_prefix"],
                "suffix": manifest["prompt_suffix"],
                "strip": manifest["strip"],
            },
            "max_length": manifest["max_length"],
            "files": {file.name: {"bytes": file.nbytes, "sha256": file.sha256} for file in files},
        }

    def _older_manifest(self) -> dict[str, Any]:
        weight, bias = self._source.readout()
        manifest = self._manifest
        return {
            "format": "open-jev-text-merged/1",
            "model_id": manifest["base"]["id"],
            "base_revision": manifest["base"]["revision"],
            "checkpoint_revision": manifest["checkpoint"]["revision"],
            "temperature": manifest["temperature"],
            "max_length": manifest["max_length"],
            "chat_prefix": manifest["prompt_prefix"],
            "chat_suffix": manifest["prompt_suffix"],
            "head_weight": weight[0].tolist(),
            "head_bias": float(bias[0]),
        }


def split_by_bytes(sources: Sequence[TensorSource], most: int) -> list[list[TensorSource]]:
    """Runs of tensors of at most `most` bytes; a tensor that is larger is a run of its own."""
    runs: list[list[TensorSource]] = [[]]
    size = 0
    for source in sources:
        if runs[-1] and size + source.nbytes > most:
            runs.append([])
            size = 0
        runs[-1].append(source)
        size += source.nbytes
    return runs


def _read_notes(path: Path) -> dict[str, Any]:
    """Empty for what an interrupted write left behind."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return found if isinstance(found, dict) and {"of", "files"} <= set(found) else {}


def _sync(path: Path) -> None:
    """To the disk, so that a folder with its final name is whole even after a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
