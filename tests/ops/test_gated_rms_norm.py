"""gated_rms_norm: by head of value_dim, weight * normalized(x) * silu(z); not 1 + weight here."""

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
    sizes,
)
from tests.reference import ops as reference


def _run(ops: Any, x: np.ndarray, z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out = guarded(*x.shape)
    ops.gated_rms_norm(x, z, weight, EPS, out.out)
    return out.check()


@pytest.mark.parametrize("rows", ROWS)
@sized(
    "heads_dim",
    cpu=[(1, 8), (3, 32), (5, 40), (6, 128)],
    cuda=[(1, 128), (2, 128), (6, 128), (16, 128), (48, 128)],
)
def test_matches_float64(ops: Any, rows: int, heads_dim: tuple[int, int]) -> None:
    """bfloat16: the normalized value, its product with the weight and the result are rounded."""
    heads, dim = heads_dim
    x, z = inputs(ops, 16, rows, heads * dim), inputs(ops, 17, rows, heads * dim, 2.0)
    weight = 1 + normal(18, 1, dim, 0.3)
    got, want = _run(ops, strided(x), strided(z), weight), reference.gated_rms_norm(x, z, weight, EPS)
    assert_accurate(ops, got, want, EXPONENTIALS)


def test_extreme_gates_stay_finite(ops: Any) -> None:
    dim = sizes(ops).delta[3]
    x, weight = inputs(ops, 19, 4, 2 * dim), 1 + normal(20, 1, dim, 0.3)
    z = np.repeat(np.array([[-200.0], [-20.0], [20.0], [200.0]], np.float32), 2 * dim, 1)
    got = _run(ops, x, z, weight)
    want = reference.gated_rms_norm(x, z, weight, EPS)
    assert np.abs(got[0]).max() <= 1e-30, "the gate of -200 is closed"
    assert_accurate(ops, got[1:], want[1:], EXPONENTIALS)


def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any]) -> None:
    dim = sizes(threads[0]).delta[3]
    x, z = inputs(threads[0], 21, 65, 3 * dim), inputs(threads[0], 22, 65, 3 * dim)
    weight = 1 + normal(23, 1, dim, 0.3)
    alone = [_run(threads[0], x[r : r + 1], z[r : r + 1], weight) for r in range(65)]
    for ops in threads:
        assert_same_bits(_run(ops, x, z, weight), np.concatenate(alone))
