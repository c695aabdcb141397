"""The operators' test access takes arrays as they are, strided or not, and nothing that it would misread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openjev.errors import BadRequestError
from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import EPS, inputs, normal


def _norm(ops: Any, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    ops.rms_norm(x, normal(1, 1, x.shape[1], 0.3), EPS, out)
    return out


@pytest.mark.parametrize("before", [0, 1, 3, 8])
@pytest.mark.parametrize("cols", [32, 37])
def test_a_range_of_columns_gives_the_bits_of_a_matrix_of_its_own(ops: Any, cols: int, before: int) -> None:
    """Rows that start at any element, among columns that are NaN."""
    x = inputs(ops, 2, 9, cols)
    want, got = guarded(9, cols), guarded(9, cols)
    _norm(ops, x, want.out)
    _norm(ops, strided(x, before, 5), got.out)
    assert_same_bits(got.check(), want.check())


def test_inputs_are_left_alone(ops: Any) -> None:
    x = inputs(ops, 3, 9, 32) * np.float32(1.001)  # values that a device rounds
    before = x.copy()
    _norm(ops, x, guarded(9, 32).out)
    assert_same_bits(x, before)


def test_rows_that_are_not_contiguous_are_refused(ops: Any) -> None:
    with pytest.raises(BadRequestError, match="contiguous rows"):
        _norm(ops, normal(4, 8, 8).T, guarded(8, 8).out)
    with pytest.raises(BadRequestError, match="0 elements apart"):
        _norm(ops, np.broadcast_to(normal(4, 1, 8), (8, 8)), guarded(8, 8).out)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint16])
def test_activations_of_another_dtype_are_refused(ops: Any, dtype: Any) -> None:
    with pytest.raises(BadRequestError, match=np.dtype(dtype).name):
        _norm(ops, np.ones((8, 8), dtype), guarded(8, 8).out)


def test_an_output_that_cannot_be_written_is_refused(ops: Any) -> None:
    out = np.zeros((8, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="not writeable"):
        _norm(ops, normal(5, 8, 8), out)
