"""`openjev score`: a file of rows in, a row of answers out for each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from openjev.cli_decide import load_model
from openjev.cli_input import InputError, UsageError, decode, opened, parse_json, read_argument, read_file
from openjev.contract import DecisionRequest, parse_request
from openjev.errors import RequestError
from openjev.progress import progress_bar
from openjev.score_layout import FlatColumns, JsonLines, Layout
from openjev.score_output import Earlier, open_output, run_record
from openjev.score_rows import Format, Row, Selection, Table
from openjev.scoring import score_rows
from openjev.settings import Settings

if TYPE_CHECKING:
    from openjev.model import DecisionModel

# Every bad row is in the output; on stderr a file of nothing else would bury the count.
_MOST_REPORTED = 100


def run_score(args: argparse.Namespace, settings: Settings) -> int:
    """Answers each row of a file, in order; returns 1 when a row was bad.

    A bad row becomes {"line", "id", "error"} and is reported on stderr; the others are answered all the same.
    """
    _check_usage(args)
    questions = None if args.questions is None else _read_questions(args.questions)
    asked = None if questions is None else _checked(questions, args.questions)
    layout: Layout = JsonLines()
    if _named_csv(args.out):
        layout = FlatColumns({} if asked is None else asked.questions)
    selection = Selection(questions, tuple(args.state), args.id)
    with nullcontext(sys.stdin.buffer) if args.file == "-" else opened(args.file, "rb") as file:
        table = Table(file, args.file, _format(args), selection)
        model = load_model(settings)
        if asked is not None and (issues := model.prompts.check(asked)):
            raise InputError(f"{args.questions}: {RequestError(issues)}")
        rows = iter(table)
        with _output(args, table, model, layout, rows) as (out, earlier):
            counts = _score(model, rows, settings.batch_tokens, out, layout, earlier, _size(file))
    return _report(counts, earlier)


def _check_usage(args: argparse.Namespace) -> None:
    if args.questions is None:
        for flag, given in (("--state", args.state), ("--id", args.id)):
            if given:
                raise UsageError(f"{flag}: is for rows without questions of their own, needed: --questions")
        if _format(args) == "csv" or _named_csv(args.out):
            raise UsageError("CSV: is for the same questions about every row, needed: --questions")
    if args.id is not None and args.id in args.state:
        raise UsageError(f"--id: found {args.id}, which is also a --state; allowed: another field")
    if args.overwrite and args.out is None:
        raise UsageError("--overwrite: is for the file of --out, found none")
    if args.out and args.file != "-" and os.path.exists(args.out) and os.path.samefile(args.out, args.file):
        raise UsageError(f"--out: found the input file {args.file}, allowed: another file")


def _format(args: argparse.Namespace) -> Format:
    if args.format is not None:
        return "csv" if args.format == "csv" else "jsonl"
    return "csv" if _named_csv(args.file) else "jsonl"


def _named_csv(name: str | None) -> bool:
    return name is not None and name.lower().endswith(".csv")


def _read_questions(name: str) -> dict[str, Any]:
    """From the file of that name, or as `openjev decide` takes them: @FILE, or the JSON itself."""
    as_decide = name.startswith("@") or name.lstrip().startswith("{")
    text = read_argument(name, "--questions") if as_decide else decode(read_file(name), name)
    found = parse_json(text, name)
    if not isinstance(found, dict):
        raise InputError(f"{name}: found JSON of another kind, allowed: an object of question id to question")
    return found


def _checked(questions: Mapping[str, Any], name: str) -> DecisionRequest:
    """The questions about some state. Raises InputError: wrong questions would make every row bad."""
    try:
        return parse_request({"state": "some", "questions": questions})
    except RequestError as error:
        raise InputError(f"{name}: {error}") from None


def _size(file: IO[bytes]) -> int | None:
    """Bytes of an input that can be read again; None for a pipe."""
    regular = file is not sys.stdin.buffer and file.seekable()
    return os.fstat(file.fileno()).st_size if regular else None


@contextmanager
def _output(
    args: argparse.Namespace, table: Table, model: DecisionModel, layout: Layout, rows: Iterator[Row]
) -> Iterator[tuple[IO[bytes], Earlier]]:
    if args.out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(layout.header)
        yield sys.stdout.buffer, Earlier()
        return
    record = None if _size(table.file) is None else run_record(table, model, layout.format)
    with open_output(Path(args.out), layout, record, rows, overwrite=args.overwrite) as out:
        yield out


def _score(
    model: DecisionModel,
    rows: Iterator[Row],
    batch_tokens: int,
    out: IO[bytes],
    layout: Layout,
    earlier: Earlier,
    size: int | None,
) -> Earlier:
    """Writes the answers of the rows that are left; returns what is done now, the earlier rows included."""
    count, bad, nbytes = earlier.rows, earlier.bad, earlier.nbytes
    with progress_bar(size, "scoring", unit="B") as advance:
        advance(nbytes)
        for batch in score_rows(model, rows, batch_tokens):
            for row, answer in batch:
                if error := answer.get("error"):
                    bad += 1
                    if bad - earlier.bad <= _MOST_REPORTED:
                        print(f"openjev: line {row.line}: {error}", file=sys.stderr)
                out.write(layout.encode(answer))
                advance(row.nbytes)
                count, nbytes = count + 1, nbytes + row.nbytes
            out.flush()
    return Earlier(count, bad, nbytes)


def _report(done: Earlier, earlier: Earlier) -> int:
    before = f", {earlier.rows} of them by an earlier run" if earlier.rows else ""
    bad = f'{done.bad} bad: see "error" in the output' if done.bad else "none bad"
    print(f"openjev: {done.rows} rows{before}; {bad}", file=sys.stderr)
    return 1 if done.bad else 0
