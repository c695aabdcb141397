"""Many requests of mixed shapes: neither host nor device memory grows, and no answer changes.

OPENJEV_SOAK says how many requests; 300 without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from openjev._runtime import Engine
from tests.compare import assert_same_bits
from tests.gpu.support import Batch, Engines, candidates, ids, logits, needs_cuda

pytestmark = needs_cuda

REQUESTS = int(os.environ.get("OPENJEV_SOAK", "300"))
MIB = 1 << 20
# The allocator of the C library and numpy keep some pages; a leak of 100 KB a request is 30 MiB over 300.
HOST_GROWTH = 16 * MIB
# Device memory is given out in pieces of 2 MiB, and recordings that come and go are of unequal size.
DEVICE_GROWTH = 32 * MIB


def _requests() -> list[Batch]:
    """Forty shapes: prompts of 1 to 1,500 tokens and trees of up to 60 candidates, the largest first."""
    random = np.random.default_rng(5)
    singles: list[Batch] = [[ids(20, int(length))] for length in random.integers(1, 1500, 20)]
    trees: list[Batch] = [
        candidates(int(shared), random.integers(1, 90, int(count)).tolist())
        for shared, count in zip(random.integers(0, 300, 20), random.integers(2, 60, 20), strict=True)
    ]
    return sorted(singles + trees, key=lambda batch: -sum(map(len, batch)))


def _host_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _step(engine: Engine, batch: Batch) -> np.ndarray:
    """A request, then what a server does before the next one."""
    scores = logits(engine, batch)
    engine.record_missed()
    return scores


@pytest.mark.timeout(0)
@pytest.mark.parametrize("graph_mode", ["eager", "exact", "bucketed"])
def test_memory_stays_flat(engines: Engines, graph_mode: str) -> None:
    """Eight exact entries for forty shapes: recordings are made and dropped all the time."""
    engine = engines.fresh(graph_mode=graph_mode, graph_entries=8 if graph_mode == "exact" else 0)
    requests = _requests()
    want = [_step(engine, batch) for batch in requests]
    for batch in requests * 2:
        _step(engine, batch)
    host, device = _host_bytes(), engine.memory()["free"]
    random = np.random.default_rng(6)
    for number in range(REQUESTS):
        chosen = int(random.integers(len(requests)))
        assert_same_bits(_step(engine, requests[chosen]), want[chosen], f"request {number}")
    assert _host_bytes() - host <= HOST_GROWTH
    assert device - engine.memory()["free"] <= DEVICE_GROWTH
    assert engine.graph_stats()["fallbacks"] == 0
