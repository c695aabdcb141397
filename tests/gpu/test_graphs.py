"""Recorded passes: what is counted, what is kept, what is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjev._runtime import Engine
from tests.gpu.support import Engines, candidates, ids, logits, needs_cuda

pytestmark = needs_cuda

COUNTERS = ("hits", "misses", "captures", "evictions", "fallbacks")


class _Counted:
    """What the counters moved by since this was made, or since the last look."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.before = engine.graph_stats()

    def moved(self) -> dict[str, int]:
        now = self.engine.graph_stats()
        moved = {name: now[name] - self.before[name] for name in COUNTERS}
        self.before = now
        return {name: count for name, count in moved.items() if count}


def test_exact_mode_keeps_the_most_recently_used(engines: Engines) -> None:
    """Two entries, three lengths in turn; the longest first, so that the workspace never moves afterwards."""
    engine = engines.fresh(graph_mode="exact", graph_entries=2)
    counted = _Counted(engine)
    recorded, replayed = {"misses": 1, "captures": 1}, {"hits": 1}
    dropped = recorded | {"evictions": 1}
    for length, want in [
        (300, recorded),
        (107, recorded),
        (300, replayed),
        (107, replayed),
        (64, dropped),  # of 300
        (107, replayed),
        (300, dropped),  # of 64
        (107, replayed),
        (64, dropped),  # of 300
        (300, dropped),  # of 107
        (107, dropped),  # of 64
    ]:
        logits(engine, [ids(3, length)])
        assert counted.moved() == want, f"{length} tokens"
    assert engine.graph_stats()["entries"] == 2


def test_exact_mode_replays_for_other_tokens_of_the_same_shape(engines: Engines) -> None:
    engine = engines.fresh(graph_mode="exact")
    logits(engine, [ids(3, 300)])
    counted = _Counted(engine)
    logits(engine, [ids(4, 300)])
    assert counted.moved() == {"hits": 1}


def test_eager_mode_records_nothing(engines: Engines) -> None:
    engine = engines.fresh(graph_mode="eager")
    counted = _Counted(engine)
    for _ in range(3):
        logits(engine, [ids(3, 107)])
    assert not engine.record_missed()
    assert counted.moved() == {} and engine.graph_stats()["entries"] == 0


def test_bucketed_mode_records_between_requests_only(engines: Engines) -> None:
    """100 and 107 tokens fall into one bucket, 240 into another; a missed shape is remembered once."""
    engine = engines.fresh(graph_mode="bucketed")
    logits(engine, [ids(3, 240)])
    counted = _Counted(engine)
    for length in (107, 100, 107):
        logits(engine, [ids(3, length)])
    assert counted.moved() == {"misses": 3}
    recordings = 0
    while engine.record_missed():
        recordings += 1
    assert recordings == 2
    assert counted.moved() == {"captures": 2}
    for length in (100, 107, 240):
        logits(engine, [ids(5, length)])
    assert counted.moved() == {"hits": 3}


def test_bucketed_mode_serves_trees_of_one_bucket_with_one_recording(engines: Engines) -> None:
    """135 and 131 rows, 8 and 7 chunks, 7 and 6 leaves: 144 rows, 8 chunks and 8 leaves after rounding up."""
    engine = engines.fresh(graph_mode="bucketed")
    logits(engine, candidates(100, [5] * 7))
    while engine.record_missed():
        pass
    counted = _Counted(engine)
    logits(engine, candidates(101, [5] * 6))
    assert counted.moved() == {"hits": 1}


def test_a_bounded_cache_in_bucketed_mode(engines: Engines) -> None:
    engine = engines.fresh(graph_mode="bucketed", graph_entries=3)
    for length in (250, 200, 100, 50, 10):
        logits(engine, [ids(3, length)])
        while engine.record_missed():
            pass
    assert engine.graph_stats()["entries"] == 3
    counted = _Counted(engine)
    for length in (100, 50, 10):
        logits(engine, [ids(3, length)])
    assert counted.moved() == {"hits": 3}


@pytest.mark.parametrize("graph_mode", ["exact", "bucketed"])
def test_warm_up_records_ahead_of_the_first_request(
    engines: Engines, tmp_path: Path, graph_mode: str
) -> None:
    engine = engines.fresh(graph_mode=graph_mode, tuning_file=str(tmp_path / "measured.json"))
    engine.warm_up([107, 240])
    counted = _Counted(engine)
    for length in (240, 107):
        logits(engine, [ids(3, length)])
    assert counted.moved() == {"hits": 2}
