"""readout: hidden weight^T + bias in float32, with no normalization of its own (T31)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_close, assert_same_bits, guarded, strided
from tests.ops.support import SUMS, inputs, normal
from tests.reference import ops as reference


def _run(ops: Any, hidden: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    out = guarded(hidden.shape[0], weight.shape[0])
    ops.readout(hidden, weight, bias, out.out)
    return out.check()


@pytest.mark.parametrize("rows", [1, 3, 65, 255])
@pytest.mark.parametrize(("outputs", "hidden_size"), [(1, 96), (1, 1023), (26, 129), (26, 2560), (1, 5120)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_matches_float64(ops: Any, rows: int, outputs: int, hidden_size: int, with_bias: bool) -> None:
    """Weights, sums and logits are float32 on every device."""
    hidden, weight = inputs(ops, 26, rows, hidden_size), normal(27, outputs, hidden_size, 0.1)
    bias = normal(28, 1, outputs) if with_bias else None
    got = _run(ops, strided(hidden), weight, bias)
    assert_close(got, reference.readout(hidden, weight, bias), SUMS)


def test_t31_exact_values_of_a_fixed_hidden_state_and_head(ops: Any) -> None:
    """Every partial sum is a small integer times 2^-3: any order of adding gives this exact result."""
    hidden = np.arange(-8, 9, dtype=np.float32)[None] / 2
    weight = np.stack([np.arange(17, dtype=np.float32) / 4, np.full(17, -0.25, np.float32)])
    bias = np.array([[0.375, -2.0]], np.float32)
    assert_same_bits(_run(ops, hidden, weight, bias), hidden @ weight.T + bias)


def test_a_row_does_not_depend_on_its_company_or_on_threads(threads: list[Any]) -> None:
    hidden, weight, bias = inputs(threads[0], 29, 65, 160), normal(30, 26, 160), normal(31, 1, 26)
    alone = np.concatenate([_run(threads[0], hidden[r : r + 1], weight, bias) for r in range(65)])
    for ops in threads:
        assert_same_bits(_run(ops, hidden, weight, bias), alone)
