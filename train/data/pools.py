"""The pools of text/pools: what frames a text, the questions, the rules and facts of policies.

A reversed question says so with 'not', 'wrong', 'false' or 'other than', a direct one never does. The words
of a pool recur in several of its templates, so that a held-out one is new as a sentence only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from train.data.example import SplitPool

_FOLDER = Path(__file__).parent / "text" / "pools"


def pool(file: str, name: str) -> SplitPool:
    """Pool `name` of text/pools/FILE.txt. Raises KeyError for a name that the file does not have."""
    return load_pools(file)[name]


@cache
def load_pools(file: str) -> Mapping[str, SplitPool]:
    """The pools of text/pools/FILE.txt by name. Raises ValueError for a line of no kind."""
    path = _FOLDER / f"{file}.txt"
    templates: dict[str, list[str]] = {}
    name = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        mark, _, rest = line.partition(" ")
        if mark == "#" and rest not in templates:
            name = rest
            templates[name] = []
        elif mark == "-" and name:
            templates[name].append(rest)
        elif line:
            raise ValueError(f"{path.name}:{number}: found {line!r}, allowed: '# ' with a new name or '- '")
    return {name: SplitPool(*lines) for name, lines in templates.items()}
