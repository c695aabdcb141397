"""Captures that fail: the program of graph_cache_test.cc."""

from __future__ import annotations

from tests.gpu.support import needs_cuda, run_program


@needs_cuda
def test_a_pass_that_cannot_be_recorded_is_launched_eagerly_and_counted() -> None:
    done = run_program("graph_cache_test")
    assert done.stdout.count("ok:") == 7
    assert "launching eagerly" in done.stderr
