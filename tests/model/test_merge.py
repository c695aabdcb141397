"""An adapter's update of a matrix: the formula in numpy, bit by bit, whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev._runtime import testing
from openjev.safetensors_write import to_bf16_bits
from tests.adapters import Floats, merged
from tests.compare import assert_same_bits


def matrices(rows: int, cols: int, rank: int, seed: int) -> tuple[Floats, Floats, Floats]:
    generator = np.random.default_rng(seed)

    def draw(*shape: int) -> Floats:
        return generator.normal(0, 0.3, shape).astype(np.float32)

    return draw(rows, cols), draw(rank, cols), draw(rows, rank)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 40),
    cols=st.sampled_from([1, 2, 31, 64, 1023, 1024, 1025, 2500]),
    rank=st.integers(1, 33),
    alpha=st.floats(0.1, 64),
    seed=st.integers(0, 2**32),
    wide=st.booleans(),
)
def test_a_merge_has_the_bits_of_the_formula(
    rows: int, cols: int, rank: int, alpha: float, seed: int, wide: bool
) -> None:
    """R(W + R(scale * B A)) with B A summed by fused multiply-adds in the order of the rank."""
    weight, a, b = matrices(rows, cols, rank, seed)
    stored = weight if wide else to_bf16_bits(weight)
    scale = float(np.float32(alpha / rank))
    assert_same_bits(testing.merge(stored, a, b, scale), merged(stored, a, b, scale))


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_threads_share_rows_and_change_no_bit(threads: int) -> None:
    weight, a, b = matrices(2049, 515, 8, 3)
    stored = to_bf16_bits(weight)
    assert_same_bits(testing.merge(stored, a, b, 2.0, threads), testing.merge(stored, a, b, 2.0, 1))


def test_two_roundings_are_not_one() -> None:
    """An update below half a step of W is lost, and one that rounds up to a step is not lost."""
    one, step = np.ones((1, 1), np.float32), np.float32(2.0**-7)
    below = testing.merge(to_bf16_bits(one), one, np.full((1, 1), step / 2 * 0.99, np.float32), 1.0)
    tie = testing.merge(to_bf16_bits(one), one, np.full((1, 1), step / 2 * 1.0009, np.float32), 1.0)
    assert below.tolist() == to_bf16_bits(one).tolist()
    # step / 2 * 1.0009 rounds to step / 2 in bfloat16, and 1 + step / 2 to the even 1.
    assert tie.tolist() == to_bf16_bits(one).tolist()


def test_an_update_of_another_size_is_refused() -> None:
    weight, a, b = matrices(4, 8, 2, 1)
    with pytest.raises(Exception, match=r"an update of \[4, 8\] for a matrix of \[3, 8\]"):
        testing.merge(to_bf16_bits(weight[:3]), a, b, 1.0)
