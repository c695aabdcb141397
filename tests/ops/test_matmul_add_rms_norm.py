"""matmul_add_rms_norm: residual += x W^T in place, out = rms_norm(residual)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openjev._runtime import testing
from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import (
    BF16_UNIT,
    EPS,
    ROWS,
    SUMS,
    assert_accurate,
    inputs,
    normal,
    tolerance,
    why_no_cuda,
)
from tests.reference import ops as reference

SIZES = [(96, 160), (100, 333), (512, 1024), (1, 7)]  # (columns of the residual, columns of x)


def _run(
    ops: Any, x: np.ndarray, weight: np.ndarray, before: np.ndarray, norm: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = before.shape
    residual, update, out = (guarded(rows, cols) for _ in range(3))
    residual.out[...] = before
    ops.matmul_add_rms_norm(x, weight, residual.out, update.out, norm, EPS, out.out)
    return residual.check("residual"), out.check()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("cols", "inner"), SIZES)
def test_matches_float64(ops: Any, rows: int, cols: int, inner: int) -> None:
    """The residual is within one rounding of the sum, or two where the product is rounded first."""
    x, before = inputs(ops, 80, rows, inner), inputs(ops, 81, rows, cols)
    weight, norm = inputs(ops, 82, cols, inner, inner**-0.5), normal(83, 1, cols, 0.3)
    residual, out = _run(ops, strided(x), weight, before, norm)
    product = reference.matmul(x, weight)
    terms = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T + np.abs(before)
    rounding = tolerance(ops, 0.0, BF16_UNIT) * (np.abs(product) + np.abs(before + product))
    assert (np.abs(residual - (before + product)) <= SUMS * terms + rounding).all()
    assert_accurate(ops, out, reference.rms_norm(residual, norm, EPS), SUMS)


def test_a_row_alone_gives_the_bits_it_has_among_others(ops: Any) -> None:
    x, before = inputs(ops, 84, 111, 1024), inputs(ops, 85, 111, 512)
    weight, norm = inputs(ops, 86, 512, 1024, 0.03), normal(87, 1, 512, 0.3)
    residual, out = _run(ops, x, weight, before, norm)
    for rows in (slice(0, 1), slice(7, 8), slice(30, 95)):
        part, part_out = _run(ops, x[rows], weight, before[rows], norm)
        assert_same_bits(part, residual[rows])
        assert_same_bits(part_out, out[rows])


@pytest.mark.skipif(bool(why_no_cuda()), reason=f"cuda: {why_no_cuda()}")
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("rows", ROWS)
def test_cuda_may_split_the_sums_of_a_product_always_alike(rows: int, parts: int) -> None:
    ops = testing.ops(device="cuda", matmul_parts=parts)
    x, before = inputs(ops, 88, rows, 1024), inputs(ops, 89, rows, 256)
    weight, norm = inputs(ops, 90, 256, 1024, 0.03), normal(91, 1, 256, 0.3)
    residual, out = _run(ops, x, weight, before, norm)
    want = before + reference.matmul(x, weight)
    assert_accurate(ops, residual, want, SUMS)
    assert_accurate(ops, out, reference.rms_norm(residual, norm, EPS), SUMS)
    last, last_out = _run(ops, x[-1:], weight, before[-1:], norm)
    assert_same_bits(last, residual[-1:])
    assert_same_bits(last_out, out[-1:])
    product = guarded(rows, 256)
    ops.matmul(x, weight, 0, product.out)
    assert_accurate(ops, product.check(), reference.matmul(x, weight), SUMS)
