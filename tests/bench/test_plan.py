"""Plans are refused before anything runs, naming the field, what was found and what is allowed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.harness import plan, run
from bench.harness.workloads import read_spec

from tests.bench.ledgers import PLAN

PLANS = sorted((Path(__file__).resolve().parents[2] / "bench" / "plans").glob("*.json"))
Json = dict[str, Any]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_declared_plans_can_be_run(path: Path) -> None:
    declared = plan.read(path)
    assert declared["experiment"] == path.stem
    for name in declared["workloads"]:
        assert read_spec(name)["name"] == name
    for arm in declared["arms"]:
        assert plan.cells(declared, arm)


def two_passes_more(p: Json) -> None:
    p["protocol"]["measured_passes"] = 4


def no_feasibility_pass(p: Json) -> None:
    p["protocol"]["feasibility_passes"] = 0


def an_unknown_gate(p: Json) -> None:
    p["gates"][0]["kind"] = "luck"


def an_unknown_control(p: Json) -> None:
    p["gates"][0]["control"] = "older"


def an_unmeasured_cell(p: Json) -> None:
    p["gates"][2]["concurrency"] = 8


def an_arm_twice(p: Json) -> None:
    p["arms"][1]["name"] = "old"


def an_unknown_workload(p: Json) -> None:
    p["arms"][1]["workloads"] = ["long"]


def a_setting_that_is_none(p: Json) -> None:
    p["arms"][1]["graph_mode"] = "fastest"


FAULTS = {
    two_passes_more: "protocol.measured_passes: 2 was expected",
    no_feasibility_pass: "protocol.feasibility_passes: 1 was expected",
    an_unknown_gate: "gates.0",
    an_unknown_control: "gate same: found control 'older', allowed: old, new",
    an_unmeasured_cell: "gate not slower: found workload 'short' at concurrency 8, allowed",
    an_arm_twice: "arms: found ['old', 'old'], allowed: each name once",
    an_unknown_workload: "arm new: found workload 'long', allowed: short",
    a_setting_that_is_none: "arms.1.graph_mode: 'fastest' is not one of",
}


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda f: f.__name__)
def test_a_wrong_plan_ends_the_run_with_status_2(
    spoil: Callable[[Json], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = copy.deepcopy(PLAN)
    spoil(wrong)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(wrong), encoding="utf-8")
    assert run.main([str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"wrong.json: {FAULTS[spoil]}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_hash_of_a_plan_does_not_depend_on_its_layout() -> None:
    again = json.loads(json.dumps(PLAN, sort_keys=True, indent=4))
    assert plan.sha256(again) == plan.sha256(PLAN)
    again["agreement"] = 0.2
    assert plan.sha256(again) != plan.sha256(PLAN)
