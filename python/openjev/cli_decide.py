"""`openjev decide`: one request in, its answer as JSON out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openjev.cli_input import (
    InputError,
    UsageError,
    parse_json,
    read_argument,
    read_state,
)
from openjev.progress import load_progress
from openjev.settings import Settings

if TYPE_CHECKING:
    from openjev.model import DecisionModel

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
    if model.info.caveat:
        print(f"openjev: {model.info.name}: {model.info.caveat}", file=sys.stderr)
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
