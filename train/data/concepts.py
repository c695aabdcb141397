"""The text files: concepts with the words that name them and the templates that express them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from train.data.grammar import Split, split_templates

_FOLDER = Path(__file__).parent / "text"


@dataclass
class Concept:
    """One thing that a text can express.

    `names` are bare option labels, `about` descriptions, `predicates` complete "the message is ...";
    `level` is its grade or severity where the file gives one; `templates` by split.
    """

    key: str
    names: list[str] = field(default_factory=list)
    about: list[str] = field(default_factory=list)
    predicates: list[str] = field(default_factory=list)
    level: int = 0
    templates: dict[Split, list[str]] = field(default_factory=dict)


@cache
def load_concepts(domain: str) -> tuple[Concept, ...]:
    """The concepts of text/DOMAIN.txt, in the order of the file. Raises ValueError for a line of no kind."""
    path = _FOLDER / f"{domain}.txt"
    concepts: list[Concept] = []
    templates: list[list[str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        mark, _, rest = line.partition(" ")
        values = [value.strip() for value in rest.split(" | ")]
        if mark == "#":
            concepts.append(Concept(rest))
            templates.append([])
        elif mark == "-":
            templates[-1].append(rest)
        elif mark == "name:":
            concepts[-1].names = values
        elif mark == "about:":
            concepts[-1].about = values
        elif mark == "is:":
            concepts[-1].predicates = values
        elif mark in ("severity:", "grade:"):
            concepts[-1].level = int(rest)
        else:
            raise ValueError(f"{path.name}:{number}: found {line!r}, allowed: '# ', '- ' or a known field")
    for concept, lines in zip(concepts, templates, strict=True):
        concept.templates = split_templates(lines)
    return tuple(concepts)
