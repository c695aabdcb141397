"""A small ledger with made-up latencies, for tests of what is done with ledgers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness import ledger as ledgers
from bench.harness import plan as plans
from bench.harness.hashing import digest
from bench.harness.latency import figures, ranges

Json = dict[str, Any]

PLAN: Json = {
    "format": "openjev-plan/1",
    "experiment": "made-up",
    "title": "Made up",
    "checkpoint": {"kind": "demo"},
    "workloads": ["short"],
    "protocol": {
        "feasibility_passes": 1,
        "measured_passes": 2,
        "concurrency": [1],
        "memory_interval_s": 0.2,
        "request_timeout_s": 10,
    },
    "arms": [
        {"name": "old", "kind": "openjev", "device": "cpu"},
        {"name": "new", "kind": "openjev", "device": "cpu"},
    ],
    "native": [],
    "gates": [
        {"name": "same", "kind": "parity-exact", "arm": "new", "control": "old", "workload": "short"},
        {
            "name": "alike",
            "kind": "parity-probabilities",
            "arm": "new",
            "control": "old",
            "workload": "short",
            "max_difference": 0.01,
            "max_flips": 0,
        },
        {
            "name": "not slower",
            "kind": "regression",
            "arm": "new",
            "control": "old",
            "workload": "short",
            "mean_ratio": 1.05,
            "throughput_ratio": 0.95,
            "p95_ratio": 1.1,
        },
        {
            "name": "faster",
            "kind": "improvement",
            "arm": "new",
            "control": "old",
            "workload": "short",
            "figure": "mean_ms",
            "minimum_gain": 0.5,
        },
        {"name": "repeats", "kind": "same-answers", "arm": "new"},
        {"name": "refuses", "kind": "errors", "arm": "new"},
    ],
    "error_runs": True,
    "agreement": 0.1,
}


def noul(p: float) -> Json:
    """A response with one yes/no answer."""
    return {"model": "m", "answers": {"q": {"type": "noul", "noul": p}}, "usage": {"input_tokens": 9}}


def a_pass(number: int, latencies: Sequence[float], responses: Sequence[Json], kept: Json) -> Json:
    rows = []
    for index, (ms, response) in enumerate(zip(latencies, responses, strict=True)):
        sha256 = digest(response)
        kept[sha256] = response
        rows.append({"id": f"short/{index:03d}", "ms": ms, "model_ms": ms / 2, "response": sha256})
    wall = sum(latencies) / 1e3
    return {
        "pass": number,
        "wall_s": wall,
        "failures": 0,
        "requests": rows,
        "figures": figures(list(latencies), [1] * len(rows), wall),
        "graphs": {},
    }


def an_arm(name: str, passes: Sequence[Json]) -> Json:
    errors = [
        {"case": "oversize", "allowed": [422, 422], "status": 422, "ms": 1.0, "as_expected": True, "body": ""}
    ]
    return {
        "name": name,
        "status": "completed",
        "reason": "",
        "command": ["python", "-m", "openjev"],
        "versions": {},
        "gpu_before": None,
        "gpu_after": None,
        "start_s": 1.5,
        "first_request": dict(passes[0]["requests"][0]),
        "memory": {"what": "process", "interval_s": 0.2, "peak_mib": 12.0, "mib": [10.0, 12.0]},
        "measurements": [
            {
                "workload": "short",
                "concurrency": 1,
                "feasibility_wall_s": 0.5,
                "passes": list(passes),
                "relative_range": ranges([one["figures"] for one in passes]),
            }
        ],
        "errors": errors,
    }


def a_ledger(
    old: Sequence[float] = (20.0, 22.0, 30.0),
    new: Sequence[float] = (10.0, 11.0, 15.0),
    answers: Mapping[str, Sequence[float]] | None = None,
) -> Json:
    """Two arms of three requests; the second passes take 2% longer."""
    shown = {"old": (0.2, 0.5, 0.9), "new": (0.2, 0.5, 0.9), **(answers or {})}
    kept: Json = {}
    arms = []
    for name, latencies in (("old", old), ("new", new)):
        responses = [noul(p) for p in shown[name]]
        both = [a_pass(n, [ms * (0.98 + 0.02 * n) for ms in latencies], responses, kept) for n in (1, 2)]
        arms.append(an_arm(name, both))
    plan = copy.deepcopy(PLAN)
    requests = [{"id": f"short/{i:03d}", "tokens": 80, "prompts": 1, "questions": 1} for i in range(3)]
    record: Json = {
        "format": ledgers.FORMAT,
        "experiment": "made-up",
        "status": "complete",
        "plan": plan,
        "plan_sha256": plans.sha256(plan),
        "started": "2026-12-02T10:00:00Z",
        "finished": "2026-12-02T10:01:00Z",
        "environment": {
            "python": "3.12.0",
            "system": "Linux x86_64",
            "processor": "a processor",
            "cores": 2,
            "load_average": [0.1, 0.1, 0.1],
            "commit": "unknown",
            "packages": {"openjev": "0.1.0"},
            "gpu": None,
        },
        "workloads": {"short": {"requests_sha256": "0" * 64, "requests": requests}},
        "arms": arms,
        "native": [],
        "responses": kept,
        "verdicts": [],
    }
    return ledgers.seal(record)


def verdict(record: Mapping[str, Any], gate: str) -> Json:
    """The one of a gate."""
    (found,) = [v for v in record["verdicts"] if v["gate"] == gate]
    return dict(found)
