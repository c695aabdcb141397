"""matmul: x W'^T in float32 for float32 and bfloat16 weights; W' is a range of rows of W.

Where activations are bfloat16 the device keeps every matrix in bfloat16, and a result is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import (
    BF16_UNIT,
    ROWS,
    SUMS,
    activations,
    assert_accurate,
    inputs,
    normal,
    tolerance,
)
from tests.reference import ops as reference

SIZES = [(1, 1), (6, 96), (33, 7), (100, 333), (515, 160), (96, 1056)]  # (out features, in features)


def _run(ops: Any, x: np.ndarray, weight: np.ndarray, first: int = 0, count: int | None = None) -> np.ndarray:
    out = guarded(x.shape[0], weight.shape[0] - first if count is None else count)
    ops.matmul(x, weight, first, out.out)
    return out.check()


def _weight(ops: Any, seed: int, features: int, inner: int, stored: str) -> np.ndarray:
    weight = normal(seed, features, inner)
    return reference.to_bf16(weight) if stored == "BF16" else activations(ops, weight)


def _check(ops: Any, x: np.ndarray, held: np.ndarray, got: np.ndarray) -> None:
    """An output may be small beside its terms: the error of a sum is measured against |x| |W|^T."""
    want = reference.matmul(x, held)
    values = reference.from_bf16(held) if held.dtype == np.uint16 else held
    size = np.abs(x).astype(np.float64) @ np.abs(values).astype(np.float64).T
    rounding = tolerance(ops, 0.0, BF16_UNIT)
    assert (np.abs(got - want) <= SUMS * size + rounding * np.abs(want)).all()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("features", "inner"), SIZES)
@pytest.mark.parametrize("stored", ["F32", "BF16"])
def test_matches_float64(ops: Any, rows: int, features: int, inner: int, stored: str) -> None:
    x, held = inputs(ops, 32, rows, inner), _weight(ops, 33, features, inner, stored)
    _check(ops, x, held, _run(ops, strided(x), held))


def test_large_inner_size_by_row(ops: Any) -> None:
    """The longest product of the 0.8B shapes, 3,584 terms."""
    x, weight = inputs(ops, 34, 5, 3584), _weight(ops, 35, 64, 3584, "F32")
    assert_accurate(ops, _run(ops, x, weight), reference.matmul(x, weight), SUMS)


@pytest.mark.parametrize("first", [0, 32, 96])
@pytest.mark.parametrize("stored", ["F32", "BF16"])
def test_a_range_of_rows_gives_the_bits_of_the_whole(ops: Any, first: int, stored: str) -> None:
    """On the CPU. A GPU may add in another order for another number of outputs, as close to float64."""
    x, held = inputs(ops, 36, 65, 97), _weight(ops, 37, 131, 97, stored)
    whole = _run(ops, x, held)
    for count in (1, 7, 32, 35):
        part = _run(ops, x, held, first, count)
        if ops.device == "cpu":
            assert_same_bits(part, whole[:, first : first + count])
        _check(ops, x, held[first : first + count], part)


def test_bfloat16_weights_give_the_bits_of_the_same_values_in_float32(ops: Any) -> None:
    x, bits = inputs(ops, 38, 65, 160), reference.to_bf16(normal(39, 100, 160))
    assert_same_bits(_run(ops, x, bits), _run(ops, x, reference.from_bf16(bits)))


@pytest.mark.parametrize(("features", "inner"), [(100, 96), (100, 333), (100, 1056), (1536, 1024)])
@pytest.mark.parametrize("stored", ["F32", "BF16"])
def test_a_row_does_not_depend_on_its_company_or_on_threads(
    threads: list[Any], features: int, inner: int, stored: str
) -> None:
    x, held = inputs(threads[0], 40, 300, inner), _weight(threads[0], 41, features, inner, stored)
    whole = _run(threads[0], x, held)
    for ops in threads[1:]:
        assert_same_bits(_run(ops, x, held), whole, "threads")
    for start, count in [
        (0, 1),
        (5, 1),
        (299, 1),
        (17, 2),
        (64, 3),
        (100, 4),
        (9, 5),
        (31, 63),
        (1, 65),
        (50, 200),
    ]:
        part = _run(threads[1], x[start : start + count], held)
        assert_same_bits(part, whole[start : start + count], f"rows {start} to {start + count}")
