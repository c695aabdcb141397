"""Prompt texts, byte for byte."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from openjev.contract import parse_request
from openjev.prompts import CUA_SYSTEM, CuaS1Prompts, OpenJevPrompts, RenderedRequest
from tests.python.fake_engine import SCALAR
from tests.python.strategies import CUA_REQUESTS, JSON, requests

PREFIX, SUFFIX = SCALAR["prompt_prefix"], SCALAR["prompt_suffix"]
OPEN_JEV = OpenJevPrompts(PREFIX, SUFFIX)
CUA = CuaS1Prompts()
YES_NO = "Is the answer to this question yes? Answer Yes or No."
CORRECT = "Is this proposed answer correct? Answer Yes or No."


def bodies(question: dict[str, Any], state: Any = "Hi") -> list[str]:
    """The Open-Jev prompts of one question, inside the chat wrapper."""
    rendered = OPEN_JEV.render(parse_request({"state": state, "questions": {"q": question}}))
    prompts = list(rendered.prompts())
    assert all(prompt.startswith(PREFIX) and prompt.endswith(SUFFIX) for prompt in prompts)
    return [prompt[len(PREFIX) : -len(SUFFIX)] for prompt in prompts]


def noul_body(**fields: Any) -> str:
    [body] = bodies({"type": "noul", **fields})
    return body


def test_a_noul_is_one_prompt() -> None:
    assert noul_body(instructions="Late?") == f"Context:\nHi\n\nQuestion: Late?\n{YES_NO}"


def test_the_chat_wrapper_is_the_checkpoints() -> None:
    rendered = OpenJevPrompts("<a>\n", "<b>").render(
        parse_request({"state": "s", "questions": {"q": {"type": "noul", "instructions": "i"}}})
    )
    assert list(rendered.prompts()) == [f"<a>\nContext:\ns\n\nQuestion: i\n{YES_NO}<b>"]


@pytest.mark.parametrize(
    ("criteria", "lines"),
    [
        ({"true": "3 days", "false": "sooner"}, "Late?\nYes means: 3 days\nNo means: sooner"),
        ({"true": "3 days"}, "Late?\nYes means: 3 days"),
        ({"false": "sooner"}, "Late?\nNo means: sooner"),
        ({"true": "x", "false": None}, "Late?\nYes means: x"),
        (None, "Late?"),
    ],
)
def test_T01_only_the_described_outcomes_are_written(criteria: Any, lines: str) -> None:
    assert (
        noul_body(instructions="Late?", criteria=criteria) == f"Context:\nHi\n\nQuestion: {lines}\n{YES_NO}"
    )


def test_T02_without_instructions_the_outcomes_are_the_question() -> None:
    expected = f"Context:\nHi\n\nQuestion: Yes means: late\n{YES_NO}"
    assert noul_body(criteria={"true": "late"}) == expected
    assert noul_body(instructions=None, criteria={"true": "late"}) == expected


def test_a_choice_is_one_prompt_an_option() -> None:
    head = "Context:\nHi\n\nQuestion: Which?\nProposed answer: "
    question = {
        "type": "choice",
        "instructions": "Which?",
        "criteria": {"A": None, "B": "the b", "C": {"z": 1, "a": [2]}},
    }
    assert bodies(question) == [
        f"{head}A\n{CORRECT}",
        f"{head}B: the b\n{CORRECT}",
        f'{head}C: {{"a": [2], "z": 1}}\n{CORRECT}',
    ]


def test_a_score_is_one_prompt_a_level_without_its_number() -> None:
    head = "Context:\nHi\n\nQuestion: \nProposed answer: "
    assert bodies({"type": "score", "criteria": ["low", {"n": 1}]}) == [
        f"{head}low\n{CORRECT}",
        f'{head}{{"n": 1}}\n{CORRECT}',
    ]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("  kept as is \n", "  kept as is \n"),
        ({"b": 1, "a": {"d": None, "c": [True, False]}}, '{"a": {"c": [true, false], "d": null}, "b": 1}'),
        (
            [1e16, 1e-7, 1e5, -0.0, 12345678901234567890],
            "[1e+16, 1e-07, 100000.0, -0.0, 12345678901234567890]",
        ),
        (
            ["\u2028\x7f/", '\x00\x1f\n"\\', "\u00e9\U0001f642"],
            '["\u2028\x7f/", "\\u0000\\u001f\\n\\"\\\\", "\u00e9\U0001f642"]',
        ),
        ({"\U0001f642": 1, "\ufb01": 2, "Z": 3, "a": 4}, '{"Z": 3, "a": 4, "\ufb01": 2, "\U0001f642": 1}'),
        ([], "[]"),
    ],
)
def test_values_are_written_as_python_json_with_sorted_keys(state: Any, text: str) -> None:
    [body] = bodies({"type": "noul", "instructions": "i"}, state)
    assert body == f"Context:\n{text}\n\nQuestion: i\n{YES_NO}"


def test_T06_question_ids_and_neighbours_are_not_shown() -> None:
    one = {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": None}}
    alone = OPEN_JEV.render(parse_request({"state": "s", "questions": {"x": one}}))
    among = OPEN_JEV.render(
        parse_request(
            {"state": "s", "questions": {"n": {"type": "noul", "instructions": "i"}, "renamed": one}}
        )
    )
    assert list(among.prompts())[1:] == list(alone.prompts())


def cua(question: dict[str, Any], state: Any = "tree") -> str:
    request = parse_request({"state": state, "questions": {"q": {"type": "choice", **question}}})
    assert CUA.check(request) == []
    [prompt] = CUA.render(request).prompts()
    return prompt


def test_the_cua_s1_system_message_is_the_one_it_was_trained_with() -> None:
    digest = hashlib.sha256(CUA_SYSTEM.encode()).hexdigest()
    assert digest == "7916645b0ea961e496a7feb506714da296c28a665facc888391a1376c3f47137"


def test_a_cua_s1_prompt_lists_all_options_and_leaves_the_thinking_open() -> None:
    assert cua(
        {"instructions": "Keep the files.", "criteria": {"d": "Click Delete", "c": "Click Cancel"}}
    ) == (
        f"<|im_start|>system\n{CUA_SYSTEM}<|im_end|>\n<|im_start|>user\n"
        "Goal: Keep the files.\n\n"
        "App: Cua Driver\nTask family: closed-candidate decision\n\n"
        "Accessibility tree:\ntree\n\n"
        'Options:\nA. Decision "Click Delete" -> select\nB. Decision "Click Cancel" -> select\n\n'
        "Answer with a single letter.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


@pytest.mark.parametrize("fields", [{}, {"instructions": None}, {"instructions": ""}])
def test_cua_s1_without_a_goal_has_no_goal_line(fields: dict[str, Any]) -> None:
    prompt = cua({"criteria": {"a": None}, **fields})
    assert "<|im_start|>user\nApp: Cua Driver\n" in prompt and "Goal:" not in prompt


def test_cua_s1_keeps_the_order_of_keys_and_escapes_labels() -> None:
    prompt = cua(
        {
            "instructions": {"z": 1, "a": 2},
            "criteria": {"key": None, "x": 'say "hi"\n\u00e9', "y": {"b": 1, "a": "q"}},
        },
        state={"z": [1], "a": 2},
    )
    assert 'Goal: {"z": 1, "a": 2}\n' in prompt
    assert 'Accessibility tree:\n{"z": [1], "a": 2}\n' in prompt
    assert 'A. Decision "key" -> select\n' in prompt
    assert 'B. Decision "say \\"hi\\"\\n\u00e9" -> select\n' in prompt
    assert 'C. Decision "{\\"b\\": 1, \\"a\\": \\"q\\"}" -> select\n' in prompt


def cua_issues(questions: dict[str, Any], state: Any = "tree") -> list[tuple[tuple[Any, ...], str]]:
    return [
        (issue.loc, issue.type)
        for issue in CUA.check(parse_request({"state": state, "questions": questions}))
    ]


def options(count: int) -> dict[str, Any]:
    return {"type": "choice", "criteria": {f"o{i}": None for i in range(count)}}


def test_cua_s1_takes_26_options_and_64_questions() -> None:
    assert cua_issues({"q": options(26)}) == []
    assert cua_issues({"q": options(27)}) == [(("body", "questions", "q", "criteria"), "too_long")]
    assert cua_issues({str(i): options(1) for i in range(64)}) == []
    assert cua_issues({str(i): options(1) for i in range(65)}) == [(("body", "questions"), "too_long")]


@pytest.mark.parametrize("state", ["", {}, []])
def test_cua_s1_refuses_an_empty_state(state: Any) -> None:
    assert cua_issues({"q": options(2)}, state) == [(("body", "state"), "value_error")]


def test_cua_s1_refuses_noul_and_score() -> None:
    assert cua_issues(
        {"n": {"type": "noul", "instructions": "i"}, "s": {"type": "score", "criteria": ["x"]}}
    ) == [
        (("body", "questions", "n", "type"), "unsupported_type"),
        (("body", "questions", "s", "type"), "unsupported_type"),
    ]


def assert_every_cut_is_safe(rendered: RenderedRequest) -> None:
    for question in rendered.questions:
        for tail in question.tails:
            pieces = [*rendered.head, *question.stem, *tail]
            for left, right in pairwise(pieces):
                assert left.text.endswith("\n") and right.text[0].isascii() and right.text[0].isalpha()


@given(requests())
def test_open_jev_cuts_lie_between_a_line_feed_and_a_letter(body: dict[str, Any]) -> None:
    rendered = OPEN_JEV.render(parse_request(body))
    assert rendered.cuttable
    assert_every_cut_is_safe(rendered)


@given(CUA_REQUESTS)
def test_cua_s1_cuts_lie_between_a_line_feed_and_a_letter(body: dict[str, Any]) -> None:
    rendered = CUA.render(parse_request(body))
    assert rendered.cuttable
    assert_every_cut_is_safe(rendered)


@pytest.mark.parametrize(
    ("prefix", "cuttable"), [("", True), ("<a>\n", True), ("<a>", False), ("\n ", False)]
)
def test_a_prefix_without_a_final_line_feed_is_not_cut(prefix: str, cuttable: bool) -> None:
    request = parse_request({"state": "s", "questions": {"q": {"type": "noul", "instructions": "i"}}})
    assert OpenJevPrompts(prefix, SUFFIX).render(request).cuttable is cuttable


@given(JSON.filter(lambda value: isinstance(value, dict | list)))
def test_json_values_read_back_from_the_prompt(state: Any) -> None:
    [body] = bodies({"type": "noul", "instructions": "i"}, state)
    text = body.removeprefix("Context:\n").removesuffix(f"\n\nQuestion: i\n{YES_NO}")
    assert json.loads(text) == state
