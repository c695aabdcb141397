"""Gates: declared in the plan as data, judged on the rows of a ledger alone.

Each verdict is "passed", "failed" or "not evaluated" (an arm did not get that far), with the figures found.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]

PASSED, FAILED, NOT_EVALUATED = "passed", "failed", "not evaluated"


class _MissingError(LookupError):
    """The rows that a gate needs were not measured."""


class Rows:
    """The arms and responses of a ledger, looked up by what a gate names."""

    def __init__(self, arms: Sequence[Row], responses: Mapping[str, Any]) -> None:
        self._arms = {arm["name"]: arm for arm in arms}
        self._responses = responses

    def arm(self, name: str) -> Row:
        if name not in self._arms:
            raise _MissingError(f"arm {name} was not run")
        return self._arms[name]

    def measurement(self, name: str, workload: str, concurrency: int) -> Row:
        """One with both passes."""
        for found in self.arm(name).get("measurements", []):
            if (found["workload"], found["concurrency"]) == (
                workload,
                concurrency,
            ) and "relative_range" in found:
                return dict(found)
        raise _MissingError(f"arm {name} has no complete {workload} at concurrency {concurrency}")

    def answers(self, name: str, workload: str, concurrency: int) -> dict[str, Row]:
        """The response of the first measured pass by request id."""
        first = self.measurement(name, workload, concurrency)["passes"][0]
        return {row["id"]: self._responses[row["response"]] for row in first["requests"]}


def mean_of(measurement: Row, figure: str) -> float:
    """The mean of a figure over both passes."""
    return statistics.fmean(one["figures"][figure] for one in measurement["passes"])


def evaluate(gates: Sequence[Row], arms: Sequence[Row], responses: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One verdict a gate, after one "completed" verdict an arm that was declared."""
    rows = Rows(arms, responses)
    verdicts = [_completed(arm) for arm in arms]
    for gate in gates:
        try:
            passed, found = _KINDS[gate["kind"]](gate, rows)
        except _MissingError as error:
            verdicts.append(_verdict(gate["name"], gate["kind"], NOT_EVALUATED, {"reason": str(error)}))
        else:
            verdicts.append(_verdict(gate["name"], gate["kind"], PASSED if passed else FAILED, found))
    return verdicts


def all_passed(verdicts: Sequence[Row]) -> bool:
    return all(verdict["verdict"] == PASSED for verdict in verdicts)


def _verdict(name: str, kind: str, verdict: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"gate": name, "kind": kind, "verdict": verdict, "found": dict(found)}


def _completed(arm: Row) -> dict[str, Any]:
    verdict = PASSED if arm["status"] == "completed" else FAILED
    found = {"status": arm["status"], "reason": arm["reason"]}
    return _verdict(f"{arm['name']} completed", "completed", verdict, found)


def _pair(gate: Row, rows: Rows) -> tuple[Row, Row]:
    where = gate["workload"], gate.get("concurrency", 1)
    return rows.measurement(gate["arm"], *where), rows.measurement(gate["control"], *where)


def _regression(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """Not slower than the control by more than the declared ratios."""
    arm, control = _pair(gate, rows)
    found = {
        "mean_ratio": mean_of(arm, "mean_ms") / mean_of(control, "mean_ms"),
        "p95_ratio": mean_of(arm, "p95_ms") / mean_of(control, "p95_ms"),
        "throughput_ratio": mean_of(arm, "requests_per_s") / mean_of(control, "requests_per_s"),
    }
    passed = (
        found["mean_ratio"] <= gate["mean_ratio"]
        and found["p95_ratio"] <= gate["p95_ratio"]
        and found["throughput_ratio"] >= gate["throughput_ratio"]
    )
    return passed, found


def _improvement(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """Better than the control by the declared gain, with pass ranges that do not meet.

    The gain of requests_per_s is arm / control - 1; that of a time is control / arm - 1: both say how much
    more is done in the same time.
    """
    arm, control = _pair(gate, rows)
    figure = gate["figure"]
    ours = [one["figures"][figure] for one in arm["passes"]]
    theirs = [one["figures"][figure] for one in control["passes"]]
    higher_is_better = figure.endswith("_per_s")
    gain = statistics.fmean(ours) / statistics.fmean(theirs)
    gain = (gain if higher_is_better else 1 / gain) - 1
    disjoint = min(ours) > max(theirs) if higher_is_better else max(ours) < min(theirs)
    found = {"gain": gain, "disjoint": disjoint, "arm": ours, "control": theirs}
    return gain >= gate["minimum_gain"] and disjoint, found


def _parity_exact(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """The same JSON, timing fields aside, request by request."""
    ours, theirs = _both_answers(gate, rows)
    different = sorted(name for name in ours if ours[name] != theirs[name])
    return not different, {"requests": len(ours), "different": len(different), "first": different[:3]}


def _parity_probabilities(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """The largest difference of a probability, and how many decisions flip."""
    ours, theirs = _both_answers(gate, rows)
    largest, flips, decisions = 0.0, 0, 0
    for name in ours:
        for mine, other in _answer_pairs(ours[name], theirs[name]):
            decisions += 1
            p, q = probabilities(mine), probabilities(other)
            if p.keys() != q.keys():
                return False, {"request": name, "reason": "the answers have other options"}
            largest = max(largest, *(abs(p[key] - q[key]) for key in p))
            flips += max(p, key=p.__getitem__) != max(q, key=q.__getitem__)
    passed = largest <= gate["max_difference"] and flips <= gate["max_flips"]
    return passed, {"decisions": decisions, "largest_difference": largest, "flips": flips}


def _both_answers(gate: Row, rows: Rows) -> tuple[dict[str, Row], dict[str, Row]]:
    where = gate["workload"], gate.get("concurrency", 1)
    return rows.answers(gate["arm"], *where), rows.answers(gate["control"], *where)


def _answer_pairs(ours: Row, theirs: Row) -> Iterator[tuple[Row, Row]]:
    for name, answer in ours["answers"].items():
        yield answer, theirs["answers"][name]


def probabilities(answer: Row) -> dict[str, float]:
    """By option; a noul's are "true" and "false"."""
    if answer["type"] == "noul":
        return {"true": answer["noul"], "false": 1 - answer["noul"]}
    return dict(answer["probabilities"])


def _same_answers(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """Every pass at every concurrency gave each request the same response."""
    seen: dict[str, set[str]] = {}
    for measurement in rows.arm(gate["arm"]).get("measurements", []):
        for one in measurement["passes"]:
            for row in one["requests"]:
                seen.setdefault(row["id"], set()).add(row["response"])
    if not seen:
        raise _MissingError(f"arm {gate['arm']} has no measured pass")
    varying = sorted(name for name, responses in seen.items() if len(responses) > 1)
    return not varying, {"requests": len(seen), "varying": len(varying), "first": varying[:3]}


def _errors(gate: Row, rows: Rows) -> tuple[bool, Row]:
    """The error runs were answered as allowed."""
    errors = rows.arm(gate["arm"]).get("errors", [])
    if not errors:
        raise _MissingError(f"arm {gate['arm']} has no error runs")
    return all(row["as_expected"] for row in errors), {row["case"]: row["status"] for row in errors}


_KINDS: Mapping[str, Callable[[Row, Rows], tuple[bool, Row]]] = {
    "regression": _regression,
    "improvement": _improvement,
    "parity-exact": _parity_exact,
    "parity-probabilities": _parity_probabilities,
    "same-answers": _same_answers,
    "errors": _errors,
}
