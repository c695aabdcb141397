"""rms_norm: x * rsqrt(mean(x^2) + eps) * (1 + weight), by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import EPS, ROWS, SUMS, assert_accurate, inputs, normal
from tests.reference import ops as reference


def _run(ops: Any, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out = guarded(*x.shape)
    ops.rms_norm(x, weight, EPS, out.out)
    return out.check()


def _check(ops: Any, x: np.ndarray, weight: np.ndarray) -> None:
    assert_accurate(ops, _run(ops, strided(x), weight), reference.rms_norm(x, weight, EPS), SUMS)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 7, 96, 100, 333, 1024])
def test_matches_float64(ops: Any, rows: int, cols: int) -> None:
    _check(ops, inputs(ops, 4, rows, cols), normal(5, 1, cols, 0.3))


@pytest.mark.parametrize("cols", [8, 2048, 2560, 4096, 5120, 8192, 8200])
def test_hidden_sizes_of_the_published_checkpoints_and_more(ops: Any, cols: int) -> None:
    _check(ops, inputs(ops, 4, 9, cols), normal(5, 1, cols, 0.3))


def test_more_rows_than_a_device_works_on_at_once(ops: Any) -> None:
    _check(ops, inputs(ops, 4, 2500, 1024), normal(5, 1, 1024, 0.3))


@pytest.mark.parametrize("cols", [97, 96])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1e4])
def test_small_and_large_rows(ops: Any, cols: int, scale: float) -> None:
    """eps dominates below 1e-3 and a row of zeros stays zero."""
    _check(ops, inputs(ops, 6, 5, cols, scale), normal(7, 1, cols, 0.3))


@pytest.mark.parametrize("cols", [161, 1024])
def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any], cols: int) -> None:
    x, weight = inputs(threads[0], 8, 111, cols), normal(9, 1, cols, 0.3)
    want = np.concatenate([_run(threads[0], x[row : row + 1], weight) for row in range(111)])
    for ops in threads:
        assert_same_bits(_run(ops, x, weight), want)
