"""Progress bars on stderr: only for people, so none when it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm  # type: ignore[import-untyped]


@contextmanager
def progress_bar(total: int, what: str, *, unit: str, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yields a function that moves the bar on by a number of units. `unit` "B" is printed as kB, MB, GB."""
    bar = tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=unit == "B",
        file=sys.stderr,
        leave=False,
        disable=not (shown and sys.stderr.isatty()),
    )
    with bar:
        yield lambda step: bar.update(step) and None
