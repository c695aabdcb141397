"""A seeded checkpoint with the head dims of the published ones, engines on it, and batches of sequences."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from openjev._runtime import Engine
from tests.ops.support import why_no_cuda
from tests.parity.tiny_models import SeededModel, config, write_checkpoint

Ids = npt.NDArray[np.int32]
Batch = Sequence[Ids]

# Eight layers, two of them full attention; the head dims of the published checkpoints.
MODEL = SeededModel("gpu", 20260104, config(512, 1024, 8, (4, 2, 256), (2, 6, 128, 128), (11, 11, 10)))

needs_cuda = pytest.mark.skipif(bool(why_no_cuda()), reason=f"cuda: {why_no_cuda()}")

ROOT = Path(__file__).resolve().parents[2]


def run_program(name: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of cuda/CMakeLists.txt, which has to succeed; skips where none was built."""
    programs = sorted(ROOT.glob(f"build/*/cuda/{name}"))
    if not programs:
        pytest.skip(f"no build folder holds {name}")
    done = subprocess.run([programs[-1]], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


class Engines:
    """Opens engines on one checkpoint on first use and keeps them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = write_checkpoint(root / "checkpoint", MODEL)
        self._open: dict[tuple[tuple[str, Any], ...], Engine] = {}

    def fresh(self, **options: Any) -> Engine:
        """An engine of its own, without measurements of matrix products unless it is told where they are."""
        return Engine(
            str(self.folder),
            **{"device": "cuda", "tuning_file": str(self.root / "no-measurements.json"), **options},
        )

    def cuda(self, **options: Any) -> Engine:
        key = tuple(sorted(options.items()))
        if key not in self._open:
            self._open[key] = self.fresh(**options)
        return self._open[key]

    def cpu(self) -> Engine:
        return self.cuda(device="cpu", threads=2)


def ids(seed: int, count: int) -> Ids:
    return MODEL.token_ids(count, seed)


def candidates(shared: int, tails: Sequence[int]) -> list[Ids]:
    """Sequences with exactly `shared` tokens in common, then as many of their own as `tails` says."""
    stem, out = ids(1, shared), []
    for number, count in enumerate(tails):
        tail = ids(100 + number, count)
        tail[0] = number
        out.append(np.concatenate([stem, tail]))
    return out


def packed(batch: Batch) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Tokens [total] and offsets [n + 1]."""
    return np.concatenate(batch), np.cumsum([0, *map(len, batch)]).astype(np.int64)


def hidden(engine: Engine, batch: Batch, **options: Any) -> npt.NDArray[np.float32]:
    rows: npt.NDArray[np.float32] = engine.last_hidden(*packed(batch), **options)
    return rows


def logits(engine: Engine, batch: Batch, **options: Any) -> npt.NDArray[np.float32]:
    scores: npt.NDArray[np.float32] = engine.score(*packed(batch), **options)
    return scores
