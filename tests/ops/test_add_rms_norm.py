"""add_rms_norm: residual += update in place, out = rms_norm(residual)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_rows_close, assert_same_bits, guarded, strided
from tests.ops.support import EPS, ROWS, SUMS, normal
from tests.reference import ops as reference


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 7, 96, 333])
def test_matches_float64(ops: Any, rows: int, cols: int) -> None:
    before, update, weight = normal(10, rows, cols), normal(11, rows, cols, 0.5), normal(12, 1, cols, 0.3)
    residual, out = guarded(rows, cols), guarded(rows, cols)
    residual.out[...] = before
    ops.add_rms_norm(residual.out, strided(update), weight, EPS, out.out)
    assert_same_bits(residual.check("residual"), before + update, "residual, one float32 addition")
    assert_rows_close(out.check(), reference.rms_norm(before + update, weight, EPS), SUMS)


def test_equals_the_sum_followed_by_rms_norm(threads: list[Any]) -> None:
    """The fused form takes the same steps as the parts, with any number of threads."""
    before, update, weight = normal(13, 65, 160), normal(14, 65, 160), normal(15, 1, 160, 0.3)
    want = guarded(65, 160)
    threads[0].rms_norm(before + update, weight, EPS, want.out)
    for ops in threads:
        residual, out = before.copy(), guarded(65, 160)
        ops.add_rms_norm(residual, update, weight, EPS, out.out)
        assert_same_bits(out.check(), want.check())
        assert_same_bits(residual, np.add(before, update))
