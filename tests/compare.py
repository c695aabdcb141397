"""Comparison of float arrays without a scale, ||a - b|| / ||b|| in float64, naming the worst element.

Also the two helpers every test of an in-place operator uses: outputs start filled with NaN, so an element
that was not written cannot pass, and lie inside a larger array of a known value, so a write outside the
output cannot hide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# 8 elements are 16 bytes of bfloat16: an output whose width is a multiple of 8 has aligned rows, as those of
# the engine have, and any other width gives rows that are not aligned.
GUARD = 8
_GUARD_VALUE = np.float32(-(2.0**15))  # a bfloat16 and a float16 too: it survives the way to a device


def relative_l2(got: npt.ArrayLike, want: npt.ArrayLike) -> float:
    """||got - want|| / ||want|| over all elements, in float64; ||got|| itself where `want` is zero."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if a.shape != b.shape:
        raise AssertionError(f"shape {a.shape}, expected {b.shape}")
    norm = float(np.linalg.norm(b.ravel()))
    distance = float(np.linalg.norm((a - b).ravel()))
    return distance / norm if norm > 0 else distance


def _worst(got: npt.NDArray[np.float64], want: npt.NDArray[np.float64]) -> str:
    difference = np.abs(got - want)
    difference[np.isnan(difference)] = np.inf
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
    return (
        f"max |difference| {difference[index]:.3e} at {index}: got {got[index]!r}, expected {want[index]!r}"
    )


def assert_close(got: npt.ArrayLike, want: npt.ArrayLike, tolerance: float, what: str = "") -> None:
    """Finite, of the same shape, and within `tolerance` by relative L2."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    distance = relative_l2(a, b)
    if a.size and not (np.isfinite(a).all() and distance <= tolerance):
        raise AssertionError(
            f"{what or 'arrays'}: relative L2 {distance:.3e} > {tolerance:.1e}; {_worst(a, b)}"
        )


def assert_rows_close(got: npt.ArrayLike, want: npt.ArrayLike, tolerance: float, what: str = "") -> None:
    """`assert_close` row by row, so that a small wrong row cannot hide behind large right ones."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if a.shape != b.shape:
        raise AssertionError(f"{what}: shape {a.shape}, expected {b.shape}")
    for row in range(a.shape[0]):
        assert_close(a[row], b[row], tolerance, f"{what} row {row}".strip())


def assert_same_bits(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32], what: str = "") -> None:
    """Equal bit patterns: -0 is not 0, and a NaN equals only itself."""
    a, b = np.ascontiguousarray(got), np.ascontiguousarray(want)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise AssertionError(f"{what}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape}")
    if a.tobytes() != b.tobytes():
        unequal = int(np.count_nonzero(a.view(np.uint32) != b.view(np.uint32)))
        worst = _worst(a.astype(np.float64), b.astype(np.float64))
        raise AssertionError(
            f"{what or 'arrays'}: {unequal} of {a.size} elements differ in their bits; {worst}"
        )


@dataclass(frozen=True)
class Guarded:
    """A float32 output [rows, cols] inside an array with guard rows and columns around it."""

    whole: npt.NDArray[np.float32]
    out: npt.NDArray[np.float32]

    def check(self, what: str = "output") -> npt.NDArray[np.float32]:
        """Every element of the output was written, no guard was. Returns the output."""
        missing = np.argwhere(np.isnan(self.out))
        if missing.size:
            raise AssertionError(f"{what}: {len(missing)} elements are NaN, the first at {tuple(missing[0])}")
        outside = np.ones(self.whole.shape, bool)
        outside[GUARD:-GUARD, GUARD:-GUARD] = False
        touched = np.argwhere(outside & (self.whole != _GUARD_VALUE))
        if touched.size:
            raise AssertionError(
                f"{what}: written outside, at {tuple(touched[0] - GUARD)} of {self.out.shape}"
            )
        return self.out


def guarded(rows: int, cols: int) -> Guarded:
    """A NaN-filled output with guards; its rows are `cols + 2 * GUARD` elements apart."""
    whole = np.full((rows + 2 * GUARD, cols + 2 * GUARD), _GUARD_VALUE, np.float32)
    out = whole[GUARD:-GUARD, GUARD:-GUARD]
    out[...] = np.nan
    return Guarded(whole, out)


def strided(
    values: npt.NDArray[np.float32], before: int = GUARD, after: int = 2 * GUARD
) -> npt.NDArray[np.float32]:
    """The same matrix as a range of columns of a wider one whose other columns are NaN."""
    wide = np.full((values.shape[0], before + values.shape[1] + after), np.nan, np.float32)
    view = wide[:, before : before + values.shape[1]]
    view[...] = values
    return view
