"""Nothing of one split is seen in another: wordings of templates, names, compared numbers, whole states."""

from __future__ import annotations

import itertools
import json
import re
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from train.data.entities import Entities
from train.data.generate import examples
from train.data.grammar import SPLITS, Split, split_pairs, split_templates
from train.data.policy import canonical

from tests.train.pools import PAIRS, Pool, concept_pools, phrase_pools, question_pools, wordings

ROWS = 1_000
NAMED = ("person", "city", "company")  # products are also ordinary words
POOLS = [*question_pools(), *concept_pools(), *phrase_pools()]
COMPARED = (
    ("return_window_days", "days_since_purchase"),
    ("limit_without_approval", "claim"),
    ("deadline", "received"),
)
TEXTS = st.lists(st.text("abcde ", min_size=1, max_size=30), min_size=3, max_size=30, unique=True)


@pytest.mark.parametrize("pool", [pool for _, pool in POOLS], ids=[name for name, _ in POOLS])
def test_no_sentence_can_come_from_two_splits(pool: Pool) -> None:
    said = {split: set().union(*map(wordings, pool[split])) for split in SPLITS}
    assert all(said.values())
    for one, other in PAIRS:
        assert not said[one] & said[other]


@settings(deadline=None)
@given(templates=TEXTS, order=st.randoms())
def test_split_templates_divides_any_list_in_any_order(templates: list[str], order: Random) -> None:
    parts = split_templates(templates)
    assert sorted(itertools.chain.from_iterable(parts.values())) == sorted(templates)
    assert all(parts.values())
    order.shuffle(templates)
    assert split_templates(templates) == parts


def test_a_repeated_template_stays_in_one_split() -> None:
    parts = split_templates(["one word", "two words", "three words"] * 2)
    assert sorted(map(len, parts.values())) == [1, 1, 1]


def test_too_few_templates_are_refused() -> None:
    with pytest.raises(ValueError, match="templates: found 2 different, allowed: at least 3"):
        split_templates(["one", "two", "two"])


@pytest.mark.parametrize("pool", ["person", "city", "product", "company"])
def test_names_belong_to_one_split(pool: str) -> None:
    names = {split: set(Entities(split).pools[pool]) for split in SPLITS}
    assert all(names.values())
    for one, other in PAIRS:
        assert not names[one] & names[other]


@pytest.mark.parametrize("split", SPLITS)
def test_rows_name_nobody_of_another_split(split: Split) -> None:
    foreign = {
        name for other in SPLITS if other != split for pool in NAMED for name in Entities(other).pools[pool]
    }
    words: set[str] = set()
    for made in examples(split, 0, ROWS):
        words.update(re.findall(r"[A-Z][a-z]+", json.dumps(made.state)))
    assert not words & foreign


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_compared_numbers_belong_to_the_split_that_shows_them(seed: int) -> None:
    shown: dict[str, set[tuple[object, object]]] = {}
    for split in SPLITS:
        states = [made.state for made in examples(split, 0, 300, seed) if made.domain == "policy"]
        pairs = shown[split] = {
            (state[limit], state[value])
            for state in states
            if isinstance(state, dict)
            for limit, value in COMPARED
            if limit in state
        }
        assert pairs
        assert all(split_pairs(f"{a}/{b}") == split for a, b in pairs if isinstance(a, int))
    for one, other in PAIRS:
        assert not shown[one] & shown[other]


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32))
@example(seed=64947)  # training and validation show the same two lists of papers
def test_no_state_and_no_question_of_a_split_occurs_in_another(seed: int) -> None:
    rows = {split: list(examples(split, 0, 500, seed)) for split in SPLITS}
    states = {split: {canonical(made.state) for made in rows[split]} for split in SPLITS}
    asked = {split: {made.question["instructions"] for made in rows[split]} for split in SPLITS}
    for one, other in PAIRS:
        if "test" in (one, other):
            assert not states[one] & states[other]
        shared = [json.loads(state) for state in states[one] & states[other]]
        assert all(isinstance(state, dict) and "needed" in state for state in shared)
        assert not asked[one] & asked[other]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_lists_of_papers_whose_values_are_few_are_told_in_sentences_in_the_test(seed: int) -> None:
    made = [row.state for row in examples("test", 0, 500, seed) if isinstance(row.state, dict)]
    assert made and not any("needed" in state for state in made)
