"""What a pool promises: enough templates, a question's direction in its words, known words when held out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from train.data import pools
from train.data.grammar import SPLITS

from tests.train.pools import Pool, question_pools, wordings

POOLS = dict(question_pools())
REVERSING = r"\b(not|wrong|false|other than)\b"
# Pools that ask for the opposite of their neighbours, with the words that say so.
OPPOSITES = {
    "messages.nouls.reversed": REVERSING,
    "messages.tools.reversed": REVERSING,
    "messages.logs.reversed": REVERSING,
    "policy.days.late": r"\b(too late|too long|over)\b",
    "policy.dates.late": r"\b(too late|miss|missed)\b",
    "policy.papers.one": r"\b(missing|not|still|without)\b",
    "graded.sentiment.unhappy": r"\b(unhappy|bad|negative|complain|complaints|disliked?)\b",
}
DIRECT = {
    "messages.nouls": REVERSING,
    "messages.tools.nouls": REVERSING,
    "messages.logs.nouls": REVERSING,
    "policy.days.questions": OPPOSITES["policy.days.late"],
    "policy.dates.questions": OPPOSITES["policy.dates.late"],
    "policy.papers.complete": OPPOSITES["policy.papers.one"],
    "graded.sentiment.happy": OPPOSITES["graded.sentiment.unhappy"],
}


def said(pool: Pool) -> list[str]:
    return [text for split in SPLITS for template in pool[split] for text in wordings(template)]


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_has_many_templates_and_no_two_say_the_same(name: str) -> None:
    assert sum(map(len, POOLS[name].values())) >= 14
    assert len(set(said(POOLS[name]))) == len(said(POOLS[name]))


@pytest.mark.parametrize("name", [name for name in POOLS if not name.startswith("framing")])
def test_words_of_held_out_templates_occur_in_training(name: str) -> None:
    known = set(re.findall(r"[a-z]+", " ".join(POOLS[name]["train"]).lower()))
    for split in ("validation", "test"):
        for template in POOLS[name][split]:
            words = set(re.findall(r"[a-z]+", template.lower()))
            assert len(words & known) >= 0.6 * len(words), (template, words - known)


@pytest.mark.parametrize("name", OPPOSITES)
def test_an_opposite_question_says_so(name: str) -> None:
    assert [text for text in said(POOLS[name]) if not re.search(OPPOSITES[name], text)] == []


@pytest.mark.parametrize("name", DIRECT)
def test_a_direct_question_has_no_reversing_word(name: str) -> None:
    assert [text for text in said(POOLS[name]) if re.search(DIRECT[name], text)] == []


@pytest.mark.parametrize(
    "text", ["- a template before any name", "# twice\n- one\n# twice", "# name\nneither name nor template"]
)
def test_a_line_of_no_kind_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(pools, "_FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"broken\.txt:\d: found .*, allowed: '# ' with a new name or '- '"):
        pools.load_pools("broken")
