"""Inputs for the operator tests: what runs where, seeded matrices, forests of sequences with their plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from openjev._runtime import backends, testing
from openjev.errors import DeviceUnavailableError
from tests.compare import assert_close, assert_rows_close
from tests.reference.ops import from_bf16, to_bf16

Matrix = npt.NDArray[np.float32]
DeltaShape = tuple[int, int, int, int]  # key heads, value heads, key dim, value dim
Heads = tuple[int, int, int]  # heads, kv heads, head dim

ROWS = (1, 3, 63, 64, 65, 111)
EPS = 1e-6
VOCAB = 50

# Relative L2 of a result in float32 against the same formula in float64, by row. Sums of up to a few hundred
# terms in float32 lose 1e-7 to 5e-7; the exponential of the vector units is good to 2 ulp.
SUMS = 1e-6
EXPONENTIALS = 2e-6

# Rounding to bfloat16 moves an element by at most 2^-8 of it; by relative L2 about 1.7e-3. One rounding can
# cost a row of one element 2^-8 = 3.9e-3.
BF16_UNIT = 2.0**-8
ONE_ROUNDING = 4e-3

# What each device is compiled for: any size on the CPU, the head dims of the published checkpoints on CUDA.
DELTA_SHAPES: dict[str, list[DeltaShape]] = {
    "cpu": [(2, 4, 32, 32), (2, 6, 16, 32), (1, 3, 40, 24), (1, 2, 128, 128)],
    "cuda": [(h, v, 128, 128) for h, v in ((1, 2), (2, 6), (16, 16), (16, 32), (16, 48))],
}
ATTENTION_HEADS: dict[str, list[Heads]] = {
    "cpu": [(4, 2, 32), (6, 1, 32), (3, 3, 40), (2, 1, 256)],
    "cuda": [(h, kv, 256) for h, kv in ((2, 1), (3, 1), (8, 2), (16, 4), (24, 4))],
}


@dataclass(frozen=True)
class Sizes:
    """The size that a device's tests use where one will do, and a smaller one for many random cases."""

    delta: DeltaShape
    small_delta: DeltaShape
    attention: Heads
    small_attention: Heads


_SIZES = {
    "cpu": Sizes((2, 6, 16, 32), (1, 2, 16, 16), (4, 2, 32), (2, 1, 16)),
    "cuda": Sizes((2, 6, 128, 128), (1, 2, 128, 128), (8, 2, 256), (2, 1, 256)),
}


def sizes(ops: Any) -> Sizes:
    return _SIZES[ops.device]


@functools.cache
def usable_isas() -> list[str]:
    """The instruction sets of this build that this processor has; "generic" always."""
    found = []
    for isa in ("generic", "avx2", "avx512"):
        try:
            testing.ops(isa, 1)
        except DeviceUnavailableError:
            continue
        found.append(isa)
    return found


@functools.cache
def why_no_cuda() -> str:
    """The registry's reason why no CUDA device can be used; empty when one can."""
    return next((detail for name, usable, detail in backends() if name == "cuda" and not usable), "")


def _cuda(*values: Any, id: str) -> Any:
    reason = why_no_cuda()
    return pytest.param(*values, id=id, marks=[pytest.mark.skip(reason=f"cuda: {reason}")] if reason else [])


def targets() -> list[Any]:
    """Parameters of the fixture `target`."""
    return [*usable_isas(), _cuda("cuda", id="cuda")]


def sized(name: str, cpu: Iterable[Any], cuda: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes a test over every target, each with the sizes that it is compiled for."""
    values = [pytest.param(isa, value, id=f"{isa}-{_label(value)}") for value in cpu for isa in usable_isas()]
    values += [_cuda("cuda", value, id=f"cuda-{_label(value)}") for value in cuda]
    return pytest.mark.parametrize(("target", name), values, indirect=["target"])


def _label(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def padded() -> pytest.MarkDecorator:
    """Parametrizes over plans as they are and, where recorded passes need it, rounded up to a bucket."""
    return sized("pad", cpu=[False], cuda=[False, True])


def activations(ops: Any, values: npt.NDArray[Any]) -> Matrix:
    """`values` as the device will see them: rounded to its activation dtype, still in float32 here."""
    exact = np.asarray(values, np.float32)
    return from_bf16(to_bf16(exact)).reshape(exact.shape) if ops.activation_dtype == "BF16" else exact


def tolerance(ops: Any, float32: float, bfloat16: float) -> float:
    """The bound that goes with the device's activation dtype."""
    return bfloat16 if ops.activation_dtype == "BF16" else float32


def assert_accurate(
    ops: Any,
    got: Matrix,
    want: npt.ArrayLike,
    float32: float,
    bfloat16: float = ONE_ROUNDING,
    what: str = "",
) -> None:
    """Row by row within `float32`; for bfloat16 activations all rows together within `bfloat16`.

    A single row may then be off by three times a rounding's worst case: rows of few elements have no average.
    """
    if ops.activation_dtype == "F32":
        assert_rows_close(got, want, float32, what)
        return
    assert_rows_close(got, want, 3 * BF16_UNIT, what)
    if np.size(want) >= 64:
        assert_close(got, want, bfloat16, what)


def normal(seed: int, rows: int, cols: int, scale: float = 1.0) -> Matrix:
    return (np.random.default_rng([seed, rows, cols]).standard_normal((rows, cols)) * scale).astype(
        np.float32
    )


def inputs(ops: Any, seed: int, rows: int, cols: int, scale: float = 1.0) -> Matrix:
    """Normal activations that the device holds exactly."""
    return activations(ops, normal(seed, rows, cols, scale))


@dataclass(frozen=True)
class Forest:
    """Sequences and their plan. `args` is what the operator bindings build the same plan from."""

    args: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], int, int, bool]
    plan: dict[str, Any]

    @property
    def rows(self) -> int:
        return int(self.plan["rows"])

    @property
    def parent(self) -> npt.NDArray[np.int32]:
        parent: npt.NDArray[np.int32] = self.plan["parent_row"]
        return parent


def forest(
    sequences: Sequence[Sequence[int]], prefix_length: int = 0, keep_end_state: bool = False
) -> Forest:
    tokens = np.concatenate([np.asarray(s, np.int32) for s in sequences])
    offsets = np.cumsum([0, *map(len, sequences)]).astype(np.int64)
    plan = testing.plan(tokens, offsets, VOCAB, prefix_length=prefix_length, keep_end_state=keep_end_state)
    return Forest((tokens, offsets, VOCAB, prefix_length, keep_end_state), plan)


def _ids(seed: int, count: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, VOCAB, count).tolist()
    return ids


def _branches(shared: int, tails: Sequence[int]) -> list[list[int]]:
    """Sequences with `shared` tokens in common; each tail starts with a token of its own."""
    stem = _ids(shared, shared)
    return [[*stem, i % VOCAB, *_ids(1000 + i, tail - 1)] for i, tail in enumerate(tails)]


SEQUENCES: dict[str, list[list[int]]] = {
    "one token": [[7]],
    "one path of 63": [_ids(1, 63)],
    "one path of 64": [_ids(2, 64)],
    "one path of 200": [_ids(3, 200)],
    "three roots": [_ids(4, 1), [9, *_ids(5, 2)], _ids(6, 70)],
    "branches at 63": _branches(63, [1, 2, 66]),
    "branches at 64": _branches(64, [1, 63, 64, 65]),
    "branches at 65": _branches(65, [3, 129, 1]),
    "a path within a path": [_ids(8, 150), _ids(8, 150)[:64], _ids(8, 150)[:65], _ids(8, 150)[:10]],
    "many leaves": _branches(70, [1 + i % 7 for i in range(40)]),
    "branches of branches": [a + b for a in _branches(40, [50, 90]) for b in _branches(0, [1, 30, 64])],
}


@st.composite
def random_sequences(draw: st.DrawFn) -> list[list[int]]:
    """Up to six sequences; each one after the first leaves an earlier one at a random token."""
    cut: Callable[[int], int] = lambda most: draw(st.integers(0, most))  # noqa: E731
    sequences = [_ids(draw(st.integers(0, 999)), 1 + cut(140))]
    for _ in range(cut(5)):
        stem = sequences[cut(len(sequences) - 1)]
        tail = _ids(draw(st.integers(0, 999)), 1 + cut(90))
        sequences.append(stem[: cut(len(stem))] + tail)
    return sequences
