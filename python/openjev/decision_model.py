"""A loaded decision model, and the stages that every request goes through.

prepare (validate, render, tokenize, check limits: no compute) -> execute (one engine call for a batch of
requests) -> finish (calibrate, format). The server runs the same three stages; ``decide`` runs them in a
row.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from openjev.answers import Answer, Decision, Usage, answer_question
from openjev.contract import (
    DEFAULT_LIMITS,
    MAX_ISSUES,
    Choice,
    DecisionRequest,
    Json,
    Limits,
    Noul,
    Question,
    Score,
    parse_request,
    wire_question,
)
from openjev.errors import (
    BadRequestError,
    CheckpointError,
    InternalError,
    Issue,
    LimitError,
    RequestError,
    UnsupportedRequestError,
)
from openjev.json_value import quote
from openjev.model_info import describe
from openjev.native import Engine
from openjev.prompts import CUA_MAX_LENGTH, LETTERS, CuaS1Prompts, OpenJevPrompts, PromptFamily
from openjev.tokens import TokenizedRequest, Tokenizer

Logits: TypeAlias = NDArray[np.float32]
QuestionLike: TypeAlias = Question | Mapping[str, Any]
RequestLike: TypeAlias = DecisionRequest | Mapping[str, Any]


_GIB = 2**30


@dataclass(frozen=True)
class Prepared:
    """A request ready for the engine.

    ``slices[i]`` are the engine rows (prompts) of question i; ``timings`` are seconds by step.
    """

    request: DecisionRequest
    tokenized: TokenizedRequest
    slices: tuple[slice, ...]
    timings: Mapping[str, float]

    @property
    def tokens(self) -> NDArray[np.int32]:
        """int32 [input_tokens], all prompts one after the other; made on first use."""
        return self.tokenized.tokens

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 [prompts + 1]."""
        return self.tokenized.offsets

    @property
    def prompts(self) -> int:
        """Rows of logits that the engine returns for this request."""
        return self.slices[-1].stop if self.slices else 0

    @property
    def input_tokens(self) -> int:
        """Tokens of all complete prompts, as ``usage`` reports them."""
        return self.tokenized.input_tokens

    @property
    def rows(self) -> int:
        """Upper bound of the token rows the engine computes with shared prefixes: what the request costs."""
        return self.tokenized.rows


class DecisionModel:
    """An engine with the tokenizer and prompts of its checkpoint. Get one from :func:`openjev.load`.

    Safe to use from several threads: preparing and finishing run side by side, engine calls one at a time.

    Args:
        engine: scores token ids; its ``info`` says which readout, wrapper, temperature and limit it has.
        tokenizer: of the same checkpoint.
        names: what requests may call the model; the first is the one that answers carry.
        caveat: why the answers are not to be relied on; empty: no reason is known.
        max_length: tokens of one prompt, at most the checkpoint's; 0 takes the checkpoint's.
        limits: what one request may hold.
        accept_any_model: ignore the name a request gives.
        share_prefixes: compute a prefix that prompts have in common once; answers are the same either way.
        batch_tokens: rows of one engine call of :meth:`decide_many`.

    Raises:
        LimitError: ``max_length`` exceeds the checkpoint's.
        CheckpointError: the tokenizer does not belong to the engine's checkpoint.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        names: Sequence[str] = ("decision-model", "jev-latest"),
        caveat: str = "",
        max_length: int = 0,
        limits: Limits = DEFAULT_LIMITS,
        accept_any_model: bool = False,
        share_prefixes: bool = True,
        batch_tokens: int = 8192,
    ) -> None:
        info = engine.info
        self._engine = engine
        self._engine_turn = threading.Lock()
        self.tokenizer = tokenizer
        self._letters = info["readout"] == "letters"
        self.prompts = _family(info)
        self.limits = limits
        self.info = describe(
            info,
            names=names,
            caveat=caveat,
            family=self.prompts.name,
            max_length=max_length,
            ceiling=CUA_MAX_LENGTH if self._letters else None,
        )
        self._accept_any_model = accept_any_model
        self._share_prefixes = share_prefixes
        self._batch_tokens = batch_tokens
        self._extensions = self.info.extensions()
        _check_tokenizer(tokenizer, info)

    def prepare(self, request: RequestLike) -> Prepared:
        """Everything that can be known without compute. A ``DecisionRequest`` is taken as checked already.

        Raises:
            RequestError: with every fault; a prompt over ``info.max_length`` is never cut.
            UnsupportedRequestError: another model, images, box questions.
        """
        start = perf_counter()
        if not isinstance(request, DecisionRequest):
            request = parse_request(request, self.limits)
        self._check_model(request.model)
        issues = self.prompts.check(request)
        if issues:
            raise RequestError(issues)
        validated = perf_counter()
        rendered = self.prompts.render(request)
        rendering = perf_counter()
        tokenized = self.tokenizer.encode_request(rendered)
        self._check_lengths(request, tokenized.lengths)
        stops = accumulate((len(question.tails) for question in tokenized.questions), initial=0)
        slices = tuple(slice(begin, end) for begin, end in pairwise(stops))
        timings = {
            "validate": validated - start,
            "render": rendering - validated,
            "tokenize": perf_counter() - rendering,
        }
        return Prepared(request, tokenized, slices, timings)

    def execute(self, batch: Sequence[Prepared]) -> list[Logits]:
        """One engine call for all of ``batch``; float32 [prompts, k] logits for each request.

        A request's logits do not depend on what shares its batch. The interpreter lock is free meanwhile.
        """
        if not batch:
            return []
        if len(batch) == 1:
            tokens, offsets = batch[0].tokens, batch[0].offsets
        else:
            tokens = np.concatenate([prepared.tokens for prepared in batch])
            starts = accumulate((prepared.input_tokens for prepared in batch[:-1]), initial=0)
            shifted = [p.offsets[:-1] + start for p, start in zip(batch, starts, strict=True)]
            offsets = np.append(np.concatenate(shifted), np.int64(len(tokens)))
        with self._engine_turn:
            logits = self._engine.score(tokens, offsets, self._share_prefixes)
        stops = accumulate((prepared.prompts for prepared in batch), initial=0)
        return [logits[begin:end] for begin, end in pairwise(stops)]

    def finish(
        self, prepared: Prepared, logits: Logits, timings: Mapping[str, float] | None = None
    ) -> Decision:
        """Answers from the logits of :meth:`execute`; ``timings`` (seconds by stage) join the prepared ones.

        Raises:
            InternalError: a logit is not finite.
        """
        start = perf_counter()
        answers: dict[str, Answer] = {}
        for (name, question), rows in zip(prepared.request.questions.items(), prepared.slices, strict=True):
            try:
                answers[name] = self._answer(question, logits[rows])
            except InternalError as error:
                raise InternalError(f"question {quote(name)}: {error}") from error
        spent = {**prepared.timings, **(timings or {}), "finish": perf_counter() - start}
        usage = Usage(prepared.input_tokens)
        return Decision(self.info.name, answers, usage, spent, self._extensions)

    def decide(
        self, state: Json, questions: Mapping[str, QuestionLike], model: str | None = None
    ) -> Decision:
        """Answers ``questions`` about ``state``; typed questions or their wire form.

        Raises:
            RequestError, UnsupportedRequestError: see :meth:`prepare`.
        """
        return self.decide_many([{"state": state, "questions": questions, "model": model}])[0]

    def decide_many(self, requests: Sequence[RequestLike]) -> list[Decision]:
        """Answers each request, in order, in as few engine calls as ``batch_tokens`` allows.

        Nothing is computed unless every request is right. Equal to :meth:`decide` of each, bit for bit.

        Raises:
            RequestError: ``loc`` of its issues has the index of the request after "body", if there are
            several.
        """
        prepared = [self._prepare_one(i, request, len(requests)) for i, request in enumerate(requests)]
        decisions = []
        for batch in self._batches(prepared):
            start = perf_counter()
            logits = self.execute(batch)
            spent = {"engine": perf_counter() - start}
            decisions += [self.finish(p, rows, spent) for p, rows in zip(batch, logits, strict=True)]
        return decisions

    def score(self, token_ids: Sequence[Sequence[int]]) -> Logits:
        """float32 [n, k] logits of n token sequences, without prompts or calibration.

        Raises:
            BadRequestError: a sequence is empty or has an id outside the vocabulary.
            LimitError: a sequence is longer than ``info.max_length``.
        """
        lengths = [len(ids) for ids in token_ids]
        if not lengths:
            return np.empty((0, self.info.outputs), np.float32)
        for i, length in enumerate(lengths):
            if length == 0:
                raise BadRequestError(f"token_ids[{i}]: found 0 tokens, at least 1 is needed")
            if length > self.info.max_length:
                limit = self.info.max_length
                raise LimitError(f"token_ids[{i}]: found {length} tokens, at most {limit} allowed")
        flat = np.fromiter(chain.from_iterable(token_ids), np.int64, sum(lengths))
        outside = np.flatnonzero((flat < 0) | (flat >= self.info.vocab_size))
        if outside.size:
            found, last = flat[outside[0]], self.info.vocab_size - 1
            raise BadRequestError(f"token_ids: found id {found}, allowed are 0 to {last}")
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        with self._engine_turn:
            return self._engine.score(flat.astype(np.int32), offsets, self._share_prefixes)

    def warm_up(self, progress: Callable[[int, int, str], None] | None = None) -> None:
        """Prepares the engine for every prompt length, and runs one small request through all stages.

        On a GPU this measures matrix products (once a machine: the result is kept in a file) and records
        the passes of bucketed lengths. progress(steps done, steps in all, what).
        """
        self._engine.warm_up(progress=progress)
        self.decide("Hello.", {"warm": Choice("Is this a greeting?", {"Yes": None, "No": None})})

    def idle(self) -> bool:
        """Does one piece of work that is better done between requests; False when there is none."""
        return self._engine.record_missed()

    def graph_stats(self) -> Mapping[str, int]:
        """Recorded passes of the device: hits, misses, captures, evictions, fallbacks, entries, bytes."""
        return self._engine.graph_stats()

    def memory(self) -> Mapping[str, int]:
        """Device bytes, free and total, and the plan made before loading; zeros on the CPU."""
        return self._engine.memory()

    def memory_text(self) -> str:
        """One line for people: the memory plan of the device and what is free now; empty on the CPU."""
        memory = self.memory()
        if not memory["total"]:
            return ""
        planned = ", ".join(
            f"{what} {memory['planned_' + what] / _GIB:.2f}" for what in ("weights", "workspace", "graphs")
        )
        free, before, total = (memory[name] / _GIB for name in ("free", "free_before", "total"))
        return f"{planned} GiB planned; {before:.2f} of {total:.2f} GiB were free, {free:.2f} are now"

    def stats(self) -> Mapping[str, Any]:
        """The engine's counters: calls, sequences, tokens, rows, seconds."""
        return self._engine.stats()

    def _answer(self, question: Question, logits: Logits) -> Answer:
        if self._letters:
            options = len(question.options) if isinstance(question, Choice) else 0
            return answer_question(question, logits[0, :options].tolist(), report_entropy=True)
        return answer_question(question, logits[:, 0].tolist(), self.info.temperature or 1.0)

    def _check_model(self, name: str | None) -> None:
        if name is None or self._accept_any_model or name in (self.info.name, *self.info.aliases):
            return
        known = ", ".join((self.info.name, *self.info.aliases))
        raise UnsupportedRequestError(f"Unknown model: {quote(name)}; served here: {known}")

    def _check_lengths(self, request: DecisionRequest, lengths: tuple[tuple[int, ...], ...]) -> None:
        limit = self.info.max_length
        if max(map(max, lengths)) <= limit:
            return
        issues = []
        for (name, question), tokens in zip(request.questions.items(), lengths, strict=True):
            longest = max(tokens)
            if longest > limit:
                where, what = _candidate(question, tokens.index(longest), self._letters)
                issues.append(
                    Issue(
                        ("body", "questions", name, *where),
                        f"the prompt for question {quote(name)}{what} has {longest} tokens, "
                        f"at most {limit} are allowed",
                        "max_tokens_exceeded",
                        ctx={"tokens": longest, "limit": limit},
                    )
                )
        raise RequestError(issues[:MAX_ISSUES])

    def _prepare_one(self, index: int, request: RequestLike, count: int) -> Prepared:
        try:
            return self.prepare(parse_request(_wire_request(request), self.limits))
        except RequestError as error:
            if count == 1:
                raise
            issues = [dataclasses.replace(i, loc=("body", index, *i.loc[1:])) for i in error.issues]
            raise RequestError(issues) from error

    def _batches(self, prepared: Sequence[Prepared]) -> list[list[Prepared]]:
        batches: list[list[Prepared]] = []
        rows = 0
        for request in prepared:
            if batches and rows + request.rows <= self._batch_tokens:
                batches[-1].append(request)
                rows += request.rows
            else:
                batches.append([request])
                rows = request.rows
        return batches


def _family(info: Mapping[str, Any]) -> PromptFamily:
    if info["readout"] == "scalar":
        return OpenJevPrompts(info["prompt_prefix"], info["prompt_suffix"])
    if info["readout"] == "letters":
        return CuaS1Prompts(info["outputs"])
    raise CheckpointError(f"readout.kind: found {info['readout']!r}, allowed: scalar, letters")


def _check_tokenizer(tokenizer: Tokenizer, info: Mapping[str, Any]) -> None:
    if tokenizer.vocab_size > info["vocab_size"]:
        raise CheckpointError(
            f"{tokenizer.path}: found {tokenizer.vocab_size} tokens, at most {info['vocab_size']} allowed "
            "(the embedding rows of this checkpoint)"
        )
    if info["readout"] == "letters":
        for letter, wanted in zip(LETTERS, info["token_ids"], strict=False):
            found = tokenizer.encode(letter).tolist()
            if found != [wanted]:
                raise CheckpointError(
                    f"{tokenizer.path}: letter {letter} encodes as {found}, the readout expects [{wanted}]"
                )


def _candidate(question: Question, index: int, letters: bool) -> tuple[tuple[str | int, ...], str]:
    """Where candidate ``index`` lies under its question, and its name for a message."""
    if letters or isinstance(question, Noul):
        return (), ""
    if isinstance(question, Choice):
        name = list(question.options)[index]
        return ("criteria", name), f", option {quote(name)},"
    return ("criteria", index), f", level {index},"


def _wire_request(request: RequestLike) -> Any:
    """The dict form, so that typed requests are checked like any other."""
    if isinstance(request, DecisionRequest):
        request = {"state": request.state, "questions": request.questions, "model": request.model}
    questions = request.get("questions") if isinstance(request, Mapping) else None
    if not isinstance(questions, Mapping):
        return request
    plain = {
        name: wire_question(question) if isinstance(question, Noul | Choice | Score) else question
        for name, question in questions.items()
    }
    return {**request, "questions": plain}
