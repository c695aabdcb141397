"""Rows are a function of seed, split and number; every row is a question that the API takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.data.concepts import load_concepts
from train.data.example import Example
from train.data.generate import DOMAINS, digest, example, examples
from train.data.grammar import SPLITS, Split

from openjev.contract import parse_request

ROOT = Path(__file__).resolve().parents[2]
SEEDS = st.integers(0, 2**32)
split_names = st.sampled_from(SPLITS)


@settings(deadline=None, max_examples=20)
@given(split=split_names, seed=SEEDS, start=st.integers(0, 10**6))
def test_a_row_depends_on_nothing_that_was_made_before(split: Split, seed: int, start: int) -> None:
    rows = list(examples(split, start, start + 10, seed))
    assert [example(split, index, seed) for index in reversed(range(start, start + 10))] == rows[::-1]
    assert digest(split, start, start + 10, seed) == digest(split, start, start + 10, seed)


@settings(deadline=None, max_examples=10)
@given(split=split_names, seed=SEEDS)
def test_another_seed_split_or_range_has_another_hash(split: Split, seed: int) -> None:
    hashes = {digest(name, 0, 5, value) for name in SPLITS for value in (seed, seed + 1)}
    assert len(hashes) == 2 * len(SPLITS)
    assert digest(split, 0, 6, seed) not in hashes


def test_other_processes_make_the_same_rows() -> None:
    code = "from train.data.generate import digest; print(digest('test', 0, 100))"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == digest("test", 0, 100)


def check_shape(made: Example) -> None:
    kind, criteria = made.question["type"], made.question.get("criteria")
    if kind == "noul":
        assert isinstance(made.label, bool)
        assert criteria is None or set(criteria) in ({"true"}, {"true", "false"})
    elif kind == "choice":
        assert 2 <= len(criteria) <= 12
        assert made.label in criteria
    else:
        assert kind == "score"
        assert 2 <= len(criteria) <= 6 and len(set(criteria)) == len(criteria)
        assert type(made.label) is int and 0 <= made.label < len(criteria)


@settings(deadline=None, max_examples=25)
@given(split=split_names, seed=SEEDS)
def test_questions_have_the_shape_of_their_type_and_a_valid_answer(split: Split, seed: int) -> None:
    for made in examples(split, 0, 60, seed):
        check_shape(made)
        question = made.question["instructions"]
        assert not set("@{}<>|") & set(question), question
        assert not set("@{}<>|") & (set(str(made.state)) - set("@{}")), made.state
        parse_request({"model": "demo", "state": made.state, "questions": {"q": made.question}})


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_covers_every_domain_type_and_width(split: Split) -> None:
    rows = list(examples(split, 0, 8_000))
    assert {made.domain for made in rows} == set(DOMAINS)
    widths = {(made.question["type"], len(made.question.get("criteria", ()))) for made in rows}
    assert {("choice", n) for n in range(2, 13)} <= widths
    assert {("score", n) for n in range(2, 7)} <= widths
    assert {("noul", n) for n in range(3)} <= widths
    assert {type(made.state) for made in rows} == {str, dict, list}


@pytest.mark.parametrize("split", SPLITS)
def test_the_place_of_the_right_option_says_nothing(split: Split) -> None:
    rows = [made for made in examples(split, 0, 4_000) if made.question["type"] == "choice"]
    for width in (2, 3, 4):
        places = Counter(made.candidate for made in rows if len(made.question["criteria"]) == width)
        total = sum(places.values())
        assert set(places) == set(range(width))
        assert all(0.7 / width < count / total < 1.3 / width for count in places.values())


@pytest.mark.parametrize("split", SPLITS)
def test_options_come_bare_and_described(split: Split) -> None:
    rows = [made for made in examples(split, 0, 500) if made.question["type"] == "choice"]
    bare = {all(value is None for value in made.question["criteria"].values()) for made in rows}
    assert bare == {True, False}


@pytest.mark.parametrize("split", SPLITS)
def test_yes_and_no_are_both_common_in_every_domain(split: Split) -> None:
    rows = [made for made in examples(split, 0, 4_000) if made.question["type"] == "noul"]
    for domain in DOMAINS:
        answers = [made.label for made in rows if made.domain == domain]
        assert 0.2 < sum(map(bool, answers)) / len(answers) < 0.8, domain


@settings(deadline=None, max_examples=10)
@given(split=split_names, seed=SEEDS)
def test_policy_answers_follow_from_the_numbers_in_the_state(split: Split, seed: int) -> None:
    checked = 0
    for made in examples(split, 0, 400, seed):
        if not isinstance(made.state, dict):
            continue
        asked = made.question["instructions"].lower()
        if "days_since_purchase" in made.state:
            late = made.state["days_since_purchase"] > made.state["return_window_days"]
            asks_for_late = re.search(r"\btoo late|\btoo long|\bover\b", asked) is not None
            assert made.label == (late if asks_for_late else not late)
            checked += 1
        elif "claim" in made.state:
            above = made.state["claim"] > made.state["limit_without_approval"]
            assert made.label in (
                (above,) if made.question["type"] == "noul" else (("pay", "approval")[above],)
            )
            checked += 1
        elif "needed" in made.state and made.question["type"] == "score":
            assert made.label == len(set(made.state["needed"]) - set(made.state["given"]))
            checked += 1
    assert checked


def pattern(template: str) -> re.Pattern[str]:
    """What a template can say, whatever its slots hold."""
    text = re.sub(r"\{([^{}]*)\}", r"(?:\1)", re.sub(r"([.?+()*$])", r"\\\1", template))
    return re.compile(re.sub(r"<[a-z]+>", ".+", text).replace(" ", r"\s*"), flags=re.IGNORECASE)


@pytest.mark.parametrize("domain", ["routing", "tools", "logs"])
def test_a_text_holds_one_or_two_templates_of_its_concept(domain: str) -> None:
    concepts = load_concepts(domain)[:-1]  # the last of logs also stands for what is around
    patterns = [[pattern(template) for template in concept.templates["train"]] for concept in concepts]
    rows = [made for made in examples("train", 0, 3_000) if made.domain == domain]
    found = Counter(
        max(sum(one.search(json.dumps(made.state)) is not None for one in ones) for ones in patterns)
        for made in rows
    )
    assert 0.1 < found[2] / len(rows) < 0.5
    assert found[1] > found[2]
