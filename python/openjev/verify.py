"""Reads a checkpoint to its last byte: hashes, shapes, dtypes and finite values."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openjev.backbone import BackboneShape
from openjev.errors import CheckpointError
from openjev.json_fields import JsonFields
from openjev.native import runtime
from openjev.package import check_hash
from openjev.sources import AdaptedBase, ExportFolder, locate

Progress = Callable[[int, int, str], None]


def verify(name_or_path: str | os.PathLike[str], *, progress: Progress | None = None) -> list[str]:
    """What was checked, a line each. Raises CheckpointError naming the first file or tensor that is wrong.

    Of an export folder: the hashes of its manifest and the backbone's tensors. Of a base with a package: the
    package's hashes, that the adapter belongs to the base, and the tensors of both. Nothing is downloaded.
    """
    source = locate(name_or_path, download=False)
    manifest = source.manifest()
    lines = [f"manifest  {manifest['format']}, {manifest['readout']}, temperature {manifest['temperature']}"]
    if isinstance(source, ExportFolder):
        lines += _hashes(source.folder)
        weights = source.folder
    else:
        lines += _package(source)
        weights = source.base
    lines.append(_tensors(weights, progress))
    return lines


def _hashes(folder: Path) -> list[str]:
    path = folder / "decision.json"
    if not path.is_file():
        return ["hashes    none: open_jev_export.json lists no files"]
    files: dict[str, Any] = json.loads(path.read_bytes())["files"]
    stated = {name: entry["sha256"] for name, entry in files.items() if entry.get("sha256")}
    for name, digest in stated.items():
        check_hash(folder / name, digest)
    return [f"hashes    {len(stated)} of {len(files)} files have the SHA-256 that {path.name} says"]


def _package(source: AdaptedBase) -> list[str]:
    """Reading a package has checked its manifest and published hashes."""
    package = source.package
    found = runtime().read_adapter(str(package.adapter), str(source.base))
    listed = (package.root.parent / "manifest.json").is_file()
    known = f"published hashes of {package.row.name}" if package.row and package.row.hashes else ""
    said = " and ".join(filter(None, ["its manifest.json" if listed else "", known])) or "no list of hashes"
    return [
        f"package   {package.checkpoint.id}, checked against {said}",
        f"adapter   rank {found['rank']}, alpha {found['alpha']:g}, {found['modules']} modules, "
        f"{found['parameters']} finite numbers",
    ]


def _tensors(folder: Path, progress: Progress | None) -> str:
    fields = JsonFields(folder / "config.json")
    text = fields.get("text_config")
    shape = BackboneShape.from_config(text if isinstance(text, dict) else dict(fields.items()))
    reader = runtime().MergedReader(str(folder))
    total, done = shape.parameters(), 0
    names = list(shape.tensors())
    for name, dims in names:
        bad = reader.first_not_finite(name, dims)
        if bad is not None:
            raise CheckpointError(
                f"{folder}: tensor {name}: found a number that is not finite at element {bad}, "
                "allowed: finite numbers"
            )
        reader.release(name, dims)
        done += math.prod(dims)
        if progress is not None:
            progress(done, total, name)
    return f"tensors   {len(names)} of {reader.dtype}, {total} finite numbers, in the shapes of config.json"
