"""add_rms_norm: residual += update in place, out = rms_norm(residual)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import EPS, ROWS, SUMS, activations, assert_accurate, inputs, normal
from tests.reference import ops as reference


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 7, 96, 100, 333, 1024, 5120])
def test_matches_float64(ops: Any, rows: int, cols: int) -> None:
    before, update = inputs(ops, 10, rows, cols), inputs(ops, 11, rows, cols, 0.5)
    weight = normal(12, 1, cols, 0.3)
    residual, out = guarded(rows, cols), guarded(rows, cols)
    residual.out[...] = before
    ops.add_rms_norm(residual.out, strided(update), weight, EPS, out.out)
    added = activations(ops, before + update)
    assert_same_bits(residual.check("residual"), added, "residual, one addition")
    assert_accurate(ops, out.check(), reference.rms_norm(added, weight, EPS), SUMS)


@pytest.mark.parametrize("cols", [160, 161])
def test_equals_the_sum_followed_by_rms_norm(threads: list[Any], cols: int) -> None:
    """The fused form takes the same steps as the parts, with any number of threads."""
    before, update = inputs(threads[0], 13, 65, cols), inputs(threads[0], 14, 65, cols)
    weight, added, want = (
        normal(15, 1, cols, 0.3),
        activations(threads[0], before + update),
        guarded(65, cols),
    )
    threads[0].rms_norm(added, weight, EPS, want.out)
    for ops in threads:
        residual, out = guarded(65, cols), guarded(65, cols)
        residual.out[...] = before
        ops.add_rms_norm(residual.out, update, weight, EPS, out.out)
        assert_same_bits(out.check(), want.check())
        assert_same_bits(residual.check("residual"), added)
        one = guarded(1, cols)
        ops.add_rms_norm(before[7:8].copy(), update[7:8], weight, EPS, one.out)
        assert_same_bits(one.check(), want.out[7:8], "a row alone")
