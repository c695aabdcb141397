"""Engines on the seeded tiny checkpoints, and token batches for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from openjev._runtime import Engine
from tests.parity import tiny_models

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"

Rows = npt.NDArray[np.float32]
Sequences = Sequence[npt.NDArray[np.int32]]


def golden(name: str) -> tuple[dict[str, Rows], dict[str, str]]:
    """Tensors and metadata of one golden file."""
    with safe_open(GOLDEN / f"{name}.safetensors", "numpy") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118


class Engines:
    """Writes checkpoints and opens engines on first use; both are kept for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[tuple[Any, ...], Path] = {}
        self._engines: dict[tuple[Any, ...], Engine] = {}

    def folder(
        self, name: str, storage: tiny_models.Storage = "BF16", prefix: str = "", shards: int = 1
    ) -> Path:
        key = (name, storage, prefix, shards)
        if key not in self._folders:
            path = self._root / f"{name}-{len(self._folders)}"
            self._folders[key] = tiny_models.write_checkpoint(
                path, tiny_models.MODELS[name], storage=storage, prefix=prefix, shards=shards
            )
        return self._folders[key]

    def engine(
        self,
        name: str,
        storage: tiny_models.Storage = "BF16",
        prefix: str = "",
        shards: int = 1,
        *,
        threads: int = 1,
        cpu_isa: str = "",
    ) -> Engine:
        key = (name, storage, prefix, shards, threads, cpu_isa)
        if key not in self._engines:
            folder = self.folder(name, storage, prefix, shards)
            self._engines[key] = Engine(str(folder), device="cpu", threads=threads, cpu_isa=cpu_isa)
        return self._engines[key]


def packed(sequences: Sequences) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Tokens [total] and offsets [n + 1] of a batch."""
    tokens = np.concatenate([np.asarray(s, np.int32) for s in sequences])
    return tokens, np.cumsum([0, *(len(s) for s in sequences)]).astype(np.int64)


def hidden(engine: Engine, sequences: Sequences, **options: Any) -> Rows:
    """Final-norm rows [n, H] of the last tokens, all sequences in one call."""
    rows: Rows = engine.last_hidden(*packed(sequences), **options)
    return rows


def logits(engine: Engine, sequences: Sequences, **options: Any) -> Rows:
    scores: Rows = engine.score(*packed(sequences), **options)
    return scores
