"""Workloads: a stored specification and a seed become the same requests each time, down to the byte.

Token counts hold under the loaded tokenizer: texts are filled until the count of the complete prompt is
exactly the one asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench.harness.counting import PromptCounter
from bench.harness.hashing import digest
from bench.harness.text import Stream, fill, label, question, sentence

FOLDER = Path(__file__).resolve().parents[1] / "workloads"
MODEL = "jev-latest"

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request: its id in the ledger, the bytes that are sent, and what it holds."""

    id: str
    body: bytes
    prompts: tuple[int, ...]
    questions: int

    @property
    def tokens(self) -> int:
        """Tokens of the longest prompt: what latency is drawn against."""
        return max(self.prompts)


@dataclass(frozen=True)
class Workload:
    """Requests in their order. `sha256` is over ids and bodies."""

    name: str
    requests: tuple[Request, ...]

    @property
    def sha256(self) -> str:
        return digest([[request.id, request.body.decode()] for request in self.requests])


def read_spec(name: str, folder: Path = FOLDER) -> Json:
    """The specification `name`.json. Raises FileNotFoundError, ValueError."""
    spec: Json = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    if spec.get("name") != name or spec.get("generator") not in GENERATORS:
        raise ValueError(
            f"{name}.json: found name {spec.get('name')!r} and generator {spec.get('generator')!r}, "
            f"allowed: {name!r} and one of {', '.join(GENERATORS)}"
        )
    return spec


def generate(spec: Mapping[str, Any], counter: PromptCounter, folder: Path = FOLDER) -> Workload:
    """The requests of a specification under the counter's tokenizer.

    Raises ValueError when a count cannot be met, RequestError when the model would refuse a request.
    """
    bodies = GENERATORS[spec["generator"]](spec, counter, folder)
    requests = []
    for index, body in enumerate(bodies):
        requests.append(
            Request(
                id=f"{spec['name']}/{index:03d}",
                body=encode(body),
                prompts=tuple(counter.prompts(body)),
                questions=len(body["questions"]),
            )
        )
    return Workload(spec["name"], tuple(requests))


def encode(body: Mapping[str, Any]) -> bytes:
    """The bytes of a request body."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def request_body(state: Any, questions: Mapping[str, Any]) -> Json:
    return {"model": MODEL, "state": state, "questions": dict(questions)}


def noul_of(counter: PromptCounter, stream: Stream, tokens: int) -> Json:
    """One yes/no question whose prompt has exactly `tokens` tokens."""
    asked = {"q": {"type": "noul", "instructions": question(stream)}}
    return _filled(lambda text: request_body(text, asked), counter, stream, tokens)


def _filled(build: Callable[[str], Json], counter: PromptCounter, stream: Stream, tokens: int) -> Json:
    """The body whose longest prompt has exactly `tokens` tokens."""
    return build(fill(stream, tokens, lambda text: max(counter.prompts(build(text)))))


def _noul(spec: Mapping[str, Any], counter: PromptCounter, _: Path) -> list[Json]:
    seed = spec["seed"]
    return [noul_of(counter, Stream(seed, i), tokens) for i, tokens in enumerate(spec["tokens"])]


def _repeat(spec: Mapping[str, Any], counter: PromptCounter, folder: Path) -> list[Json]:
    """The single-question requests of another workload, up to a length, their question under several ids."""
    source = generate(read_spec(spec["of"], folder), counter, folder)
    bodies = [json.loads(r.body) for r in source.requests if r.tokens <= spec["most_tokens"]]
    for body in bodies:
        (asked,) = body["questions"].values()
        body["questions"] = {f"q{copy}": asked for copy in range(1, spec["times"] + 1)}
    return bodies


def _mixed(spec: Mapping[str, Any], counter: PromptCounter, _: Path) -> list[Json]:
    """Slices of different kinds in one shuffled order."""
    bodies = []
    for part in spec["slices"]:
        for index in range(part["count"]):
            stream = Stream(spec["seed"], part["name"], index)
            questions = _questions(part["questions"], stream)
            low, high = part["tokens"]
            build = _object_state(stream, questions) if part["state"] == "object" else _text_state(questions)
            bodies.append(_filled(build, counter, stream, stream.between(low, high)))
    return Stream(spec["seed"], "order").shuffled(bodies)


def _text_state(questions: Json) -> Callable[[str], Json]:
    return lambda text: request_body(text, questions)


def _object_state(stream: Stream, questions: Json) -> Callable[[str], Json]:
    facts = {
        "channel": stream.pick(("mail", "chat", "phone")),
        "case": int("1" + stream.digits(6)),
        "priority": stream.pick(("low", "normal", "high")),
        "open": stream.below(2) == 1,
        "items": [
            {"name": label(stream), "price": stream.between(1, 500)} for _ in range(stream.between(1, 4))
        ],
    }
    return lambda text: request_body({**facts, "history": [text]}, questions)


def _questions(counts: Mapping[str, int], stream: Stream) -> Json:
    """`counts[type]` questions of each type, with 3 to 6 options or 3 to 5 levels."""
    made: list[Json] = []
    for _ in range(counts.get("noul", 0)):
        made.append({"type": "noul", "instructions": question(stream)})
    for _ in range(counts.get("choice", 0)):
        made.append(_choice(stream, stream.between(3, 6)))
    for _ in range(counts.get("score", 0)):
        levels = [f"level {i}: {label(stream)}" for i in range(stream.between(3, 5))]
        made.append({"type": "score", "instructions": "How serious is the case?", "criteria": levels})
    return {f"q{i}": asked for i, asked in enumerate(made, 1)}


def _choice(stream: Stream, options: int) -> Json:
    criteria = {f"{i}. {label(stream)}": None for i in range(1, options + 1)}
    return {"type": "choice", "instructions": "Which description fits best?", "criteria": criteria}


def _example(spec: Mapping[str, Any], counter: PromptCounter, _: Path) -> list[Json]:
    """Three questions with seven candidates; all prompts together have exactly `tokens` tokens.

    A digit in the state counts once a prompt, one in the last level's text once.
    """
    stream = Stream(spec["seed"])
    level = sentence(stream).split()[0].lower()

    def build(state: str, suffix: str = "") -> Json:
        return request_body(
            state,
            {
                "refund": {"type": "noul", "instructions": "Is money asked back?"},
                "team": {
                    "type": "choice",
                    "instructions": "Who acts?",
                    "criteria": {"billing": None, "shipping": None, "other": None},
                },
                "anger": {
                    "type": "score",
                    "instructions": "How angry?",
                    "criteria": ["calm", "annoyed", level + suffix],
                },
            },
        )

    target = spec["tokens"]
    prompts = len(counter.prompts(build("")))
    longest = target // prompts
    while longest > 0:
        try:
            state = fill(stream, longest, lambda text: sum(counter.prompts(build(text))) // prompts)
        except ValueError:
            longest -= 1
            continue
        missing = target - sum(counter.prompts(build(state)))
        body = build(state, stream.digits(max(missing, 0)))
        if sum(counter.prompts(body)) == target:
            return [body]
        longest -= 1
    raise ValueError(f"{spec['name']}: no request of {target} tokens in {prompts} prompts")


def _wide(spec: Mapping[str, Any], counter: PromptCounter, _: Path) -> list[Json]:
    """One choice of many candidates; the state alone has the tokens asked for."""
    bodies = []
    for tokens in spec["states"]:
        for candidates in spec["candidates"]:
            stream = Stream(spec["seed"], tokens, candidates)
            asked = {"q": _choice(stream, candidates)}
            bodies.append(request_body(fill(stream, tokens, counter.text), asked))
    return bodies


GENERATORS: Mapping[str, Callable[[Mapping[str, Any], PromptCounter, Path], list[Json]]] = {
    "noul": _noul,
    "repeat": _repeat,
    "mixed": _mixed,
    "example": _example,
    "wide": _wide,
}


def generate_all(names: Sequence[str], counter: PromptCounter, folder: Path = FOLDER) -> dict[str, Workload]:
    """Workloads by name."""
    return {name: generate(read_spec(name, folder), counter, folder) for name in names}


def check_hashes(generated: Mapping[str, Workload], tokenizer: str, folder: Path = FOLDER) -> None:
    """Raises ValueError where requests are not those whose hash the specification holds for `tokenizer`.

    A tokenizer that a specification does not know is not checked: its hash goes into the ledger only.
    """
    for name, workload in generated.items():
        known = read_spec(name, folder).get("requests_sha256", {}).get(tokenizer)
        if known is not None and known != workload.sha256:
            raise ValueError(
                f"{name}.json: requests_sha256 for {tokenizer}: found {workload.sha256}, allowed: {known}"
            )
