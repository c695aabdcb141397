"""silu_mul: silu(gate_up[:, :I]) * gate_up[:, I:]."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import (
    BF16_UNIT,
    EXPONENTIALS,
    ROWS,
    activations,
    assert_accurate,
    inputs,
    tolerance,
)
from tests.reference import ops as reference


def _run(ops: Any, gate_up: np.ndarray) -> np.ndarray:
    out = guarded(gate_up.shape[0], gate_up.shape[1] // 2)
    ops.silu_mul(gate_up, out.out)
    return out.check()


def _check(ops: Any, rows: int, inner: int) -> None:
    """bfloat16: silu and the product are rounded, as in the reference."""
    gate_up = inputs(ops, 24, rows, 2 * inner, 3.0)
    got, want = _run(ops, strided(gate_up)), reference.silu_mul(gate_up)
    assert_accurate(ops, got, want, EXPONENTIALS)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inner", [1, 9, 160, 331])
def test_matches_float64(ops: Any, rows: int, inner: int) -> None:
    _check(ops, rows, inner)


@pytest.mark.parametrize(("rows", "inner"), [(3, 3584), (700, 6144), (5, 17408)])
def test_intermediate_sizes_of_the_published_checkpoints(ops: Any, rows: int, inner: int) -> None:
    _check(ops, rows, inner)


@pytest.mark.parametrize("width", [11, 16])
@pytest.mark.parametrize("gate", [-1e4, -104.0, -88.0, -20.0, -0.0, 1e-20, 20.0, 88.8, 1e4])
def test_the_whole_range_of_the_gate(ops: Any, gate: float, width: int) -> None:
    """Relative precision up to e^88, where the vector exponential stops; beyond it an absolute 1e-33."""
    gate_up = activations(ops, np.array([[gate] * width + [1.5] * width]))
    want = reference.silu_mul(gate_up)
    relative = tolerance(ops, EXPONENTIALS, 1.01 * BF16_UNIT)
    assert np.abs(_run(ops, gate_up) - want).max() <= relative * np.abs(want).max() + 1e-33


@pytest.mark.parametrize("inner", [77, 160])
def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any], inner: int) -> None:
    gate_up = inputs(threads[0], 25, 65, 2 * inner)
    alone = np.concatenate([_run(threads[0], gate_up[r : r + 1]) for r in range(65)])
    for ops in threads:
        assert_same_bits(_run(ops, gate_up), alone)
