"""norm_rope: RMS norm of every head (1 + weight), then rotation of its first dims in half-split pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_rows_close, assert_same_bits, guarded
from tests.ops.support import EPS, EXPONENTIALS, ROWS, normal
from tests.reference import ops as reference

THETA = 1e7
# heads, distance between heads, head dim, rotary dim; the first is the query of a query | gate pair
LAYOUTS = [(4, 64, 32, 8), (1, 32, 32, 8), (3, 512, 256, 64), (2, 48, 40, 0), (2, 24, 24, 24)]


def _run(
    ops: Any, x: np.ndarray, layout: tuple[int, int, int, int], weight: np.ndarray, at: np.ndarray
) -> np.ndarray:
    heads, stride, dim, rotary = layout
    out = guarded(x.shape[0], heads * dim)
    ops.norm_rope(x, heads, stride, weight, at, dim, rotary, THETA, EPS, out.out)
    return out.check()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matches_float64(ops: Any, rows: int, layout: tuple[int, int, int, int]) -> None:
    heads, stride, dim, rotary = layout
    x, weight = normal(42, rows, heads * stride), normal(43, 1, dim, 0.3)
    position = np.random.default_rng(rows).integers(0, 4096, rows).astype(np.int32)
    got = _run(ops, x, layout, weight, position)
    want = reference.norm_rope(x, heads, stride, weight, position, dim, rotary, THETA, EPS)
    assert_rows_close(got, want, EXPONENTIALS)


def test_position_zero_is_the_norm_alone(ops: Any) -> None:
    x, weight = normal(44, 3, 64), normal(45, 1, 32, 0.3)
    got = _run(ops, x, (2, 32, 32, 8), weight, np.zeros(3, np.int32))
    want = np.concatenate(
        [reference.rms_norm(x[:, :32], weight, EPS), reference.rms_norm(x[:, 32:], weight, EPS)], 1
    )
    assert_rows_close(got, want, EXPONENTIALS)


def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any]) -> None:
    x, weight, position = normal(46, 65, 256), normal(47, 1, 32, 0.3), np.arange(65, dtype=np.int32) * 7
    layout = (4, 64, 32, 8)
    alone = [_run(threads[0], x[r : r + 1], layout, weight, position[r : r + 1]) for r in range(65)]
    for ops in threads:
        assert_same_bits(_run(ops, x, layout, weight, position), np.concatenate(alone))
