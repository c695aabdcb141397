"""From typed questions to prompt texts, one family for each way of reading a decision off the model.

A prompt is a sequence of pieces. Pieces that several prompts of a request share are the same text, so the
tokenizer encodes them once. Every cut between two pieces lies after a line feed and before an ASCII letter;
see tokens.py for why ids of pieces may then be joined.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from openjev.contract import Choice, DecisionRequest, Json, Noul, Question, Score
from openjev.errors import Issue


class Piece(NamedTuple):
    """A run of prompt text. ``wrapper`` text is ours and constant; the rest may hold the caller's words."""

    text: str
    wrapper: bool = False


Pieces: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True)
class RenderedQuestion:
    """The prompts of one question: ``stem`` followed by each of ``tails``."""

    stem: Pieces
    tails: tuple[Pieces, ...]


@dataclass(frozen=True)
class RenderedRequest:
    """All prompts of a request: ``head``, then a question's stem, then one of its tails.

    ``cuttable`` is false if the cut after the first piece is not of the safe kind (a chat prefix that does
    not end in a line feed); the tokenizer then encodes whole prompts.
    """

    head: Pieces
    questions: tuple[RenderedQuestion, ...]
    cuttable: bool = True

    def prompts(self) -> Iterator[str]:
        """The complete prompts, in the order of the engine's rows."""
        for question in self.questions:
            for tail in question.tails:
                yield "".join(piece.text for piece in (*self.head, *question.stem, *tail))


class PromptFamily(Protocol):
    """How a kind of checkpoint is asked."""

    @property
    def name(self) -> str: ...

    def check(self, request: DecisionRequest) -> list[Issue]:
        """What this family refuses beyond the contract; empty if nothing."""

    def render(self, request: DecisionRequest) -> RenderedRequest:
        """The prompts of a request that ``check`` accepts."""


class OpenJevPrompts:
    """Open-Jev: one prompt for each candidate, which the model judges on its own; readout "scalar".

    ``prefix`` and ``suffix`` are the checkpoint's chat wrapper. Its "strip" flag needs no code here: every
    prompt starts with "Context:" and ends with a full stop, so there is nothing to strip.
    """

    name = "open-jev"

    def __init__(self, prefix: str, suffix: str) -> None:
        self._prefix = Piece(prefix, wrapper=True)
        self._noul_end = Piece(f"Is the answer to this question yes? Answer Yes or No.{suffix}", wrapper=True)
        self._end = Piece(f"Is this proposed answer correct? Answer Yes or No.{suffix}", wrapper=True)
        self._cuttable = not prefix or prefix.endswith("\n")

    def check(self, request: DecisionRequest) -> list[Issue]:
        return []

    def render(self, request: DecisionRequest) -> RenderedRequest:
        head = (self._prefix, Piece(f"Context:\n{_sorted_text(request.state)}\n\n"))
        questions = tuple(self._render_question(question) for question in request.questions.values())
        return RenderedRequest(head, questions, self._cuttable)

    def _render_question(self, question: Question) -> RenderedQuestion:
        stem = (Piece(f"Question: {_question_text(question)}\n"),)
        if isinstance(question, Noul):
            return RenderedQuestion(stem, ((self._noul_end,),))
        if isinstance(question, Choice):
            texts = [
                name if description is None else f"{name}: {_sorted_text(description)}"
                for name, description in question.options.items()
            ]
        else:
            texts = [_sorted_text(level) for level in question.levels]
        tails = tuple((Piece(f"Proposed answer: {text}\n"), self._end) for text in texts)
        return RenderedQuestion(stem, tails)


def _question_text(question: Question) -> str:
    instructions = question.instructions
    lines = [] if instructions is None else [_sorted_text(instructions)]
    if isinstance(question, Noul):
        if question.true is not None:
            lines.append(f"Yes means: {_sorted_text(question.true)}")
        if question.false is not None:
            lines.append(f"No means: {_sorted_text(question.false)}")
    return "\n".join(lines)


def _sorted_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _ordered_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


LETTERS = string.ascii_uppercase
CUA_MAX_QUESTIONS = 64
CUA_MAX_LENGTH = 16384

# The system message that Cua-S1 was trained with, from trycua/cua (libs/cua-s1).
# Copyright (c) Cua AI, Inc. MIT License: this notice must stay with the text.
CUA_SYSTEM = (
    "You are a one-pass computer-use decision model. You are shown the current state of a screen and a "
    "fixed, closed list of candidate (element, action) options, each given a single letter. "
    "Choose exactly one option: the single best next action to take. "
    "Answer with ONLY that option's letter -- no words, no punctuation, no explanation."
)


class CuaS1Prompts:
    """Cua-S1: one prompt for each question, its options lettered A to Z; readout "letters".

    The chat wrapper is part of the family: the messages and the open thinking block are what it was trained
    on. Unlike Open-Jev, keys of objects stay in request order.
    """

    name = "cua-s1"

    _HEAD = (Piece(f"<|im_start|>system\n{CUA_SYSTEM}<|im_end|>\n<|im_start|>user\n", wrapper=True),)
    _TAIL = (Piece("Answer with a single letter.<|im_end|>\n<|im_start|>assistant\n<think>\n", wrapper=True),)

    def __init__(self, max_options: int = len(LETTERS)) -> None:
        self._max_options = min(max_options, len(LETTERS))

    def check(self, request: DecisionRequest) -> list[Issue]:
        issues = []
        if not request.state:
            issues.append(Issue(("body", "state"), "must not be empty for this model", "value_error"))
        count = len(request.questions)
        if count > CUA_MAX_QUESTIONS:
            msg = f"too many questions for this model: at most {CUA_MAX_QUESTIONS}, found {count}"
            ctx = {"max_length": CUA_MAX_QUESTIONS, "actual_length": count}
            issues.append(Issue(("body", "questions"), msg, "too_long", ctx=ctx))
            return issues
        for name, question in request.questions.items():
            issue = self._check_question(name, question)
            if issue is not None:
                issues.append(issue)
        return issues

    def _check_question(self, name: str, question: Question) -> Issue | None:
        if not isinstance(question, Choice):
            kind = "score" if isinstance(question, Score) else "noul"
            msg = f"{kind} questions are not supported by this model, only choice"
            return Issue(("body", "questions", name, "type"), msg, "unsupported_type", kind)
        count = len(question.options)
        if count > self._max_options:
            msg = f"too many options in question '{name}': at most {self._max_options}, found {count}"
            ctx = {"max_length": self._max_options, "actual_length": count}
            return Issue(("body", "questions", name, "criteria"), msg, "too_long", ctx=ctx)
        return None

    def render(self, request: DecisionRequest) -> RenderedRequest:
        screen = Piece(
            "App: Cua Driver\nTask family: closed-candidate decision\n\n"
            f"Accessibility tree:\n{_ordered_text(request.state)}\n\n"
        )
        questions = tuple(self._render_question(screen, question) for question in request.questions.values())
        return RenderedRequest(self._HEAD, questions)

    def _render_question(self, screen: Piece, question: Question) -> RenderedQuestion:
        goal = "" if question.instructions is None else _ordered_text(question.instructions)
        goal_pieces = (Piece(f"Goal: {goal}\n\n"),) if goal else ()
        options = question.options if isinstance(question, Choice) else {}
        lines = [
            f'{letter}. Decision "{_quoted(name if label is None else _ordered_text(label))}" -> select\n'
            for letter, (name, label) in zip(LETTERS, options.items(), strict=False)
        ]
        stem = (*goal_pieces, screen, Piece("Options:\n" + "".join(lines) + "\n"))
        return RenderedQuestion(stem, (self._TAIL,))


def _quoted(label: str) -> str:
    """The label as it stands between the quotes of a JSON string."""
    return json.dumps(label, ensure_ascii=False)[1:-1]
