"""What users of this field report, and what only a GPU can show."""

from __future__ import annotations

from tests.gpu.support import Engines, candidates, ids, logits, needs_cuda

pytestmark = needs_cuda


def test_T25_lengths_seen_before_are_never_recorded_again(engines: Engines) -> None:
    """60 distinct lengths, three passes: no capture in passes 2 and 3; short prompts are all replayed.

    Prompts of more than 256 tokens are launched kernel by kernel, which takes them no longer.
    """
    engine = engines.fresh(graph_mode="bucketed")
    lengths = range(600, 0, -10)
    recorded = sum(length <= 256 for length in lengths)
    for length in lengths:
        logits(engine, [ids(40, length)])
    while engine.record_missed():
        pass
    before = engine.graph_stats()
    for _ in range(2):
        for length in lengths:
            logits(engine, [ids(41, length)])
    after = engine.graph_stats()
    assert after["captures"] == before["captures"]
    assert after["evictions"] == before["evictions"]
    assert after["hits"] - before["hits"] == 2 * recorded
    assert after["misses"] == before["misses"]


def test_T21_one_call_of_97_options_stays_below_the_planned_memory(engines: Engines) -> None:
    """All options of a choice in one call; the device holds no more than the plan printed at load said."""
    engine = engines.fresh(graph_mode="bucketed")
    loaded = engine.memory()
    options = candidates(300, [3 + i % 7 for i in range(97)])
    assert logits(engine, options).shape == (97, 1)
    planned = loaded["planned_weights"] + loaded["planned_workspace"] + loaded["planned_graphs"]
    assert loaded["free_before"] - engine.memory()["free"] <= planned
