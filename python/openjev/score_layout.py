"""How the answers of `openjev score` are written: JSON Lines as on the wire, or CSV with flat columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from openjev.cli_input import InputError
from openjev.contract import Choice, Noul, Question
from openjev.json_value import quote
from openjev.score_rows import Format

_LEADING = ("line", "id", "error", "input_tokens")


class Layout(Protocol):
    """Rows as bytes. Every row ends in a line feed, and none lies outside quotes before it."""

    @property
    def format(self) -> Format: ...

    @property
    def header(self) -> bytes:
        """What comes before the first row; may be empty."""

    def encode(self, answer: Mapping[str, Any]) -> bytes:
        """The row of one answer of `score_rows`."""

    def read_back(self, row: bytes) -> tuple[int, bool]:
        """The line of the input that a written row is about, and whether it is bad. Raises ValueError."""


class JsonLines:
    """Each answer as it is, one a line."""

    format: Format = "jsonl"
    header = b""

    def encode(self, answer: Mapping[str, Any]) -> bytes:
        # A lone surrogate can stand in an id only; escaped, it can be written.
        try:
            return (json.dumps(answer, ensure_ascii=False) + "\n").encode()
        except UnicodeEncodeError:
            return (json.dumps(answer) + "\n").encode()

    def read_back(self, row: bytes) -> tuple[int, bool]:
        found = json.loads(row)
        if not isinstance(found, dict) or not isinstance(found.get("line"), int):
            raise ValueError("no line")
        return found["line"], "error" in found


class FlatColumns:
    """CSV. A noul has one column, its id; a choice or score also ID.confidence and ID.p.OPTION or ID.p.LEVEL.

    Raises InputError when two columns would have one name.
    """

    format: Format = "csv"

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = questions
        names = [*_LEADING]
        for name, question in questions.items():
            names.append(name)
            if not isinstance(question, Noul):
                outcomes = _outcomes(question)
                names += [f"{name}.confidence", *(f"{name}.p.{outcome}" for outcome in outcomes)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"--questions: two columns of a CSV would be {quote(twice)}; "
                "allowed: other ids, or an --out that ends in .jsonl"
            )
        self._width = len(names)
        self.header = _line(names)

    def encode(self, answer: Mapping[str, Any]) -> bytes:
        error = answer.get("error")
        tokens = "" if error is not None else answer["usage"]["input_tokens"]
        cells = [answer["line"], _plain(answer["id"]), error or "", tokens]
        if error is None:
            for name, question in self._questions.items():
                cells += _cells(question, answer["answers"][name])
        return _line(map(str, cells + [""] * (self._width - len(cells))))

    def read_back(self, row: bytes) -> tuple[int, bool]:
        cells = next(csv.reader([row.decode()]), [])
        if len(cells) != self._width:
            raise ValueError("another number of fields")
        return int(cells[0]), cells[2] != ""


def _outcomes(question: Question) -> Sequence[str]:
    if isinstance(question, Choice):
        return list(question.options)
    return [] if isinstance(question, Noul) else [str(i) for i in range(len(question.levels))]


def _cells(question: Question, answer: Mapping[str, Any]) -> list[Any]:
    kind: str = answer["type"]
    if kind == "noul":
        return [answer["noul"]]
    return [answer[kind], answer["confidence"], *(answer["probabilities"][o] for o in _outcomes(question))]


def _plain(identity: Any) -> str:
    if identity is None:
        return ""
    return identity if isinstance(identity, str) else json.dumps(identity, ensure_ascii=False)


def _line(cells: Iterable[str]) -> bytes:
    """Quoted where a reader needs it. The csv module of some Python versions leaves a lone "\\r" bare."""
    quoted = (
        '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in ',"\r\n') else cell
        for cell in cells
    )
    return (",".join(quoted) + "\n").encode("utf-8", "backslashreplace")
