"""`openjev decide` and `openjev score`: requests in, answers as JSON out."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from openjev.cli_input import (
    InputError,
    UsageError,
    decode,
    parse_json,
    read_argument,
    read_file,
    read_state,
    read_stdin,
    unreadable,
)
from openjev.errors import OpenJevError
from openjev.progress import load_progress, progress_bar
from openjev.settings import Settings

if TYPE_CHECKING:
    from openjev.model import DecisionModel, Prepared

MODEL_SETTINGS: Sequence[str] = (
    "model",
    "device",
    "threads",
    "graph_mode",
    "graph_entries",
    "matmul_mode",
    "load_format",
    "max_length",
    "literal_special_tokens",
    "share_prefixes",
)


def load_model(settings: Settings) -> DecisionModel:
    """The model of the settings. Says on stderr when its answers mean nothing."""
    from openjev.model import load

    with load_progress() as progress:
        model = load(
            settings.model,
            device=settings.device,
            threads=settings.threads,
            graph_mode=settings.graph_mode,
            graph_entries=settings.graph_entries,
            matmul_mode=settings.matmul_mode,
            load_format=settings.load_format,
            max_length=settings.max_length,
            literal_special_tokens=settings.literal_special_tokens,
            share_prefixes=settings.share_prefixes,
            progress=progress,
        )
    if memory := model.memory_text():
        print(f"openjev: device memory: {memory}", file=sys.stderr)
    if model.info.demo:
        print("openjev: the demo checkpoint has random weights: its answers are arbitrary", file=sys.stderr)
    return model


def run_decide(args: argparse.Namespace, settings: Settings) -> int:
    """Answers questions about one state; the output is the body of a 200 answer of the server."""
    if [args.state, args.questions, *args.noul].count("-") > 1:
        raise UsageError(
            "found - more than once, allowed: standard input for one of --state, --questions, --noul"
        )
    questions = _questions(args.questions, args.noul)
    state = read_state(args.state)
    decision = load_model(settings).decide(state, questions)
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(decision.to_dict(), ensure_ascii=False, indent=indent))
    return 0


def _questions(given: str | None, nouls: Sequence[str]) -> dict[str, Any]:
    questions: dict[str, Any] = {}
    if given is not None:
        found = parse_json(read_argument(given, "--questions"), "--questions")
        if not isinstance(found, dict):
            raise InputError("--questions: found JSON of another kind, allowed: an object of id to question")
        questions.update(found)
    for number, text in enumerate(nouls, start=1):
        name = f"q{number}"
        if name in questions:
            raise UsageError(f"--noul: its id {name} is taken by --questions; rename the question there")
        questions[name] = {"type": "noul", "instructions": read_argument(text, "--noul")}
    if not questions:
        raise UsageError("found no question, allowed: --questions JSON, --noul TEXT or both")
    return questions


@dataclass
class _Row:
    """One line of the input: `prepared` when it can be answered, else `error`."""

    line: int
    identity: Any
    nbytes: int
    prepared: Prepared | None = None
    error: str = ""

    @property
    def cost(self) -> int:
        """Token rows that the engine computes for it, at most."""
        return 0 if self.prepared is None else self.prepared.rows


def run_score(args: argparse.Namespace, settings: Settings) -> int:
    """Answers each row of a JSON Lines file, in order.

    A row that cannot be answered becomes {"line", "id", "error"}, is reported on stderr with its line number
    and makes the exit code 1; the other rows are answered all the same.
    """
    data = read_stdin() if args.file == "-" else read_file(args.file)
    if args.out and args.file != "-" and os.path.exists(args.out) and os.path.samefile(args.out, args.file):
        raise UsageError(f"--out: found the input file {args.file}, allowed: another file")
    model = load_model(settings)
    bad = 0
    with _output(args.out) as out, progress_bar(len(data), "scoring", unit="B") as advance:
        for batch in _batches(_rows(model, data), settings.batch_tokens):
            for row, answer in zip(batch, _answers(model, batch), strict=True):
                if row.error:
                    bad += 1
                    print(f"openjev: line {row.line}: {row.error}", file=sys.stderr)
                out.write(json.dumps(answer, ensure_ascii=False) + "\n")
                advance(row.nbytes)
    return 1 if bad else 0


def _rows(model: DecisionModel, data: bytes) -> Iterator[_Row]:
    """Every line that is not blank, checked, rendered and tokenized."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        row = _Row(number, None, len(line) + 1)
        try:
            request = parse_json(decode(line, "row"), "row")
            if isinstance(request, dict):
                row.identity = request.pop("id", None)
            row.prepared = model.prepare(request)
        except OpenJevError as error:
            row.error = str(error)
        yield row


def _batches(rows: Iterator[_Row], batch_tokens: int) -> Iterator[list[_Row]]:
    """Runs of rows that cost at most `batch_tokens` together; a row that costs more is a batch of its own."""
    batch: list[_Row] = []
    cost = 0
    for row in rows:
        if batch and cost + row.cost > batch_tokens:
            yield batch
            batch, cost = [], 0
        batch.append(row)
        cost += row.cost
    if batch:
        yield batch


def _answers(model: DecisionModel, batch: Sequence[_Row]) -> list[dict[str, Any]]:
    """One engine call for the batch; when it fails, one for each row, so that no row spoils the others."""
    good = [row.prepared for row in batch if row.prepared is not None]
    try:
        logits = iter(model.execute(good) if good else [])
    except OpenJevError as error:
        if len(batch) > 1:
            return [answer for row in batch for answer in _answers(model, [row])]
        batch[0].prepared, batch[0].error = None, str(error)
        logits = iter([])
    answers = []
    for row in batch:
        answer: dict[str, Any] = {"line": row.line, "id": row.identity}
        if row.prepared is None:
            answer["error"] = row.error
        else:
            answer.update(model.finish(row.prepared, next(logits)).to_dict())
        answers.append(answer)
    return answers


@contextmanager
def _output(name: str | None) -> Iterator[IO[str]]:
    if name is None:
        yield sys.stdout
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(name, "w", encoding="utf-8", newline="\n"))
        except OSError as error:
            raise unreadable(name, error) from None
        yield file
