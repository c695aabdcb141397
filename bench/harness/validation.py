"""Checks a ledger against itself: schema, hashes, and every figure and verdict computed again.

What this shows: the file is whole and its conclusions follow from its rows. That the rows were measured as
the plan says cannot be seen in a file; repeat the run for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.harness import ledger as ledgers
from bench.harness import plan
from bench.harness.hashing import digest
from bench.harness.latency import figures, ranges

_TOLERANCE = 1e-9


def faults(ledger: Any) -> list[str]:
    """What is wrong with a ledger, each as "place: found, allowed"; empty: nothing."""
    broken = plan.first_fault(ledger, plan.schema("ledger"))
    if broken:
        return [broken]
    try:
        plan.check(ledger["plan"])
    except plan.PlanError as error:
        return [f"plan: {error}"]
    return [fault for check in _CHECKS for fault in check(ledger)]


def _hashes(ledger: Mapping[str, Any]) -> Iterator[str]:
    expected = {
        "plan_sha256": plan.sha256(ledger["plan"]),
        "rows_sha256": ledgers.rows_sha256(ledger),
        "sha256": ledgers.own_sha256(ledger),
    }
    for name, value in expected.items():
        if ledger[name] != value:
            yield f"{name}: found {ledger[name]}, computed {value}"
    for name, response in ledger["responses"].items():
        if digest(response) != name:
            yield f"responses.{name}: its content has the hash {digest(response)}"


def _declared(ledger: Mapping[str, Any]) -> Iterator[str]:
    """Only what the plan declares was run, in its order, and all of it in a complete ledger."""
    for kind in ("arms", "native"):
        declared = [one["name"] for one in ledger["plan"][kind]]
        found = [row["name"] for row in ledger[kind]]
        whole = ledger["status"] == "complete"
        if found != (declared if whole else declared[: len(found)]):
            yield f"{kind}: found {found}, declared {declared}"
    if set(ledger["workloads"]) != set(ledger["plan"]["workloads"]):
        yield f"workloads: found {sorted(ledger['workloads'])}, declared {ledger['plan']['workloads']}"
    if ledger["experiment"] != ledger["plan"]["experiment"]:
        yield f"experiment: found {ledger['experiment']}, declared {ledger['plan']['experiment']}"
    arms = {arm["name"]: arm for arm in ledger["plan"]["arms"]}
    for row in ledger["arms"]:
        if row["name"] not in arms:
            continue
        cells = plan.cells(ledger["plan"], arms[row["name"]])
        found = [(one["workload"], one["concurrency"]) for one in row["measurements"]]
        if found != (cells if row["status"] == "completed" else cells[: len(found)]):
            yield f"arms.{row['name']}: found measurements {found}, declared {cells}"


def _rows(ledger: Mapping[str, Any]) -> Iterator[str]:
    """Each pass has each request once, with a response that is there, and the figures of its latencies."""
    for arm in ledger["arms"]:
        for measurement in arm["measurements"]:
            place = f"arms.{arm['name']}.{measurement['workload']}@{measurement['concurrency']}"
            asked = ledger["workloads"].get(measurement["workload"], {}).get("requests", [])
            for one in measurement["passes"]:
                yield from _pass(f"{place}.pass {one['pass']}", one, asked, ledger["responses"])
            numbers = [one["pass"] for one in measurement["passes"]]
            whole = arm["status"] == "completed" or "relative_range" in measurement
            if numbers != ([1, 2] if whole else [1, 2][: len(numbers)]):
                yield f"{place}: found passes {numbers}, allowed: 1 and 2"
            elif whole:
                yield from _ranges(place, measurement)


def _pass(
    place: str, one: Mapping[str, Any], asked: list[Mapping[str, Any]], responses: Mapping[str, Any]
) -> Iterator[str]:
    ids = [row["id"] for row in one["requests"]]
    if ids != [request["id"] for request in asked]:
        yield f"{place}: its requests are not those of the workload, each once and in order"
        return
    for row in one["requests"]:
        if row["response"] not in responses:
            yield f"{place}.{row['id']}: its response {row['response']} is not in responses"
    latencies = [row["ms"] for row in one["requests"]]
    expected = figures(latencies, [request["questions"] for request in asked], one["wall_s"])
    yield from _differences(f"{place}.figures", one["figures"], expected)
    if max(latencies) > 1e3 * one["wall_s"] * (1 + 1e-3) + 1:
        yield f"{place}: found a latency of {max(latencies)} ms in a pass of {one['wall_s']} s"


def _ranges(place: str, measurement: Mapping[str, Any]) -> Iterator[str]:
    expected = ranges([one["figures"] for one in measurement["passes"]])
    if "relative_range" not in measurement:
        yield f"{place}.relative_range: not there"
    else:
        yield from _differences(f"{place}.relative_range", measurement["relative_range"], expected)


def _differences(place: str, found: Mapping[str, float], expected: Mapping[str, float]) -> Iterator[str]:
    for name, value in expected.items():
        if not math.isclose(found[name], value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            yield f"{place}.{name}: found {found[name]}, computed {value}"


def _memory(ledger: Mapping[str, Any]) -> Iterator[str]:
    for arm in ledger["arms"]:
        memory = arm.get("memory")
        if memory is not None and memory["peak_mib"] != (max(memory["mib"]) if memory["mib"] else None):
            yield f"arms.{arm['name']}.memory.peak_mib: found {memory['peak_mib']}, not the largest sample"


def _error_rows(ledger: Mapping[str, Any]) -> Iterator[str]:
    for arm in ledger["arms"]:
        for row in arm["errors"]:
            low, high = row["allowed"]
            if row["as_expected"] != (low <= row["status"] <= high):
                yield f"arms.{arm['name']}.errors.{row['case']}: as_expected does not follow from its status"


def _verdicts(ledger: Mapping[str, Any]) -> Iterator[str]:
    try:
        expected = ledgers.judge(dict(ledger))
    except (KeyError, TypeError, ValueError) as error:
        yield f"verdicts: the gates cannot be judged: {type(error).__name__}: {error}"
        return
    if digest(ledger["verdicts"]) != digest(expected):
        wrong = [
            f"{new['gate']}: found {old['verdict']}, computed {new['verdict']}"
            for old, new in zip(ledger["verdicts"], expected, strict=False)
            if digest(old) != digest(new)
        ]
        yield f"verdicts: {'; '.join(wrong) or 'not one for each gate'}"


_CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[str]], ...] = (
    _hashes,
    _declared,
    _rows,
    _memory,
    _error_rows,
    _verdicts,
)


def disagreements(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Where two runs of one plan differ by more than its `agreement`, or answered differently.

    Raises ValueError when they are not runs of the same plan on the same requests.
    """
    if first["plan_sha256"] != second["plan_sha256"] or first["workloads"] != second["workloads"]:
        raise ValueError("the ledgers are of different plans or different requests")
    allowed = first["plan"]["agreement"]
    found = []
    for ours, theirs in zip(first["arms"], second["arms"], strict=True):
        for one, other in zip(ours["measurements"], theirs["measurements"], strict=True):
            for figure in ("mean_ms", "p50_ms"):
                a, b = _mean(one, figure), _mean(other, figure)
                apart = abs(a - b) / min(a, b)
                if apart > allowed:
                    place = f"{ours['name']} {one['workload']}@{one['concurrency']} {figure}"
                    found.append(
                        f"{place}: {a:.3f} and {b:.3f} differ by {apart:.1%}, allowed: {allowed:.1%}"
                    )
    return found


def _mean(measurement: Mapping[str, Any], figure: str) -> float:
    values = [one["figures"][figure] for one in measurement["passes"]]
    return math.fsum(values) / len(values)
