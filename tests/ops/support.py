"""Inputs for the operator tests: seeded matrices, forests of sequences with their batch plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from openjev._runtime import testing
from openjev.errors import DeviceUnavailableError

Matrix = npt.NDArray[np.float32]

ROWS = (1, 3, 63, 64, 65, 111)
EPS = 1e-6
VOCAB = 50

# Relative L2 of a result in float32 against the same formula in float64, by row. Sums of up to a few hundred
# terms in float32 lose 1e-7 to 5e-7; the exponential of the vector units is good to 2 ulp.
SUMS = 1e-6
EXPONENTIALS = 2e-6


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


def normal(seed: int, rows: int, cols: int, scale: float = 1.0) -> Matrix:
    return (np.random.default_rng([seed, rows, cols]).standard_normal((rows, cols)) * scale).astype(
        np.float32
    )


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
