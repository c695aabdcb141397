"""Progress bars on stderr: only for people, so none when it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tqdm import tqdm  # type: ignore[import-untyped]


@contextmanager
def load_progress(unit: str = "B") -> Iterator[Callable[[int, int, str], None]]:
    """Yields the `progress` of `openjev.load`: a function of units done, units in all, and what they are.

    Another total begins another bar.
    """
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        before = current = 0

        def report(done: int, total: int, what: str) -> None:
            nonlocal advance, before, current
            if advance is None or total != current:
                stack.close()
                advance = stack.enter_context(progress_bar(total, what, unit=unit))
                before, current = 0, total
            advance(done - before)
            before = done

        yield report


@contextmanager
def progress_bar(
    total: int | None, what: str, *, unit: str, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yields a function that moves the bar on by a number of units. `unit` "B" is printed as kB, MB, GB.

    `total` None: nobody knows how many there will be.
    """
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
