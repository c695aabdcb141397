"""Progress bars on stderr: only for people, so none when it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tqdm import tqdm  # type: ignore[import-untyped]


@contextmanager
def load_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Yields the `progress` of `openjev.load`: a function of bytes done, bytes in all, and what they are."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        before = 0

        def report(done: int, total: int, what: str) -> None:
            nonlocal advance, before
            if advance is None:
                advance = stack.enter_context(progress_bar(total, what, unit="B"))
            advance(done - before)
            before = done

        yield report


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
