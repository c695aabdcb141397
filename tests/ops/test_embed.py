"""embed: rows of the table, widened exactly (or rounded once where the device keeps bfloat16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded
from tests.ops.support import ROWS, activations, normal
from tests.reference.ops import from_bf16, to_bf16


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 33, 160, 1024, 5120])
def test_rows_are_copied_exactly(ops: Any, rows: int, cols: int) -> None:
    table = normal(1, 17, cols)
    token = np.random.default_rng(rows).integers(0, 17, rows).astype(np.int32)
    out = guarded(rows, cols)
    ops.embed(table, token, out.out)
    assert_same_bits(out.check(), activations(ops, table[token]))


def test_bfloat16_rows_are_widened_exactly(ops: Any) -> None:
    bits = to_bf16(normal(2, 9, 65))
    bits[0, :4] = [0x0000, 0x8000, 0x0001, 0x7F7F]  # zeros, the smallest subnormal, the largest finite value
    token = np.array([0, 8, 8, 3, 0], np.int32)
    out = guarded(token.size, 65)
    ops.embed(bits, token, out.out)
    assert_same_bits(out.check(), from_bf16(bits)[token])
