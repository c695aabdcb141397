"""silu_mul: silu(gate_up[:, :I]) * gate_up[:, I:]."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_rows_close, assert_same_bits, guarded, strided
from tests.ops.support import EXPONENTIALS, ROWS, normal
from tests.reference import ops as reference


def _run(ops: Any, gate_up: np.ndarray) -> np.ndarray:
    out = guarded(gate_up.shape[0], gate_up.shape[1] // 2)
    ops.silu_mul(gate_up, out.out)
    return out.check()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inner", [1, 9, 160, 331])
def test_matches_float64(ops: Any, rows: int, inner: int) -> None:
    gate_up = normal(24, rows, 2 * inner, 3.0)
    assert_rows_close(_run(ops, strided(gate_up)), reference.silu_mul(gate_up), EXPONENTIALS)


@pytest.mark.parametrize("gate", [-1e4, -104.0, -88.0, -20.0, -0.0, 1e-20, 20.0, 88.8, 1e4])
def test_the_whole_range_of_the_gate(ops: Any, gate: float) -> None:
    """Relative precision up to e^88, where the vector exponential stops; beyond it an absolute 1e-33."""
    gate_up = np.array([[gate] * 11 + [1.5] * 11], np.float32)
    want = reference.silu_mul(gate_up)
    assert np.abs(_run(ops, gate_up) - want).max() <= EXPONENTIALS * np.abs(want).max() + 1e-33


def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any]) -> None:
    gate_up = normal(25, 65, 2 * 77)
    alone = np.concatenate([_run(threads[0], gate_up[r : r + 1]) for r in range(65)])
    for ops in threads:
        assert_same_bits(_run(ops, gate_up), alone)
