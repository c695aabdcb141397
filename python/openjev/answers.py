"""From logits to typed answers: calibrated probabilities, expected score and the official confidence.

All arithmetic is float64 on the engine's float32 logits and nothing is rounded. Sums are exactly rounded
(``math.fsum``), so the order of options never moves a probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from openjev.contract import Choice, Noul, Question, Score
from openjev.errors import InternalError
from openjev.json_value import Json


@dataclass(frozen=True)
class NoulAnswer:
    """``noul`` is the probability of yes."""

    noul: float

    def to_dict(self) -> dict[str, Any]:
        """The wire form: exactly ``type`` and ``noul``."""
        return {"type": "noul", "noul": self.noul}


@dataclass(frozen=True)
class ChoiceAnswer:
    """``choice`` is the most probable option (the first of equals); ``probabilities`` is in request order.

    ``confidence`` is 0 for a uniform distribution and 1 for a certain one. ``entropy_confidence`` is set for
    models whose authors report 1 - H(p)/ln n instead.
    """

    choice: str
    probabilities: Mapping[str, float]
    confidence: float
    entropy_confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The wire form."""
        wire: dict[str, Any] = {
            "type": "choice",
            "choice": self.choice,
            "probabilities": dict(self.probabilities),
            "confidence": self.confidence,
        }
        if self.entropy_confidence is not None:
            wire["x_entropy_confidence"] = self.entropy_confidence
        return wire


@dataclass(frozen=True)
class ScoreAnswer:
    """``score`` is the expected level, 0 to n-1; ``probabilities[i]`` belongs to ``levels[i]``."""

    score: float
    levels: Sequence[Json]
    probabilities: Sequence[float]
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """The wire form: ``legend`` and ``probabilities`` are keyed by position, "0" to "n-1"."""
        return {
            "type": "score",
            "score": self.score,
            "legend": {str(i): level for i, level in enumerate(self.levels)},
            "probabilities": {str(i): p for i, p in enumerate(self.probabilities)},
            "confidence": self.confidence,
        }


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer


@dataclass(frozen=True)
class Usage:
    """``input_tokens`` counts every complete candidate prompt, shared or not; nothing is generated."""

    input_tokens: int
    output_tokens: int = 0

    def to_dict(self) -> dict[str, int]:
        """The wire form."""
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}


@dataclass(frozen=True)
class Decision(Mapping[str, Answer]):
    """The answers by question id, in the order asked.

    ``timings`` are seconds by stage and not part of the wire form; ``extensions`` becomes ``x_openjev``.
    """

    model: str
    answers: Mapping[str, Answer]
    usage: Usage
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    extensions: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, question_id: str) -> Answer:
        return self.answers[question_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """The body of a 200 answer of ``POST /v1/systemone``; equal requests give equal dicts."""
        return {
            "model": self.model,
            "answers": {name: answer.to_dict() for name, answer in self.answers.items()},
            "usage": self.usage.to_dict(),
            "x_openjev": dict(self.extensions),
        }


def answer_question(
    question: Question, logits: Sequence[float], temperature: float = 1.0, *, report_entropy: bool = False
) -> Answer:
    """The calibrated answer to one question.

    ``logits`` holds one finite value for each option or level in request order; a noul has the one value z of
    "yes" against 0 for "no". ``temperature`` divides the logits before the softmax, which always spans
    the whole question.

    Raises:
        InternalError: a logit is not finite, or their number does not fit the question.
    """
    expected = _outcomes(question)
    if len(logits) != expected or not all(map(math.isfinite, logits)):
        found = list(logits)[:8]
        raise InternalError(f"logits: expected {expected} finite values, found {len(logits)}: {found}")
    if isinstance(question, Noul):
        return NoulAnswer(softmax((0.0, logits[0]), temperature)[1])
    p = softmax(logits, temperature)
    if isinstance(question, Choice):
        names = list(question.options)
        return ChoiceAnswer(
            choice=names[p.index(max(p))],
            probabilities=dict(zip(names, p, strict=True)),
            confidence=choice_confidence(p),
            entropy_confidence=entropy_confidence(p) if report_entropy else None,
        )
    return ScoreAnswer(
        score=math.fsum(i * p_i for i, p_i in enumerate(p)),
        levels=question.levels,
        probabilities=p,
        confidence=score_confidence(p),
    )


def _outcomes(question: Question) -> int:
    if isinstance(question, Score):
        return len(question.levels)
    return len(question.options) if isinstance(question, Choice) else 1


def softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    """exp(l_i / T) / sum_j exp(l_j / T), shifted by the maximum so that nothing overflows."""
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def choice_confidence(p: Sequence[float]) -> float:
    """(m - 1/n) / (1 - 1/n) with m = max p; 1 when n = 1."""
    n = len(p)
    if n == 1:
        return 1.0
    return max(0.0, (max(p) - 1 / n) / (1 - 1 / n))  # max: a uniform p can lie one ulp under 1/n


def score_confidence(p: Sequence[float]) -> float:
    """max(0, 1 - sum_i p_i |i - k| / D), k = first argmax, D = (1/n) sum_i |i - (n-1)/2|; 1 when n = 1."""
    n = len(p)
    if n == 1:
        return 1.0
    k = p.index(max(p))
    spread = math.fsum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1 - math.fsum(p_i * abs(i - k) for i, p_i in enumerate(p)) / spread)


def entropy_confidence(p: Sequence[float]) -> float:
    """1 - H(p) / ln n with H = -sum p ln p; 1 when n = 1."""
    n = len(p)
    if n == 1:
        return 1.0
    entropy = -math.fsum(p_i * math.log(p_i) for p_i in p if p_i > 0)
    return min(1.0, max(0.0, 1 - entropy / math.log(n)))
