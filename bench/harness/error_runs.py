"""Error runs: what a server says at its limit and to requests that are wrong. After the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.harness.client import Connection
from bench.harness.counting import PromptCounter
from bench.harness.text import Stream, fill
from bench.harness.workloads import encode, noul_of, request_body

_SHOWN = 300


@dataclass(frozen=True)
class ErrorCase:
    """`statuses`: the allowed range of the answer, both ends included."""

    name: str
    body: bytes
    statuses: tuple[int, int]


def cases(counter: PromptCounter, *, letters: bool, exact: bool) -> list[ErrorCase]:
    """The five of every arm. `exact`: our own contract's statuses; any other server may answer any 4xx."""
    asked = {"q": {"type": "choice", "instructions": "Which?", "criteria": {"yes": None, "no": None}}}
    malformed = encode(request_body("A parcel.", asked))[:-1]
    unknown_model = {**request_body("A parcel.", asked), "model": "no-such-model"}
    unknown_type = request_body("A parcel.", {"q": {"type": "ranking", "instructions": "Which?"}})

    def status(ours: int) -> tuple[int, int]:
        return (ours, ours) if exact else (400, 499)

    limit = counter.max_length
    return [
        ErrorCase("near limit", encode(_of_length(counter, limit, letters)), (200, 200)),
        ErrorCase("oversize", encode(_of_length(counter, limit + 1, letters)), status(422)),
        ErrorCase("malformed", malformed, status(422)),
        ErrorCase("unknown model", encode(unknown_model), status(400)),
        ErrorCase("unknown type", encode(unknown_type), status(422)),
    ]


def _of_length(counter: PromptCounter, tokens: int, letters: bool) -> dict[str, Any]:
    stream = Stream("limit", tokens)
    if not letters:
        return noul_of(counter, stream, tokens)
    return _long_choice(counter, stream, tokens)


def _long_choice(counter: PromptCounter, stream: Stream, tokens: int) -> dict[str, Any]:
    asked = {"q": {"type": "choice", "instructions": "Which?", "criteria": {"yes": None, "no": None}}}
    text = fill(stream, tokens, lambda state: max(counter.prompts(request_body(state, asked))))
    return request_body(text, asked)


def run(connection: Connection, cases: list[ErrorCase]) -> list[dict[str, Any]]:
    """Sends each once and says what came back."""
    rows = []
    for case in cases:
        reply = connection.post(case.body)
        low, high = case.statuses
        rows.append(
            {
                "case": case.name,
                "allowed": [low, high],
                "status": reply.status,
                "ms": reply.ms,
                "as_expected": low <= reply.status <= high,
                "body": "" if reply.status == 200 else reply.text[:_SHOWN],
            }
        )
    return rows
