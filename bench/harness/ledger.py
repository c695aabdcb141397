"""Ledgers: everything that one experiment found, in one JSON file with its hashes.

`plan_sha256` is over the plan, `rows_sha256` over what was measured, `sha256` over the whole ledger but
itself. Hashes are of canonical JSON, see hashing.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bench.harness import gates, plan
from bench.harness.hashing import digest
from bench.harness.workloads import Workload

FORMAT = "openjev-ledger/1"
Ledger: TypeAlias = dict[str, Any]
_MEASURED = ("arms", "native", "responses")


def begin(declared: plan.Plan, workloads: Mapping[str, Workload], environment: Mapping[str, Any]) -> Ledger:
    """A ledger without rows."""
    return {
        "format": FORMAT,
        "experiment": declared["experiment"],
        "status": "incomplete",
        "plan": dict(declared),
        "plan_sha256": plan.sha256(declared),
        "started": "",
        "finished": "",
        "environment": dict(environment),
        "workloads": {name: describe_workload(workload) for name, workload in workloads.items()},
        "arms": [],
        "native": [],
        "responses": {},
        "verdicts": [],
    }


def describe_workload(workload: Workload) -> dict[str, Any]:
    """What the rows of a workload mean: ids, token counts, and the hash of the bytes that were sent."""
    return {
        "requests_sha256": workload.sha256,
        "requests": [
            {"id": r.id, "tokens": r.tokens, "prompts": len(r.prompts), "questions": r.questions}
            for r in workload.requests
        ],
    }


def judge(ledger: Ledger) -> list[dict[str, Any]]:
    """The verdicts of the plan's gates on the rows."""
    return gates.evaluate(ledger["plan"]["gates"], ledger["arms"], ledger["responses"]) + [
        {
            "gate": f"{row['name']} completed",
            "kind": "completed",
            "verdict": gates.PASSED if row["status"] == "completed" else gates.FAILED,
            "found": {"status": row["status"], "reason": row["reason"]},
        }
        for row in ledger["native"]
    ]


def rows_sha256(ledger: Mapping[str, Any]) -> str:
    return digest({name: ledger[name] for name in _MEASURED})


def own_sha256(ledger: Mapping[str, Any]) -> str:
    return digest({name: value for name, value in ledger.items() if name != "sha256"})


def seal(ledger: Ledger) -> Ledger:
    """Verdicts and hashes of what is there now."""
    ledger["verdicts"] = judge(ledger)
    ledger["rows_sha256"] = rows_sha256(ledger)
    ledger["sha256"] = own_sha256(ledger)
    return ledger


def write(ledger: Mapping[str, Any], path: Path) -> None:
    """Replaces the file at once, so that an interrupted run never leaves half of one."""
    part = path.with_suffix(".part")
    part.write_text(to_text(ledger), encoding="utf-8")
    os.replace(part, path)


def to_text(ledger: Mapping[str, Any]) -> str:
    """JSON with one line a request, so that differences can be read."""
    return _layout(ledger, 0) + "\n"


def _layout(value: Any, depth: int) -> str:
    """Objects and lists that hold others are spread over lines, down to a depth; the rest is one line."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth > 6 or len(flat) <= 110 or not isinstance(value, Mapping | list):
        return flat
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, Mapping):
        lines = [
            f"{pad}{json.dumps(key, ensure_ascii=False)}: {_layout(v, depth + 1)}" for key, v in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{end}}}"
    if all(isinstance(item, int | float) for item in value):
        return flat
    return "[\n" + ",\n".join(pad + _layout(item, depth + 1) for item in value) + f"\n{end}]"


def read(path: Path) -> Ledger:
    """Raises OSError, ValueError."""
    loaded: Ledger = json.loads(path.read_text(encoding="utf-8"))
    return loaded
