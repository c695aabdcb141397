"""norm_rope: RMS norm of every head (1 + weight), then rotation of its first dims in half-split pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import (
    EPS,
    EXPONENTIALS,
    ROWS,
    assert_accurate,
    inputs,
    normal,
    sized,
)
from tests.reference import ops as reference

THETA = 1e7
Layout = tuple[int, int, int, int]  # heads, distance between heads, head dim, rotary dim
# The first is the query of a query | gate pair, the second the keys.
CPU: list[Layout] = [(4, 64, 32, 8), (1, 32, 32, 8), (3, 512, 256, 64), (2, 48, 40, 0), (2, 24, 24, 24)]
CUDA: list[Layout] = [(8, 512, 256, 64), (2, 256, 256, 64), (3, 512, 256, 64), (24, 512, 256, 64)]


def _run(ops: Any, x: np.ndarray, layout: Layout, weight: np.ndarray, at: np.ndarray) -> np.ndarray:
    heads, stride, dim, rotary = layout
    out = guarded(x.shape[0], heads * dim)
    ops.norm_rope(x, heads, stride, weight, at, dim, rotary, THETA, EPS, out.out)
    return out.check()


@pytest.mark.parametrize("rows", ROWS)
@sized("layout", cpu=CPU, cuda=CUDA)
def test_matches_float64(ops: Any, rows: int, layout: Layout) -> None:
    """bfloat16: the norm, the cosine and sine, both products and their sum may be rounded."""
    heads, stride, dim, rotary = layout
    x, weight = inputs(ops, 42, rows, heads * stride), normal(43, 1, dim, 0.3)
    position = np.random.default_rng(rows).integers(0, 32768, rows).astype(np.int32)
    got = _run(ops, strided(x), layout, weight, position)
    want = reference.norm_rope(x, heads, stride, weight, position, dim, rotary, THETA, EPS)
    assert_accurate(ops, got, want, EXPONENTIALS)


@sized("layout", cpu=[(2, 32, 32, 8)], cuda=[(2, 256, 256, 64)])
def test_position_zero_is_the_norm_alone(ops: Any, layout: Layout) -> None:
    _, _, dim, _ = layout
    x, weight = inputs(ops, 44, 3, 2 * dim), normal(45, 1, dim, 0.3)
    got = _run(ops, x, layout, weight, np.zeros(3, np.int32))
    want = np.concatenate(
        [reference.rms_norm(x[:, :dim], weight, EPS), reference.rms_norm(x[:, dim:], weight, EPS)], 1
    )
    assert_accurate(ops, got, want, EXPONENTIALS)


@sized("layout", cpu=[(4, 64, 32, 8)], cuda=[(4, 512, 256, 64)])
def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any], layout: Layout) -> None:
    heads, stride, dim, _ = layout
    x, weight = inputs(threads[0], 46, 65, heads * stride), normal(47, 1, dim, 0.3)
    position = np.arange(65, dtype=np.int32) * 7
    alone = [_run(threads[0], x[r : r + 1], layout, weight, position[r : r + 1]) for r in range(65)]
    for ops in threads:
        assert_same_bits(_run(ops, x, layout, weight, position), np.concatenate(alone))
