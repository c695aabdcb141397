"""The validator: a ledger whose figures, hashes or verdicts do not follow from its rows is rejected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import validate
from bench.harness import ledger as ledgers
from bench.harness import validation
from bench.harness.hashing import digest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.ledgers import a_ledger, noul

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
WHOLE = a_ledger()


def resealed(record: Json) -> Json:
    """With all hashes right again: what a careful forger would do."""
    record["rows_sha256"] = ledgers.rows_sha256(record)
    record["sha256"] = ledgers.own_sha256(record)
    return record


def measurement(record: Json) -> Json:
    found: Json = record["arms"][1]["measurements"][0]
    return found


def test_a_whole_ledger_has_no_fault() -> None:
    assert validation.faults(WHOLE) == []


def test_layout_and_order_of_keys_do_not_matter() -> None:
    again = json.loads(json.dumps(WHOLE, sort_keys=True, indent=2))
    assert validation.faults(again) == []
    assert validation.faults(json.loads(ledgers.to_text(WHOLE))) == []


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers are."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from numbers(inner, (*path, key))
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def change(record: Json, path: tuple[Any, ...], factor: float) -> None:
    place: Any = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = place[path[-1]] * factor + 0.001


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(list(numbers(WHOLE))), st.sampled_from([0.5, 1.0, 2.0]))
def test_no_number_can_be_changed_unnoticed(path: tuple[Any, ...], factor: float) -> None:
    record = copy.deepcopy(WHOLE)
    change(record, path, factor)
    assert validation.faults(record)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([p for p in numbers(WHOLE["arms"]) if "figures" in p or "relative_range" in p]))
def test_no_figure_can_be_changed_even_with_new_hashes(path: tuple[Any, ...]) -> None:
    record = copy.deepcopy(WHOLE)
    change(record["arms"], path, 0.9)
    assert any("computed" in fault for fault in validation.faults(resealed(record)))


def one_latency(record: Json) -> None:
    measurement(record)["passes"][0]["requests"][2]["ms"] /= 2


def a_request_left_out(record: Json) -> None:
    del measurement(record)["passes"][0]["requests"][2]


def a_request_twice(record: Json) -> None:
    requests = measurement(record)["passes"][0]["requests"]
    requests[2] = dict(requests[1])


def a_pass_left_out(record: Json) -> None:
    del measurement(record)["passes"][1]


def the_better_pass_twice(record: Json) -> None:
    passes = measurement(record)["passes"]
    passes[1] = copy.deepcopy(passes[0])


def an_arm_left_out(record: Json) -> None:
    del record["arms"][0]


def another_response(record: Json) -> None:
    sha256 = measurement(record)["passes"][0]["requests"][0]["response"]
    record["responses"][sha256] = noul(0.7)


def an_unknown_response(record: Json) -> None:
    measurement(record)["passes"][0]["requests"][0]["response"] = digest("nothing")


def a_milder_gate(record: Json) -> None:
    record["plan"]["gates"][2]["mean_ratio"] = 9.0


def a_better_verdict(record: Json) -> None:
    record["arms"][1]["errors"][0].update(status=500, as_expected=False)


def an_error_called_expected(record: Json) -> None:
    record["arms"][1]["errors"][0]["status"] = 500


def a_smaller_peak(record: Json) -> None:
    record["arms"][1]["memory"]["peak_mib"] = 11.0


def a_wall_shorter_than_a_request(record: Json) -> None:
    one = measurement(record)["passes"][0]
    one["wall_s"] = 0.001


def another_experiment(record: Json) -> None:
    record["experiment"] = "better"


FORGERIES = {
    one_latency: "figures.mean_ms: found",
    a_request_left_out: "each once and in order",
    a_request_twice: "each once and in order",
    a_pass_left_out: "found passes [1], allowed: 1 and 2",
    the_better_pass_twice: "found passes [1, 1], allowed: 1 and 2",
    an_arm_left_out: "arms: found ['new'], declared ['old', 'new']",
    another_response: "its content has the hash",
    an_unknown_response: "is not in responses",
    a_better_verdict: "refuses: found passed, computed failed",
    an_error_called_expected: "as_expected does not follow",
    a_smaller_peak: "not the largest sample",
    a_wall_shorter_than_a_request: "found a latency of",
    another_experiment: "experiment: found better, declared made-up",
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda f: f.__name__)
def test_a_forgery_is_found_even_with_new_hashes(forge: Callable[[Json], None]) -> None:
    record = copy.deepcopy(WHOLE)
    forge(record)
    found = validation.faults(resealed(record))
    assert any(FORGERIES[forge] in fault for fault in found), found


def test_a_plan_changed_after_the_run_is_found_by_its_hash() -> None:
    record = copy.deepcopy(WHOLE)
    a_milder_gate(record)
    assert any(fault.startswith("plan_sha256: found") for fault in validation.faults(record))


def test_a_plan_changed_with_its_hash_is_found_by_the_plan_written_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made-up.plan.json").write_text(json.dumps(WHOLE["plan"]), encoding="utf-8")
    record = copy.deepcopy(WHOLE)
    ledgers.write(record, tmp_path / "made-up.json")
    assert validate.main([str(tmp_path / "made-up.json")]) == 0
    a_milder_gate(record)
    record["plan_sha256"] = digest(record["plan"])
    ledgers.write(resealed(record), tmp_path / "made-up.json")
    assert validate.main([str(tmp_path / "made-up.json")]) == 1
    assert "made-up.json: plan: not the one in made-up.plan.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), "openjev-ledger/9", "format"),
        (("arms", 0, "status"), "fine", "arms.0.status"),
        (("plan", "protocol", "measured_passes"), 3, "plan.protocol.measured_passes"),
        (("responses", "short"), {}, "responses"),
        (("extra",), 1, "document: Additional properties"),
    ],
)
def test_a_ledger_of_another_shape_is_named_by_its_place(
    path: tuple[Any, ...], value: Any, said: str
) -> None:
    record = copy.deepcopy(WHOLE)
    place: Any = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (fault,) = validation.faults(record)
    assert said in fault


@pytest.mark.parametrize("content", ["[]", "{}", "null", "3", "{"])
def test_a_file_that_is_no_ledger_is_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="utf-8")
    assert validate.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith("odd.json: ")


def test_two_runs_agree_within_the_declared_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, factor in (("a", 1.0), ("b", 1.05), ("c", 1.2)):
        record = a_ledger(new=[factor * ms for ms in (10.0, 11.0, 15.0)])
        ledgers.write(record, tmp_path / f"{name}.json")
    a, b, c = (str(tmp_path / f"{name}.json") for name in "abc")
    assert validate.main(["--agree", a, b]) == 0
    assert capsys.readouterr().out == "2 valid, in agreement\n"
    assert validate.main(["--agree", a, c]) == 1
    assert "new short@1 mean_ms: 12.120 and 14.544 differ by 20.0%, allowed: 10.0%" in capsys.readouterr().out


def test_runs_of_different_plans_are_not_compared() -> None:
    other = a_ledger()
    other["plan_sha256"] = "0" * 64
    with pytest.raises(ValueError, match="different plans"):
        validation.disagreements(WHOLE, other)


LEDGERS = sorted((ROOT / "docs" / "measurements").glob("*/*.plan.json"))


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name)
def test_the_published_ledgers_are_valid_and_of_their_plans(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = path.with_name(path.name.replace(".plan.json", ".json"))
    assert validate.main([str(record)]) == 0, capsys.readouterr().out
    assert f"<!-- begin {record.stem}:" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
