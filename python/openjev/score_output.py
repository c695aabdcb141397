"""The file that `openjev score` writes, and how an interrupted run is taken up again.

Beside OUT lies OUT.run.json, written first: hashes of the input and the questions, and which model. What OUT
itself holds says how far the run came; a last row that was cut off is cut away and written again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from openjev.cli_input import InputError, opened
from openjev.progress import progress_bar
from openjev.score_layout import Layout
from openjev.score_rows import MAX_ROW_BYTES, Row, Table, read_records

if TYPE_CHECKING:
    from openjev.model import DecisionModel

_FORMAT = "openjev-score/1"
# A row may repeat an id as long as a row of the input, each of its bytes escaped.
_MAX_WRITTEN = 8 * MAX_ROW_BYTES
_PROBE = "Does<|im_end|> this text give the same numbers?"


@dataclass(frozen=True)
class Earlier:
    """What an interrupted run had done: rows, bad ones among them, bytes of the input that they took."""

    rows: int = 0
    bad: int = 0
    nbytes: int = 0


def run_record(table: Table, model: DecisionModel, output: str) -> dict[str, Any]:
    """All that the bytes of an output depend on. Reads the input once, from its start and back to it.

    The numbers of a fixed text stand for weights, device and instruction set, which names do not tell.
    """
    info, chosen = model.info, table.selection
    asked = None if chosen.questions is None else json.dumps(chosen.questions).encode()
    ids = model.tokenizer.encode(_PROBE).tolist()[: info.max_length]
    return {
        "format": _FORMAT,
        "input": {"format": table.format, **_fingerprint(table.file)},
        "output": output,
        "questions": None if asked is None else hashlib.sha256(asked).hexdigest(),
        "state": list(chosen.state),
        "id": chosen.identity,
        "model": {
            "name": info.name,
            **info.extensions(),
            "max_length": info.max_length,
            "probe": model.score([ids]).tobytes().hex(),
        },
    }


def _fingerprint(file: IO[bytes]) -> dict[str, Any]:
    place = file.tell()
    file.seek(0)
    sha, total = hashlib.sha256(), os.fstat(file.fileno()).st_size
    with progress_bar(total, "hashing the input", unit="B") as advance:
        while block := file.read(1 << 20):
            sha.update(block)
            advance(len(block))
    file.seek(place)
    return {"bytes": total, "sha256": sha.hexdigest()}


@contextmanager
def open_output(
    path: Path, layout: Layout, record: Mapping[str, Any] | None, rows: Iterator[Row], *, overwrite: bool
) -> Iterator[tuple[IO[bytes], Earlier]]:
    """OUT, ready for the next row, and what it holds already; those rows are taken from `rows`.

    `record` is None for an input that can be read only once: its runs cannot be taken up.

    Raises InputError: OUT holds something else, and `overwrite` is false; or it cannot be opened.
    """
    beside = path.with_name(path.name + ".run.json")
    if not overwrite and path.is_file() and path.stat().st_size:
        _check_record(path, beside, record)
        with opened(path, "r+b") as file:
            yield file, _take_up(file, path, layout, rows)
        return
    # Emptied before the record changes: rows of another run must never lie beside this one's.
    with opened(path, "wb") as file:
        if path.is_file():  # no pipe or device
            _write_record(beside, record)
        file.write(layout.header)
        yield file, Earlier()


def _write_record(beside: Path, record: Mapping[str, Any] | None) -> None:
    if record is None:
        beside.unlink(missing_ok=True)
        return
    scratch = beside.with_name(beside.name + ".part")
    scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(scratch, beside)


def _check_record(path: Path, beside: Path, record: Mapping[str, Any] | None) -> None:
    otherwise = "allowed: another --out, or --overwrite"
    if record is None:
        raise InputError(
            f"{path}: found a file, and an input that can be read only once cannot be taken up; {otherwise}"
        )
    try:
        found = json.loads(beside.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: found a file without the {beside.name} of a run; {otherwise}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise InputError(f"{beside}: found no record of a run in the format {_FORMAT}; {otherwise}")
    if different := [name for name in record if found.get(name) != record[name]]:
        raise InputError(
            f"{path}: was begun with another {', '.join(different)} (see {beside.name}); "
            f"allowed: the same, another --out, or --overwrite"
        )


def _take_up(file: IO[bytes], path: Path, layout: Layout, rows: Iterator[Row]) -> Earlier:
    """Leaves `file` after its last complete row, without what follows that."""
    end = count = bad = nbytes = 0
    for record in read_records(file, quoted=layout.format == "csv", limit=_MAX_WRITTEN):
        if not record.complete:
            break
        if layout.header and end == 0:
            if record.data + b"\n" != layout.header:
                raise _changed(path, record.line)
        else:
            row = next(rows, None)
            try:
                line, is_bad = layout.read_back(record.data)
            except (ValueError, RecursionError):
                raise _changed(path, record.line) from None
            if record.error or row is None or row.line != line:
                raise _changed(path, record.line)
            count, bad, nbytes = count + 1, bad + is_bad, nbytes + row.nbytes
        end += record.nbytes
    file.seek(end)
    file.truncate()
    if end == 0:
        file.write(layout.header)
    return Earlier(count, bad, nbytes)


def _changed(path: Path, line: int) -> InputError:
    return InputError(
        f"{path}: line {line}: found something else than the row that the run wrote there; "
        "allowed: the file as the run left it, another --out, or --overwrite"
    )
