"""Captures that fail: the program of graph_cache_test.cc, where the build made it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gpu.support import needs_cuda

ROOT = Path(__file__).resolve().parents[2]


@needs_cuda
def test_a_pass_that_cannot_be_recorded_is_launched_eagerly_and_counted() -> None:
    programs = sorted(ROOT.glob("build/*/cuda/graph_cache_test"))
    if not programs:
        pytest.skip("no build folder holds graph_cache_test")
    done = subprocess.run([programs[-1]], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok:") == 7
    assert "launching eagerly" in done.stderr
