"""The stages of a loaded model, on an engine whose logits are a fixed function of the ids."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import openjev
from openjev.contract import DecisionRequest, Limits, parse_request
from openjev.decision_model import DecisionModel
from openjev.tokens import Tokenizer
from tests.python.fake_engine import LETTERS, FakeEngine
from tests.python.strategies import CUA_REQUESTS, requests

STATE = "The parcel is three days late."
NOUL = {"type": "noul", "instructions": "Late?"}
CHOICE = {
    "type": "choice",
    "instructions": "Who?",
    "criteria": {"Billing": None, "Shipping": "parcels", "Sales": None},
}
SCORE = {"type": "score", "instructions": "How late?", "criteria": ["a little", "very"]}
ALL = {"late": NOUL, "team": CHOICE, "grade": SCORE}


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> DecisionModel:
    return DecisionModel(FakeEngine(), tokenizer)


@pytest.fixture(scope="module")
def letters_model(tokenizer: Tokenizer) -> DecisionModel:
    return DecisionModel(FakeEngine(LETTERS), tokenizer)


def test_a_decision_has_an_answer_of_the_right_type_for_each_question(model: DecisionModel) -> None:
    decision = model.decide(STATE, ALL)
    assert {name: type(answer).__name__ for name, answer in decision.items()} == {
        "late": "NoulAnswer",
        "team": "ChoiceAnswer",
        "grade": "ScoreAnswer",
    }
    assert set(decision.timings) == {"validate", "render", "tokenize", "engine", "finish"}
    assert all(seconds >= 0 for seconds in decision.timings.values())
    wire = decision.to_dict()
    assert set(wire) == {"model", "answers", "usage", "x_openjev"}
    assert set(wire["x_openjev"]) == {"base", "checkpoint", "format", "device", "family", "temperature"}


def test_typed_questions_and_their_wire_form_are_equal(model: DecisionModel) -> None:
    typed = {
        "late": openjev.Noul("Late?"),
        "team": openjev.Choice("Who?", {"Billing": None, "Shipping": "parcels", "Sales": None}),
        "grade": openjev.Score("How late?", ["a little", "very"]),
    }
    expected = model.decide(STATE, ALL).to_dict()
    assert model.decide(STATE, typed).to_dict() == expected
    [decision] = model.decide_many([DecisionRequest(STATE, typed)])
    assert decision.to_dict() == expected


def test_typed_questions_are_checked_too(model: DecisionModel) -> None:
    with pytest.raises(openjev.RequestError, match=r"questions\.q\.criteria: .*found 0"):
        model.decide(STATE, {"q": openjev.Choice("Who?")})


def assert_sound(decision: openjev.Decision) -> None:
    for answer in decision.values():
        if isinstance(answer, openjev.NoulAnswer):
            assert 0 <= answer.noul <= 1
            continue
        p = list(
            answer.probabilities.values()
            if isinstance(answer, openjev.ChoiceAnswer)
            else answer.probabilities
        )
        assert all(math.isfinite(value) and 0 <= value <= 1 for value in p)
        assert abs(sum(p) - 1) < 1e-12 and 0 <= answer.confidence <= 1
        if isinstance(answer, openjev.ChoiceAnswer):
            assert answer.choice == list(answer.probabilities)[p.index(max(p))]
        else:
            assert abs(answer.score - sum(i * value for i, value in enumerate(p))) < 1e-12


@given(body=requests())
def test_T15_any_request_of_the_contract_gets_sound_answers(
    model: DecisionModel, body: dict[str, Any]
) -> None:
    [decision] = model.decide_many([body])
    assert list(decision) == list(body["questions"])
    assert_sound(decision)


@given(body=CUA_REQUESTS)
def test_T15_any_cua_s1_request_gets_sound_answers(
    letters_model: DecisionModel, body: dict[str, Any]
) -> None:
    [decision] = letters_model.decide_many([body])
    assert_sound(decision)
    for answer in decision.values():
        assert isinstance(answer, openjev.ChoiceAnswer) and answer.entropy_confidence is not None


def test_letters_take_the_first_logits_without_temperature(tokenizer: Tokenizer) -> None:
    logits = [math.log(3), 0.0, *[50.0] * 24]
    model = DecisionModel(FakeEngine(LETTERS, logits=logits, temperature=7.0), tokenizer)
    decision = model.decide(STATE, {"q": {"type": "choice", "criteria": {"a": None, "b": None}}})
    answer = decision["q"]
    assert isinstance(answer, openjev.ChoiceAnswer)
    assert answer.probabilities == pytest.approx({"a": 0.75, "b": 0.25}, abs=1e-7)
    assert "temperature" not in decision.extensions and model.info.temperature is None


def test_letters_refuse_what_the_family_does_not_answer(letters_model: DecisionModel) -> None:
    with pytest.raises(openjev.RequestError) as caught:
        letters_model.decide("", {"n": NOUL, "s": SCORE})
    assert [issue.type for issue in caught.value.issues] == [
        "value_error",
        "unsupported_type",
        "unsupported_type",
    ]


def test_T05_an_answer_does_not_depend_on_its_company(model: DecisionModel) -> None:
    alone = model.decide(STATE, {"late": NOUL})["late"]
    assert model.decide(STATE, ALL)["late"] == alone
    many = model.decide_many([{"state": STATE + "!" * i, "questions": ALL} for i in range(8)])
    assert many[0]["late"] == alone


def test_T06_the_order_of_options_and_questions_changes_nothing(model: DecisionModel) -> None:
    expected = model.decide(STATE, ALL)
    reverse = model.decide(STATE, dict(reversed(list(ALL.items()))))
    assert dict(reverse) == dict(expected)
    for order in permutations(CHOICE["criteria"]):
        question = {**CHOICE, "criteria": {name: CHOICE["criteria"][name] for name in order}}
        answer = model.decide(STATE, {"team": question})["team"]
        assert isinstance(answer, openjev.ChoiceAnswer)
        assert answer.to_dict()["probabilities"] == expected["team"].to_dict()["probabilities"]


def test_T08_77_and_255_options_are_answered(model: DecisionModel) -> None:
    for count in (77, 255):
        question = {"type": "choice", "criteria": {f"intent {i}": None for i in range(count)}}
        answer = model.decide(STATE, {"q": question})["q"]
        assert isinstance(answer, openjev.ChoiceAnswer) and len(answer.probabilities) == count


def test_T09_the_checkpoints_temperature_is_applied_and_reported(tokenizer: Tokenizer) -> None:
    model = DecisionModel(FakeEngine(logits=[1.0, 0.0], temperature=2.0), tokenizer)
    decision = model.decide(STATE, {"q": {"type": "choice", "criteria": {"a": None, "b": None}}})
    probabilities = decision["q"].to_dict()["probabilities"]
    assert probabilities == pytest.approx({"a": 0.6224593312018546, "b": 0.3775406687981454}, abs=1e-12)
    assert decision.to_dict()["x_openjev"]["temperature"] == 2.0


def test_usage_counts_every_complete_prompt(model: DecisionModel) -> None:
    prepared = model.prepare({"state": STATE, "questions": ALL})
    assert prepared.input_tokens == len(prepared.tokens) == prepared.offsets[-1]
    assert prepared.prompts == len(prepared.offsets) - 1 == 6
    assert prepared.slices == (slice(0, 1), slice(1, 4), slice(4, 6))
    assert model.decide(STATE, ALL).usage.input_tokens == prepared.input_tokens
    assert prepared.rows < prepared.input_tokens


def test_T19_a_prompt_may_have_exactly_the_limit_and_not_one_token_more(tokenizer: Tokenizer) -> None:
    length = (
        DecisionModel(FakeEngine(), tokenizer)
        .prepare({"state": STATE, "questions": {"q": NOUL}})
        .input_tokens
    )
    assert DecisionModel(FakeEngine(), tokenizer, max_length=length).decide(STATE, {"q": NOUL})
    engine = FakeEngine()
    with pytest.raises(openjev.RequestError) as caught:
        DecisionModel(engine, tokenizer, max_length=length - 1).decide(STATE, {"q": NOUL})
    [issue] = caught.value.issues
    assert (issue.type, issue.loc) == ("max_tokens_exceeded", ("body", "questions", "q"))
    assert issue.ctx == {"tokens": length, "limit": length - 1}
    assert engine.calls == []


def test_T19_the_issue_names_question_and_option(tokenizer: Tokenizer) -> None:
    model = DecisionModel(FakeEngine(), tokenizer, max_length=100)
    choice = {"type": "choice", "criteria": {"short": None, "long one": "word " * 100}}
    score = {"type": "score", "criteria": ["short", "word " * 200]}
    with pytest.raises(openjev.RequestError) as caught:
        model.decide(STATE, {"fine": NOUL, "c": choice, "s": score})
    first, second = caught.value.issues
    assert first.loc == ("body", "questions", "c", "criteria", "long one")
    assert "'c'" in first.msg and "'long one'" in first.msg
    assert second.loc == ("body", "questions", "s", "criteria", 1) and "level 1" in second.msg


@pytest.mark.parametrize("max_length", [4097, -1])
def test_max_length_may_only_lower_the_checkpoints(tokenizer: Tokenizer, max_length: int) -> None:
    with pytest.raises(openjev.LimitError, match=f"max_length: found {max_length}, allowed: 1 to 4096"):
        DecisionModel(FakeEngine(), tokenizer, max_length=max_length)


def test_cua_s1_never_takes_more_than_16384_tokens(tokenizer: Tokenizer) -> None:
    assert DecisionModel(FakeEngine(LETTERS, max_length=32768), tokenizer).info.max_length == 16384


@pytest.mark.parametrize("name", [None, "decision-model", "jev-latest"])
def test_names_and_aliases_of_the_model_are_accepted(model: DecisionModel, name: str | None) -> None:
    assert model.decide(STATE, {"q": NOUL}, name).model == "decision-model"


def test_another_model_is_unsupported_unless_any_name_will_do(
    tokenizer: Tokenizer, model: DecisionModel
) -> None:
    with pytest.raises(openjev.UnsupportedRequestError, match="Unknown model: 'gpt'"):
        model.decide(STATE, {"q": NOUL}, "gpt")
    assert DecisionModel(FakeEngine(), tokenizer, accept_any_model=True).decide(STATE, {"q": NOUL}, "gpt")


def test_many_requests_share_engine_calls_up_to_the_token_budget(tokenizer: Tokenizer) -> None:
    bodies = [{"state": f"{STATE} {i}", "questions": ALL} for i in range(6)]
    single = DecisionModel(FakeEngine(), tokenizer)
    expected = [single.decide(body["state"], ALL).to_dict() for body in bodies]
    rows = max(single.prepare(body).rows for body in bodies)
    for budget, calls in ((1, 6), (2 * rows, 3), (100 * rows, 1)):
        engine = FakeEngine()
        decisions = DecisionModel(engine, tokenizer, batch_tokens=budget).decide_many(bodies)
        assert [decision.to_dict() for decision in decisions] == expected
        assert len(engine.calls) == calls


def test_one_bad_request_of_many_is_named_and_nothing_is_computed(tokenizer: Tokenizer) -> None:
    engine = FakeEngine()
    good = {"state": STATE, "questions": ALL}
    with pytest.raises(openjev.RequestError) as caught:
        DecisionModel(engine, tokenizer).decide_many(
            [good, {"state": STATE, "questions": {"q": {"type": "x"}}}]
        )
    assert [issue.loc for issue in caught.value.issues] == [("body", 1, "questions", "q", "type")]
    assert engine.calls == []


def test_the_stages_can_be_run_apart(model: DecisionModel) -> None:
    body = {"state": STATE, "questions": ALL}
    batch = [model.prepare(body), model.prepare(parse_request({**body, "state": "other"}))]
    logits = model.execute(batch)
    assert [rows.shape for rows in logits] == [(6, 1), (6, 1)] and logits[0].dtype == np.float32
    decision = model.finish(batch[0], logits[0], {"queue": 0.25})
    assert decision.to_dict() == model.decide(STATE, ALL).to_dict() and decision.timings["queue"] == 0.25
    assert model.execute([]) == []


@pytest.mark.parametrize("share", [True, False])
def test_sharing_is_passed_on_to_the_engine(tokenizer: Tokenizer, share: bool) -> None:
    engine = FakeEngine()
    DecisionModel(engine, tokenizer, share_prefixes=share).decide(STATE, {"q": NOUL})
    assert engine.calls == [(1, share)]


def test_logits_that_are_not_finite_name_the_question(tokenizer: Tokenizer) -> None:
    with pytest.raises(openjev.InternalError, match="question 'q'"):
        DecisionModel(FakeEngine(logits=[math.nan]), tokenizer).decide(STATE, {"q": NOUL})


def test_token_ids_are_scored_as_they_are(model: DecisionModel) -> None:
    both = model.score([[1, 2, 3], [4]])
    assert both.shape == (2, 1) and both.dtype == np.float32
    assert np.array_equal(both[1:], model.score([np.array([4], np.int32)]))
    assert model.score([]).shape == (0, 1)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([[1], []], openjev.BadRequestError, r"token_ids\[1\]: found 0 tokens"),
        ([[1, -1]], openjev.BadRequestError, "found id -1, allowed are 0 to 248319"),
        ([[248320]], openjev.BadRequestError, "found id 248320"),
        ([[1] * 4097], openjev.LimitError, r"token_ids\[0\]: found 4097 tokens, at most 4096"),
    ],
)
def test_bad_token_ids_are_refused(
    model: DecisionModel, ids: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.score(ids)


def test_limits_are_settings(tokenizer: Tokenizer) -> None:
    with pytest.raises(openjev.RequestError, match="too many questions: at most 2, found 3"):
        DecisionModel(FakeEngine(), tokenizer, limits=Limits(questions=2)).decide(STATE, ALL)


def test_a_tokenizer_of_another_checkpoint_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(openjev.CheckpointError, match="found 248077 tokens, at most 1024 allowed"):
        DecisionModel(FakeEngine(vocab_size=1024), tokenizer)
    with pytest.raises(
        openjev.CheckpointError, match=r"letter A encodes as \[32\], the readout expects \[33\]"
    ):
        DecisionModel(FakeEngine(LETTERS, token_ids=list(range(33, 59))), tokenizer)


@pytest.mark.parametrize("readout", [{}, LETTERS])
def test_warming_up_runs_the_engine_once(tokenizer: Tokenizer, readout: dict[str, Any]) -> None:
    engine = FakeEngine(readout) if readout else FakeEngine()
    model = DecisionModel(engine, tokenizer)
    model.warm_up()
    assert model.stats() == {"calls": 1}


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


def test_importing_the_package_loads_nothing_heavy() -> None:
    done = run_python(
        "import sys, openjev\n"
        "assert openjev.Noul('x') and openjev.RequestError\n"
        "heavy = {'numpy', 'tokenizers', 'openjev._runtime'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert done.returncode == 0, done.stderr


def test_T17_a_missing_native_library_is_one_sentence_with_platform_and_fix() -> None:
    done = run_python(
        "import sys, platform, openjev\n"
        "sys.modules['openjev._runtime'] = None\n"
        "try:\n"
        "    openjev.load('demo')\n"
        "except ImportError as error:\n"
        "    text = str(error)\n"
        "    assert platform.machine() in text and platform.system() in text, text\n"
        "    assert 'pip install' in text and '\\n' not in text, text\n"
        "    assert error.name == 'openjev._runtime'\n"
        "else:\n"
        "    raise AssertionError('no ImportError')"
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_attribute_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        openjev.nothing  # noqa: B018


def test_everything_the_package_lists_is_there() -> None:
    assert [name for name in openjev.__all__ if not hasattr(openjev, name)] == []
    assert (Path(openjev.__file__).parent / "py.typed").is_file()
