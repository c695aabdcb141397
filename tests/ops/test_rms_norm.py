"""rms_norm: x * rsqrt(mean(x^2) + eps) * (1 + weight), by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_rows_close, assert_same_bits, guarded, strided
from tests.ops.support import EPS, ROWS, SUMS, normal
from tests.reference import ops as reference


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 7, 96, 333, 1024])
def test_matches_float64(ops: Any, rows: int, cols: int) -> None:
    x, weight = normal(4, rows, cols), normal(5, 1, cols, 0.3)
    out = guarded(rows, cols)
    ops.rms_norm(strided(x), weight, EPS, out.out)
    assert_rows_close(out.check(), reference.rms_norm(x, weight, EPS), SUMS)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 1e4])
def test_small_and_large_rows(ops: Any, scale: float) -> None:
    """eps dominates below 1e-3 and a row of zeros stays zero."""
    x, weight = normal(6, 5, 97, scale), normal(7, 1, 97, 0.3)
    out = guarded(5, 97)
    ops.rms_norm(x, weight, EPS, out.out)
    assert_rows_close(out.check(), reference.rms_norm(x, weight, EPS), SUMS)


def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any]) -> None:
    x, weight = normal(8, 111, 161), normal(9, 1, 161, 0.3)
    want = np.concatenate([_run(threads[0], x[row : row + 1], weight) for row in range(111)])
    for ops in threads:
        assert_same_bits(_run(ops, x, weight), want)


def _run(ops: Any, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out = guarded(*x.shape)
    ops.rms_norm(x, weight, EPS, out.out)
    return out.check().copy()
