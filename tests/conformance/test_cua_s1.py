"""A server of the Cua-S1 kind: its own limits, the same wire format."""

from __future__ import annotations

import math
import string

import pytest

from tests.conformance.service import Service, choice, noul, score


def test_up_to_26_options_are_answered_in_their_order(letters: Service) -> None:
    names = [f"press {letter}" for letter in string.ascii_lowercase]
    for count in (1, 2, 26):
        answer = letters.ask("window: save?", q=choice(*names[:count])).answers["q"]
        p = answer["probabilities"]
        assert list(p) == names[:count]
        assert math.isclose(math.fsum(p.values()), 1, abs_tol=1e-12)
        assert answer["choice"] == max(p, key=lambda name: p[name])
        n, top = len(p), max(p.values())
        official = 1.0 if n == 1 else (top - 1 / n) / (1 - 1 / n)
        entropy = 1.0 if n == 1 else 1 + math.fsum(v * math.log(v) for v in p.values()) / math.log(n)
        assert math.isclose(answer["confidence"], official, abs_tol=1e-12)
        assert math.isclose(answer["x_entropy_confidence"], entropy, abs_tol=1e-9)
    [issue] = letters.ask("window: save?", q=choice(*names, "one more")).issues
    assert "26" in issue["msg"] and "27" in issue["msg"]


def test_a_question_does_not_depend_on_its_company(letters: Service) -> None:
    q = choice("yes", "no", text="Keep the file.")
    alone = letters.ask({"b": 1, "a": 2}, q=q).answers["q"]
    others = {f"other {i}": choice(*map(str, range(2 + i))) for i in range(5)}
    assert letters.ask({"b": 1, "a": 2}, **others, q=q).answers["q"] == alone
    assert letters.ask({"a": 2, "b": 1}, q=q).answers["q"] != alone  # keys stay in request order


@pytest.mark.parametrize("question", [noul(), score("low", "high")], ids=["noul", "score"])
def test_noul_and_score_are_refused(letters: Service, question: dict[str, object]) -> None:
    [issue] = letters.ask("window", q=question).issues
    assert issue["loc"] == ["body", "questions", "q", "type"]


@pytest.mark.parametrize("state", ["", {}, []], ids=["text", "object", "array"])
def test_an_empty_state_is_refused(letters: Service, state: object) -> None:
    [issue] = letters.ask(state, q=choice("a", "b")).issues
    assert issue["loc"] == ["body", "state"]


def test_up_to_64_questions(letters: Service) -> None:
    asked = {f"q{i}": choice("a", "b") for i in range(65)}
    assert len(letters.ask("window", **dict(list(asked.items())[:64])).answers) == 64
    [issue] = letters.ask("window", **asked).issues
    assert issue["loc"] == ["body", "questions"]
