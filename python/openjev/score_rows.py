"""Rows of a file for `openjev score`, read as a stream: JSON Lines or CSV, one request each."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from openjev.cli_input import InputError, decode, parse_json
from openjev.json_value import kind, quote

Format = Literal["jsonl", "csv"]

# A row is a request; what is longer is no row but a quote that was never closed, or another kind of file.
MAX_ROW_BYTES = 16 << 20


@dataclass(frozen=True)
class Record:
    """The bytes of one row without its line end; `data` is empty and `error` set when it cannot be one.

    `line` is the number of its first line; `nbytes` counts what it takes in the file; `complete`: a line end
    closes it.
    """

    line: int
    nbytes: int
    data: bytes
    complete: bool
    error: str = ""


@dataclass(frozen=True)
class Row:
    """One row: `request` as the wire has it, or `error`."""

    line: int
    nbytes: int
    identity: Any = None
    request: Any = None
    error: str = ""


@dataclass(frozen=True)
class Selection:
    """Which fields of a row mean what.

    Without `questions` a row is a request itself, {"id"?, "state", "questions"}. With them, the state is the
    field of `state`, or an object of them when there are several, or of all fields but `identity` when none
    is named.
    """

    questions: Mapping[str, Any] | None = None
    state: Sequence[str] = ()
    identity: str | None = None

    def names(self) -> list[str]:
        """The fields that a row must have."""
        return [*self.state, *([self.identity] if self.identity is not None else [])]


@dataclass
class Table:
    """The rows of `file`. Opening a CSV reads its header.

    Raises InputError: the header is missing, names a column twice, or lacks one that `selection` names.
    """

    file: IO[bytes]
    name: str
    format: Format
    selection: Selection
    header: list[str] = field(init=False, default_factory=list)
    _records: Iterator[Record] = field(init=False)

    def __post_init__(self) -> None:
        self._records = read_records(self.file, quoted=self.format == "csv")
        if self.format == "csv":
            self.header = self._read_header()

    def __iter__(self) -> Iterator[Row]:
        for record in self._records:
            if not record.error and not record.data.strip():
                continue
            identity = None
            try:
                if record.error:
                    raise InputError(record.error)
                fields = self._fields(record)
                identity = self._identity(fields)
                yield Row(record.line, record.nbytes, identity, self._request(fields))
            except InputError as error:
                yield Row(record.line, record.nbytes, identity, error=str(error))

    def _read_header(self) -> list[str]:
        for record in self._records:
            if record.error:
                raise InputError(f"{self.name}: line {record.line}: {record.error}")
            if record.data.strip():
                break
        else:
            raise InputError(f"{self.name}: found no line, allowed: CSV with a header")
        header = _split_fields(decode(record.data, f"{self.name}: header"))
        if twice := [name for name in header if header.count(name) > 1]:
            raise InputError(f"{self.name}: header: found the column {quote(twice[0])} twice, allowed: once")
        for name in self.selection.names():
            if name not in header:
                raise InputError(
                    f"{self.name}: header: found no column {quote(name)}, allowed: {', '.join(header)}"
                )
        return header

    def _fields(self, record: Record) -> Any:
        text = decode(record.data, "row")
        if self.format == "jsonl":
            return parse_json(text, "row")
        values = _split_fields(text)
        if len(values) != len(self.header):
            raise InputError(f"row: found {len(values)} fields, allowed: {len(self.header)} as in the header")
        return dict(zip(self.header, values, strict=True))

    def _identity(self, fields: Any) -> Any:
        name = "id" if self.selection.questions is None else self.selection.identity
        return fields.get(name) if isinstance(fields, dict) and name is not None else None

    def _request(self, fields: Any) -> Any:
        """What the contract is to check: a request in the form of the wire, when the row has its fields."""
        chosen = self.selection
        if chosen.questions is None:
            if isinstance(fields, dict):
                fields.pop("id", None)
            return fields
        if not isinstance(fields, dict):
            raise InputError(f"row: found {kind(fields)}, allowed: an object")
        for name in chosen.names():
            if name not in fields:
                found = ", ".join(map(quote, fields)) or "none"
                raise InputError(f"row: found no field {quote(name)}, it has: {found}")
        if len(chosen.state) == 1:
            state = fields[chosen.state[0]]
        elif chosen.state:
            state = {name: fields[name] for name in chosen.state}
        else:
            state = {name: value for name, value in fields.items() if name != chosen.identity}
        return {"state": state, "questions": chosen.questions}


def read_records(file: IO[bytes], *, quoted: bool, limit: int = MAX_ROW_BYTES) -> Iterator[Record]:
    """The lines of `file`; `quoted`: as CSV has them, where a line end between quotes belongs to the field.

    Never holds more than `limit` bytes and a line of that size.
    """
    line = 1
    while piece := file.readline(limit + 1):
        first, parts, nbytes = line, [piece], len(piece)
        inside = quoted and ends_inside_quotes(piece)
        while inside and nbytes <= limit and (more := file.readline(limit + 1)):
            line += 1
            piece, nbytes = more, nbytes + len(more)
            parts.append(piece)
            inside = ends_inside_quotes(piece, inside=True)
        line += 1
        data, error = b"", ""
        if nbytes > limit:
            while piece and not piece.endswith(b"\n"):
                piece = file.readline(1 << 16)
                nbytes += len(piece)
            error = f"row: found more than {limit} bytes, allowed: at most that"
            error += f"; a quote opened in line {first} or later is not closed" if inside else ""
        elif inside:
            error = f"row: found a quote that is never closed, from line {first} on"
        else:
            data = b"".join(parts).rstrip(b"\r\n")
        yield Record(first, nbytes, data, not inside and piece.endswith(b"\n"), error)


def ends_inside_quotes(line: bytes, *, inside: bool = False) -> bool:
    """Whether a CSV field is still open at the end of `line`, which began `inside` one or not.

    A quote opens a field only as its first byte; two quotes inside a quoted field are one.
    """
    position = 0
    while True:
        if not inside and line[position : position + 1] == b'"':
            inside, position = True, position + 1
        if inside:
            end = line.find(b'"', position)
            if end < 0:
                return True
            position = end + 1
            if line[position : position + 1] == b'"':
                position += 1
                continue
            inside = False
        comma = line.find(b",", position)
        if comma < 0:
            return False
        position = comma + 1


def _split_fields(text: str) -> list[str]:
    # The module's default, 131,072 characters, is less than a long state.
    csv.field_size_limit(MAX_ROW_BYTES)
    try:
        rows = list(csv.reader([text]))
    except csv.Error as error:
        raise InputError(f"row: found text that is not CSV: {error}") from None
    return rows[0] if rows else []
