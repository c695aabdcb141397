"""What probabilities are worth: accuracy, Brier score, expected calibration error, reliability bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjev import answers

Floats = NDArray[np.float64]
BINS = 15


def softmax(logits: Sequence[float] | Floats, temperature: float = 1.0) -> Floats:
    """Probabilities of one question's logits, float64 like them: the numbers that an answer reports."""
    return np.array(answers.softmax(np.asarray(logits, np.float64).tolist(), temperature))


def brier(probabilities: Sequence[Floats], targets: Sequence[int]) -> float:
    """Mean over questions of the squared distance to the one-hot answer, summed over candidates (0 to 2)."""
    total = 0.0
    for p, target in zip(probabilities, targets, strict=True):
        total += float((p * p).sum() - 2 * p[target] + 1)
    return total / len(targets)


def reliability(
    probabilities: Sequence[Floats], targets: Sequence[int], bins: int = BINS
) -> list[dict[str, Any]]:
    """By equal ranges of the top probability: how many questions, its mean, and the share answered rightly.
    A range without questions is left out; its upper end belongs to it."""
    top = np.array([p.max() for p in probabilities])
    right = np.array([int(p.argmax()) == target for p, target in zip(probabilities, targets, strict=True)])
    place = np.clip(np.ceil(top * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for position in range(bins):
        inside = place == position
        if inside.any():
            found.append(
                {
                    "low": position / bins,
                    "high": (position + 1) / bins,
                    "count": int(inside.sum()),
                    "confidence": float(top[inside].mean()),
                    "accuracy": float(right[inside].mean()),
                }
            )
    return found


def calibration_error(bins: Sequence[dict[str, Any]]) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, weighted by count."""
    total = sum(part["count"] for part in bins)
    return float(sum(part["count"] * abs(part["confidence"] - part["accuracy"]) for part in bins) / total)


def score_error(probabilities: Sequence[Floats], targets: Sequence[int]) -> float:
    """Mean absolute error in levels of the expected level, which is what a score answer reports."""
    gaps = [
        abs(float(p @ np.arange(len(p))) - target) for p, target in zip(probabilities, targets, strict=True)
    ]
    return float(np.mean(gaps))


def summary(
    logits: Sequence[Floats],
    kinds: Sequence[str],
    domains: Sequence[str],
    targets: Sequence[int],
    temperature: float,
) -> dict[str, Any]:
    """All figures of a set of questions. A noul's logits are [0, s]."""
    before = [softmax(one) for one in logits]
    after = [softmax(one, temperature) for one in logits]
    right = [int(p.argmax()) == target for p, target in zip(after, targets, strict=True)]

    def accuracy(wanted: Sequence[bool]) -> dict[str, Any]:
        chosen = [hit for hit, use in zip(right, wanted, strict=True) if use]
        return {"questions": len(chosen), "accuracy": float(np.mean(chosen)) if chosen else None}

    scores = [i for i, kind in enumerate(kinds) if kind == "score"]
    bins = reliability(after, targets)
    return {
        "questions": len(targets),
        "temperature": temperature,
        "accuracy": float(np.mean(right)),
        "noul_and_choice": accuracy([kind != "score" for kind in kinds]),
        "by_type": {kind: accuracy([k == kind for k in kinds]) for kind in sorted(set(kinds))},
        "by_domain": {name: accuracy([d == name for d in domains]) for name in sorted(set(domains))},
        "brier": {"before": brier(before, targets), "after": brier(after, targets)},
        "ece": {"before": calibration_error(reliability(before, targets)), "after": calibration_error(bins)},
        "score_mae": score_error([after[i] for i in scores], [targets[i] for i in scores])
        if scores
        else None,
        "reliability": bins,
    }


def negative_log_likelihood(
    logits: Sequence[Floats], targets: Sequence[int], temperature: float = 1.0
) -> float:
    """Mean over questions of -log p of the right candidate, logits divided by `temperature`."""
    return _mean_loss(_padded(logits), targets, temperature)


def _padded(logits: Sequence[Floats]) -> Floats:
    """A table with a row a question, -inf where there is no candidate."""
    table = np.full((len(logits), max(map(len, logits))), -np.inf)
    for row, one in zip(table, logits, strict=True):
        row[: len(one)] = one
    return table


def _mean_loss(table: Floats, targets: Sequence[int], temperature: float) -> float:
    scaled = table / temperature
    top = scaled.max(axis=1)
    total = np.log(np.exp(scaled - top[:, None]).sum(axis=1)) + top
    return float((total - scaled[np.arange(len(table)), targets]).mean())


def fit_temperature(logits: Sequence[Floats], targets: Sequence[int]) -> float:
    """The temperature in [0.25, 10] with the smallest mean negative log-likelihood, by golden section."""
    table = _padded(logits)

    def loss(log_temperature: float) -> float:
        return _mean_loss(table, targets, float(np.exp(log_temperature)))

    ratio = (np.sqrt(5) - 1) / 2
    low, high = np.log(0.25), np.log(10.0)
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))
