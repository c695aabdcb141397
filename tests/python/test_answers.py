"""Logits to answers: the published formulas, the calibration, and the order of the options."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjev.answers import ChoiceAnswer, Decision, NoulAnswer, ScoreAnswer, Usage, answer_question
from openjev.contract import Choice, Noul, Question, Score
from openjev.errors import InternalError

LOGIT = st.floats(-100, 100, width=32)


def choice_of(n: int) -> Choice:
    return Choice("Which?", {f"o{i}": None for i in range(n)})


def score_of(n: int) -> Score:
    return Score("How much?", [f"level {i}" for i in range(n)])


def answer_choice(
    logits: list[float], temperature: float = 1.0, *, report_entropy: bool = False
) -> ChoiceAnswer:
    answer = answer_question(choice_of(len(logits)), logits, temperature, report_entropy=report_entropy)
    assert isinstance(answer, ChoiceAnswer)
    return answer


def answer_score(logits: list[float]) -> ScoreAnswer:
    answer = answer_question(score_of(len(logits)), logits)
    assert isinstance(answer, ScoreAnswer)
    return answer


@given(st.lists(LOGIT, min_size=1, max_size=255), st.floats(0.25, 4))
def test_T15_choice_probabilities_sum_to_one_and_the_first_maximum_wins(
    logits: list[float], temperature: float
) -> None:
    answer = answer_choice(logits, temperature)
    p = list(answer.probabilities.values())
    assert all(0 <= value <= 1 for value in p)
    assert abs(math.fsum(p) - 1) < 1e-12 and abs(sum(p) - 1) < 1e-12
    assert answer.choice == f"o{p.index(max(p))}"
    assert 0 <= answer.confidence <= 1


@given(st.lists(LOGIT, min_size=1, max_size=10))
def test_T15_score_is_the_expectation(logits: list[float]) -> None:
    answer = answer_score(logits)
    p = list(answer.probabilities)
    assert abs(sum(p) - 1) < 1e-12
    assert abs(answer.score - sum(i * value for i, value in enumerate(p))) < 1e-12
    assert 0 <= answer.score <= len(logits) - 1 + 1e-12
    assert 0 <= answer.confidence <= 1


@given(LOGIT, st.floats(0.25, 4))
def test_noul_is_the_sigmoid_of_the_scaled_logit(z: float, temperature: float) -> None:
    answer = answer_question(Noul("?"), [z], temperature)
    assert isinstance(answer, NoulAnswer)
    assert math.isclose(answer.noul, 1 / (1 + math.exp(-z / temperature)), rel_tol=1e-12)


def test_T09_the_temperature_divides_the_logits() -> None:
    assert answer_choice([1.0, 0.0], 2.0).probabilities == pytest.approx(
        {"o0": 0.6224593312018546, "o1": 0.3775406687981454}, abs=1e-15
    )


def test_T06_the_order_of_options_changes_no_probability() -> None:
    logits = {"a": 0.3, "b": -1.7, "c": 2.25}
    seen = set()
    for order in permutations(logits):
        answer = answer_question(Choice("?", dict.fromkeys(order)), [logits[name] for name in order], 1.5)
        assert isinstance(answer, ChoiceAnswer) and list(answer.probabilities) == list(order)
        seen.add(tuple(sorted(answer.probabilities.items())))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        # Recorded answers of Open-Jev, tests/data/rendering-golden.json.
        ([0.9730242963481799, 0.0059933126725905984, 0.020982390979229472], 0.9595364445222698),
        ([0.836303387483078, 0.043679203226014957, 0.12001740929090714], 0.7544550812246168),
    ],
)
def test_choice_confidence_is_the_official_one(p: list[float], expected: float) -> None:
    assert answer_choice([math.log(value) for value in p]).confidence == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.20645391279297273, 0.7935460872070274], 0.5870921744140545),
        ([0.040792099536679845, 0.8071691653619368, 0.15203873510138335], 0.7107537480429051),
        ([0.06666157531697, 0.17803329055642, 0.20698890300454, 0.23206358435533, 0.31625264676673], 0.0),
        ([0.05492407513575777, 0.8640481923575625, 0.08102773250667987], 0.7960722885363436),
    ],
)  # fmt: skip
def test_score_confidence_is_the_official_one(p: list[float], expected: float) -> None:
    assert answer_score([math.log(value) for value in p]).confidence == pytest.approx(expected, abs=1e-12)


def test_entropy_confidence_matches_the_published_cua_s1_sample() -> None:
    answer = answer_choice([math.log(0.0024726), math.log(0.9975274)], report_entropy=True)
    assert answer.entropy_confidence == pytest.approx(0.9750250, abs=2e-6)
    assert answer.confidence == pytest.approx(0.9950548, abs=1e-7)
    assert answer.to_dict()["x_entropy_confidence"] == answer.entropy_confidence


@pytest.mark.parametrize("n", [2, 3, 7, 255])
def test_equal_logits_give_confidence_zero_and_the_first_option(n: int) -> None:
    answer = answer_choice([1.25] * n, report_entropy=True)
    assert answer.choice == "o0"
    assert answer.confidence == pytest.approx(0, abs=1e-14) and answer.confidence >= 0
    assert answer.entropy_confidence == pytest.approx(0, abs=1e-14)


def test_T10_one_level_scores_zero_with_full_confidence() -> None:
    answer = answer_score([-3.5])
    assert (answer.score, answer.confidence, list(answer.probabilities)) == (0.0, 1.0, [1.0])


def test_one_option_is_certain() -> None:
    answer = answer_choice([-8.0], report_entropy=True)
    assert (answer.choice, answer.confidence, answer.entropy_confidence) == ("o0", 1.0, 1.0)
    assert answer.probabilities == {"o0": 1.0}


def test_extreme_logits_stay_finite() -> None:
    assert answer_choice([3.0e38, -3.0e38], 0.5).probabilities == {"o0": 1.0, "o1": 0.0}


def test_T13_a_noul_answer_has_exactly_two_keys() -> None:
    assert answer_question(Noul("?"), [0.0]).to_dict() == {"type": "noul", "noul": 0.5}


def test_T07_the_legend_repeats_the_levels_unchanged() -> None:
    level = {"n": 1}
    wire = answer_question(Score("?", ["low", level]), [0.0, 0.0]).to_dict()
    assert wire["legend"] == {"0": "low", "1": {"n": 1}} and wire["legend"]["1"] is level


def test_T11_score_keys_are_positions_even_if_labels_look_like_numbers() -> None:
    wire = answer_question(Score("?", ["20", "21", "22", "23", "24"]), [0.0, 1.0, 2.0, 3.0, 40.0]).to_dict()
    assert list(wire["probabilities"]) == list(wire["legend"]) == ["0", "1", "2", "3", "4"]
    assert 0 <= wire["score"] <= 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("question", [choice_of(2), score_of(2)])
def test_a_logit_that_is_not_finite_is_an_internal_error(question: Question, bad: float) -> None:
    with pytest.raises(InternalError, match="expected 2 finite values"):
        answer_question(question, [0.0, bad])


def test_a_wrong_number_of_logits_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="expected 1 finite values, found 2"):
        answer_question(Noul("?"), [0.0, 1.0])


def test_a_decision_is_a_mapping_and_its_wire_form_omits_the_timings() -> None:
    decision = Decision("m", {"q": NoulAnswer(0.25)}, Usage(7), {"engine": 0.5}, {"temperature": 2.0})
    assert list(decision) == ["q"] and len(decision) == 1 and decision["q"] == NoulAnswer(0.25)
    assert decision.to_dict() == {
        "model": "m",
        "answers": {"q": {"type": "noul", "noul": 0.25}},
        "usage": {"input_tokens": 7, "output_tokens": 0},
        "x_openjev": {"temperature": 2.0},
    }
