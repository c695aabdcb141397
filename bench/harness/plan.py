"""Plans: what will be run and what will be judged, fixed and hashed before anything is measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema  # type: ignore[import-untyped]
from bench.harness.hashing import digest

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
Plan: TypeAlias = Mapping[str, Any]


class PlanError(ValueError):
    """A plan says something that cannot be run."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema "plan" or "ledger"; the ledger's holds the plan's."""
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    if name == "ledger":
        loaded["properties"]["plan"] = schema("plan")
    return loaded


def read(path: Path) -> Plan:
    """A plan file. Raises PlanError naming the field, what was found and what is allowed."""
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{path.name}: not JSON: {error}") from None
    try:
        check(plan)
    except PlanError as error:
        raise PlanError(f"{path.name}: {error}") from None
    return dict(plan)


def check(plan: Any) -> None:
    """Raises PlanError for a plan that breaks the schema or names what it does not declare."""
    fault = first_fault(plan, schema("plan"))
    if fault:
        raise PlanError(fault)
    names = [arm["name"] for arm in plan["arms"]]
    if len(set(names)) != len(names):
        raise PlanError(f"arms: found {names}, allowed: each name once")
    measured = {arm["name"]: cells(plan, arm) for arm in plan["arms"]}
    for arm in plan["arms"]:
        for workload in arm.get("workloads", []):
            if workload not in plan["workloads"]:
                known = ", ".join(plan["workloads"])
                raise PlanError(f"arm {arm['name']}: found workload {workload!r}, allowed: {known}")
    for gate in plan["gates"]:
        _check_gate(gate, measured)


def _check_gate(gate: Mapping[str, Any], measured: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    for role in ("arm", "control"):
        name = gate.get(role)
        if name is None:
            continue
        if name not in measured:
            raise PlanError(f"gate {gate['name']}: found {role} {name!r}, allowed: {', '.join(measured)}")
        cell = (gate.get("workload"), gate.get("concurrency", 1))
        if "workload" in gate and cell not in measured[name]:
            raise PlanError(
                f"gate {gate['name']}: found workload {cell[0]!r} at concurrency {cell[1]}, "
                f"allowed: what {name} runs: {measured[name]}"
            )


def first_fault(value: Any, against: Mapping[str, Any]) -> str:
    """The most telling breach of a schema as "place: what", or an empty text."""
    best = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(against).iter_errors(value))
    if best is None:
        return ""
    place = ".".join(map(str, best.absolute_path)) or "document"
    return f"{place}: {best.message[:300]}"


def cells(plan: Plan, arm: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(workload, concurrency) in the order in which the arm measures them."""
    workloads = arm.get("workloads", plan["workloads"])
    levels = arm.get("concurrency", plan["protocol"]["concurrency"])
    return [(workload, level) for workload in workloads for level in levels]


def sha256(plan: Plan) -> str:
    return digest(plan)
