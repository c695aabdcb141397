"""Gates: each kind passes, fails, and says that it was not evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from bench.harness import gates
from bench.harness import ledger as ledgers
from bench.harness.hashing import without_timings
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.ledgers import a_ledger, noul, verdict


def test_a_faster_arm_with_the_same_answers_passes_everything() -> None:
    record = a_ledger()
    assert {v["gate"]: v["verdict"] for v in record["verdicts"]} == dict.fromkeys(
        ["old completed", "new completed", "same", "alike", "not slower", "faster", "repeats", "refuses"],
        gates.PASSED,
    )
    assert gates.all_passed(record["verdicts"])
    assert verdict(record, "faster")["found"]["gain"] == pytest.approx(1.0)


def test_a_slower_arm_fails_the_regression_gate_with_its_ratios() -> None:
    found = verdict(a_ledger(new=(21.5, 23.6, 32.0)), "not slower")
    assert found["verdict"] == gates.FAILED
    assert found["found"]["mean_ratio"] == pytest.approx(77.1 / 72)
    assert found["found"]["throughput_ratio"] == pytest.approx(72 / 77.1)


@pytest.mark.parametrize("factor", [1.04, 0.9])
def test_a_regression_gate_allows_what_it_declares(factor: float) -> None:
    record = a_ledger(new=[factor * ms for ms in (20.0, 22.0, 30.0)])
    assert verdict(record, "not slower")["verdict"] == gates.PASSED


def test_a_gain_below_the_declared_one_fails() -> None:
    found = verdict(a_ledger(new=(15.0, 16.0, 23.0)), "faster")
    assert (found["verdict"], found["found"]["disjoint"]) == (gates.FAILED, True)


def test_a_gain_fails_when_the_ranges_of_the_passes_meet() -> None:
    record = a_ledger(new=(19.8, 21.8, 29.7))
    record["plan"]["gates"][3]["minimum_gain"] = 0.0
    found = verdict(ledgers.seal(record), "faster")
    assert (found["verdict"], found["found"]["disjoint"]) == (gates.FAILED, False)
    assert found["found"]["gain"] > 0


def test_another_digit_breaks_exact_parity_but_not_probabilities() -> None:
    record = a_ledger(answers={"new": (0.2001, 0.5, 0.9)})
    assert verdict(record, "same")["found"] == {"requests": 3, "different": 1, "first": ["short/000"]}
    assert verdict(record, "same")["verdict"] == gates.FAILED
    assert verdict(record, "alike")["verdict"] == gates.PASSED
    assert verdict(record, "alike")["found"]["largest_difference"] == pytest.approx(1e-4)


def test_a_flipped_decision_is_counted() -> None:
    found = verdict(a_ledger(answers={"new": (0.2, 0.499, 0.9)}), "alike")
    assert found["verdict"] == gates.FAILED
    assert found["found"]["flips"] == 1


def test_answers_that_change_between_passes_are_found() -> None:
    record = a_ledger()
    second = record["arms"][1]["measurements"][0]["passes"][1]["requests"]
    second[0]["response"] = second[2]["response"]
    found = verdict(ledgers.seal(record), "repeats")
    assert (found["verdict"], found["found"]["first"]) == (gates.FAILED, ["short/000"])


def test_a_wrong_answer_to_a_wrong_request_fails() -> None:
    record = a_ledger()
    record["arms"][1]["errors"][0].update(status=200, as_expected=False)
    assert verdict(ledgers.seal(record), "refuses")["verdict"] == gates.FAILED


def test_gates_on_an_arm_that_failed_are_not_evaluated() -> None:
    record = a_ledger()
    record["arms"][1].update(status="failed", reason="a request failed", measurements=[], errors=[])
    ledgers.seal(record)
    assert verdict(record, "new completed")["verdict"] == gates.FAILED
    for name in ("same", "alike", "not slower", "faster", "repeats", "refuses"):
        assert verdict(record, name)["verdict"] == gates.NOT_EVALUATED
    assert not gates.all_passed(record["verdicts"])


def test_timing_fields_do_not_count_but_a_question_of_that_name_does() -> None:
    response: dict[str, Any] = {
        **noul(0.5),
        "timings": {"model": 1},
        "metadata": {"inference_seconds": 2, "kept": [{"latency_ms": 3, "x": 4}]},
        "answers": {"latency_ms": {"type": "noul", "noul": 0.5}},
    }
    assert without_timings(response) == {
        **noul(0.5),
        "metadata": {"kept": [{"x": 4}]},
        "answers": {"latency_ms": {"type": "noul", "noul": 0.5}},
    }


@settings(deadline=None)
@given(
    st.lists(st.floats(1, 100), min_size=3, max_size=3),
    st.lists(st.floats(1, 100), min_size=3, max_size=3),
)
def test_an_improvement_passes_exactly_when_declared_gain_and_ranges_allow(
    old: list[float], new: list[float]
) -> None:
    found = verdict(a_ledger(old=old, new=new), "faster")
    ours, theirs = found["found"]["arm"], found["found"]["control"]
    gain = sum(theirs) / sum(ours) - 1
    if abs(gain - 0.5) > 1e-9:
        assert (found["verdict"] == gates.PASSED) == (gain >= 0.5 and max(ours) < min(theirs))
