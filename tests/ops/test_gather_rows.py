"""gather_rows: out[i] = x[rows[i]], any order, repeats allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import ROWS, inputs


@pytest.mark.parametrize("count", ROWS)
@pytest.mark.parametrize("cols", [1, 129, 1024])
def test_rows_are_copied_exactly(ops: Any, count: int, cols: int) -> None:
    x = inputs(ops, 3, 37, cols)
    rows = np.random.default_rng(count).integers(0, 37, count).astype(np.int32)
    out = guarded(count, cols)
    ops.gather_rows(strided(x), rows, out.out)
    assert_same_bits(out.check(), x[rows])
