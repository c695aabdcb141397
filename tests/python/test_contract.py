"""What a request may be, and what each fault is called."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjev.contract import (
    MAX_ISSUES,
    Choice,
    DecisionRequest,
    Limits,
    Noul,
    Score,
    candidate_count,
    parse_request,
    wire_question,
)
from openjev.errors import Issue, RequestError, UnsupportedRequestError
from tests.python.strategies import JSON, requests

NOUL = {"type": "noul", "instructions": "x"}


def request(question: Any, **more: Any) -> dict[str, Any]:
    return {"model": "jev-latest", "state": "Hi", "questions": {"q": question}, **more}


def parse(question: Any) -> Any:
    return parse_request(request(question)).questions["q"]


def issues_of(body: Any, limits: Limits | None = None) -> list[Issue]:
    with pytest.raises(RequestError) as caught:
        parse_request(body, limits or Limits())
    for issue in caught.value.issues:
        assert issue.loc[0] == "body" and issue.msg and issue.type
        assert json.loads(json.dumps(issue.to_dict()))["loc"][0] == "body"
    return caught.value.issues


def issue_of(question: Any) -> Issue:
    [issue] = issues_of(request(question))
    assert issue.loc[:3] == ("body", "questions", "q")
    return issue


@given(requests())
def test_every_request_of_the_contract_is_accepted_and_kept_as_it_is(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    parsed = parse_request(body)
    assert body == before
    assert parsed.state is body["state"]
    assert list(parsed.questions) == list(body["questions"])
    for name, question in parsed.questions.items():
        again = parse_request({"state": "x", "questions": {name: wire_question(question)}})
        assert again.questions[name] == question


@given(JSON)
def test_any_json_is_parsed_or_refused_with_issues(body: Any) -> None:
    for candidate in (
        body,
        {"state": body, "questions": body},
        request(body),
        request({"type": "choice", "criteria": body}),
    ):
        try:
            assert isinstance(parse_request(candidate), DecisionRequest)
        except RequestError as error:
            assert error.issues and all(issue.loc[0] == "body" for issue in error.issues)


@pytest.mark.parametrize(
    ("criteria", "true", "false"),
    [
        ({"true": "3 days"}, "3 days", None),
        ({"false": ["never"]}, None, ["never"]),
        ({"true": "x", "false": None}, "x", None),
        ({"true": "x", "false": {"y": 1}}, "x", {"y": 1}),
        (None, None, None),
        ({}, None, None),
    ],
)
def test_T01_noul_criteria_may_be_one_sided(criteria: Any, true: Any, false: Any) -> None:
    question = {"type": "noul", "instructions": "Late?", "criteria": criteria}
    assert parse(question) == Noul("Late?", true, false)


def test_T02_a_noul_needs_instructions_or_an_outcome() -> None:
    assert parse({"type": "noul", "criteria": {"true": "late"}}) == Noul(None, "late", None)
    assert parse({"type": "noul", "instructions": None, "criteria": {"false": "late"}}) == Noul(
        None, None, "late"
    )
    for empty in ({"type": "noul"}, {"type": "noul", "instructions": None, "criteria": {"true": None}}):
        issue = issue_of(empty)
        assert (issue.loc, issue.type) == (("body", "questions", "q"), "missing")


def test_T07_descriptions_may_be_null_or_structured() -> None:
    assert parse({"type": "choice", "criteria": {"a": None, "b": {"why": "x"}}}) == Choice(
        None, {"a": None, "b": {"why": "x"}}
    )
    assert parse({"type": "score", "criteria": ["low", {"n": 1}]}) == Score(None, ["low", {"n": 1}])


@pytest.mark.parametrize("count", [1, 77, 255])
def test_T08_up_to_255_options(count: int) -> None:
    question = parse({"type": "choice", "criteria": {f"o{i}": None for i in range(count)}})
    assert candidate_count(question) == count


@pytest.mark.parametrize("count", [256, 311])
def test_T08_more_than_255_options_are_refused_with_both_numbers(count: int) -> None:
    issue = issue_of({"type": "choice", "criteria": {f"o{i}": None for i in range(count)}})
    assert issue.type == "too_long" and issue.loc == ("body", "questions", "q", "criteria")
    assert str(count) in issue.msg and "255" in issue.msg and "'q'" in issue.msg
    assert issue.ctx == {"max_length": 255, "actual_length": count}


@pytest.mark.parametrize(("kind", "empty"), [("choice", {}), ("score", [])])
def test_T08_no_options_are_refused(kind: str, empty: Any) -> None:
    issue = issue_of({"type": kind, "criteria": empty})
    assert issue.type == "too_short" and issue.ctx == {"min_length": 1, "actual_length": 0}


def test_T10_one_to_ten_levels() -> None:
    for count in (1, 2, 10):
        assert candidate_count(parse({"type": "score", "criteria": ["x"] * count})) == count
    assert issue_of({"type": "score", "criteria": ["x"] * 11}).ctx == {"max_length": 10, "actual_length": 11}


@pytest.mark.parametrize(
    ("question", "loc", "kind"),
    [
        ("text", (), "dict_type"),
        ({}, ("type",), "union_tag_not_found"),
        ({"type": "boolean"}, ("type",), "union_tag_invalid"),
        ({"type": ["noul"]}, ("type",), "union_tag_invalid"),
        ({"type": "act"}, ("type",), "union_tag_invalid"),
        ({"type": "noul", "instructions": 3}, ("instructions",), "text_type"),
        ({"type": "noul", "instructions": True}, ("instructions",), "text_type"),
        ({"type": "noul", "instructions": "x", "criteria": []}, ("criteria",), "dict_type"),
        ({"type": "noul", "instructions": "x", "criteria": {"true": 1}}, ("criteria", "true"), "text_type"),
        ({"type": "choice"}, ("criteria",), "missing"),
        ({"type": "choice", "criteria": None}, ("criteria",), "dict_type"),
        ({"type": "choice", "criteria": ["a"]}, ("criteria",), "dict_type"),
        ({"type": "choice", "criteria": {"a": 1}}, ("criteria", "a"), "text_type"),
        ({"type": "choice", "criteria": {1: None}}, ("criteria",), "string_type"),
        ({"type": "score"}, ("criteria",), "missing"),
        ({"type": "score", "criteria": {"0": "low"}}, ("criteria",), "list_type"),
        ({"type": "score", "criteria": ["low", None]}, ("criteria", 1), "text_type"),
        ({"type": "score", "criteria": ["low", 2.5]}, ("criteria", 1), "text_type"),
        ({"type": "choice", "criteria": {"a": "\ud800"}}, ("criteria", "a"), "string_unicode"),
        ({"type": "choice", "criteria": {"\udfff": "x"}}, ("criteria",), "string_type"),
        ({"type": "score", "criteria": [{"x": [1, math.nan]}]}, ("criteria", 0, "x", 1), "finite_number"),
    ],
)
def test_each_fault_of_a_question_has_a_place_and_a_name(
    question: Any, loc: tuple[Any, ...], kind: str
) -> None:
    issue = issue_of(question)
    assert (issue.loc[3:], issue.type) == (loc, kind)


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        ([], ("body",), "dict_type"),
        ({"questions": {"q": {"type": "noul", "instructions": "x"}}}, ("body", "state"), "missing"),
        ({"state": "x"}, ("body", "questions"), "missing"),
        ({"state": "x", "questions": None}, ("body", "questions"), "dict_type"),
        ({"state": "x", "questions": {}}, ("body", "questions"), "too_short"),
        (request(NOUL, state=None), ("body", "state"), "text_type"),
        (request(NOUL, state=1), ("body", "state"), "text_type"),
        (request(NOUL, state={"a": {1, 2}}), ("body", "state", "a"), "json_type"),
        (request(NOUL, state={"a": {2: 3}}), ("body", "state", "a"), "string_type"),
        (request(NOUL, state=[10**4300]), ("body", "state", 0), "int_parsing_size"),
        (request(NOUL, state=["\ud83d"]), ("body", "state", 0), "string_unicode"),
        (request(NOUL, model=7), ("body", "model"), "string_type"),
        ({"state": "x", "questions": {"": NOUL}}, ("body", "questions"), "question_id"),
    ],
)
def test_each_fault_of_a_request_has_a_place_and_a_name(body: Any, loc: tuple[Any, ...], kind: str) -> None:
    [issue] = issues_of(body)
    assert (issue.loc, issue.type) == (loc, kind)


@pytest.mark.parametrize("state", ["", {}, [], "x", {"a": [None, True, 1, 2.5, "b"]}])
def test_a_state_may_be_empty_or_nested(state: Any) -> None:
    assert parse_request(request({"type": "noul", "instructions": "x"}, state=state)).state == state


@pytest.mark.parametrize("container", ["list", "dict"])
def test_T27_nesting_stops_at_128(container: str) -> None:
    def nested(levels: int) -> Any:
        value: Any = "x"
        for _ in range(levels):
            value = [value] if container == "list" else {"k": value}
        return value

    question = {"type": "noul", "instructions": "x"}
    assert parse_request(request(question, state=nested(128)))
    for levels in (129, 1000, 100_000):
        [issue] = issues_of(request(question, state=nested(levels)))
        assert issue.type == "nesting_depth" and len(issue.loc) == 2 + 128


def test_all_faults_are_reported_at_once() -> None:
    body = {
        "state": None,
        "model": 3,
        "questions": {
            "a": {"type": "noul"},
            "b": {"type": "score", "criteria": []},
            "c": {"type": "noul", "instructions": "x"},
        },
    }
    found = {issue.loc for issue in issues_of(body)}
    assert found == {
        ("body", "state"),
        ("body", "model"),
        ("body", "questions", "a"),
        ("body", "questions", "b", "criteria"),
    }


def test_the_list_of_issues_is_bounded_and_long_names_are_cut_in_it() -> None:
    name = "n" * 100_000
    body = {
        "state": "x",
        "questions": {name: {"type": "choice", "criteria": {str(i): 1 for i in range(255)}}},
    }
    issues = issues_of(body)
    assert len(issues) == MAX_ISSUES
    assert len(json.dumps([issue.to_dict() for issue in issues])) < 100_000


def test_limits_count_questions_and_candidates() -> None:
    noul = {"type": "noul", "instructions": "x"}
    two = {"state": "x", "questions": {"a": noul, "b": {"type": "score", "criteria": ["x"] * 4}}}
    assert parse_request(two, Limits(questions=2, candidates=5))
    [issue] = issues_of(two, Limits(questions=1))
    assert issue.ctx == {"max_length": 1, "actual_length": 2}
    [issue] = issues_of(two, Limits(candidates=4))
    assert issue.ctx == {"max_length": 4, "actual_length": 5}


def test_unknown_keys_are_ignored() -> None:
    question = {"type": "noul", "instructions": "x", "weight": 3, "criteria": {"maybe": 1}}
    assert parse_request(request(question, x_trace_id="t", seed=1, method="m", assets=None)).questions == {
        "q": Noul("x")
    }


@pytest.mark.parametrize(
    "body",
    [
        request({"type": "noul", "instructions": "x"}, assets={"a": "data:image/png;base64,"}),
        request({"type": "box", "instructions": "x"}),
    ],
)
def test_images_are_unsupported_not_malformed(body: Any) -> None:
    with pytest.raises(UnsupportedRequestError, match="images"):
        parse_request(body)


@given(st.text(min_size=1, max_size=300))
def test_an_issue_never_breaks_the_answer_that_carries_it(name: str) -> None:
    body = {"state": "x", "questions": {name: {"type": name, "criteria": name}}}
    with pytest.raises((RequestError, UnsupportedRequestError)) as caught:
        parse_request(body)
    str(caught.value).encode()
