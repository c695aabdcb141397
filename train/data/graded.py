"""Domains on a scale: how urgent a request is, how a review feels about each thing it names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from train.data import framing
from train.data.concepts import load_concepts
from train.data.example import Example, Source, choice, noul, score
from train.data.grammar import SPLITS, Split, split_templates
from train.data.pools import pool

# Level texts by number of levels, each with the grades (0 to 5) at which a new level begins.
_URGENCY_LEVELS: Mapping[int, tuple[Sequence[int], Sequence[Sequence[str]]]] = {
    2: ((3,), (("not urgent", "urgent"), ("can wait", "cannot wait"), ("later", "today"))),
    3: ((2, 4), (("low", "normal", "high"), ("no hurry", "soon", "at once"))),
    4: (
        (1, 3, 5),
        (("no hurry", "this week", "today", "danger to people"), ("none", "low", "high", "extreme")),
    ),
    5: ((1, 2, 3, 4), (("no hurry", "this week", "tomorrow", "today", "right now"),)),
    6: (
        (1, 2, 3, 4, 5),
        (
            ("no hurry", "some days", "tomorrow", "today", "right now", "danger to people"),
            ("none", "low", "medium", "high", "critical", "danger"),
        ),
    ),
}
_PRIORITY_OPTIONS: tuple[tuple[str, str], ...] = (
    ("low", "can wait for a week or more"),
    ("normal", "should be done in the next days or tomorrow"),
    ("high", "must be done today"),
    ("emergency", "everything is down or people are in danger"),
)
_PRIORITY_OF_GRADE = (0, 1, 1, 2, 3, 3)


def make_urgency(source: Source) -> Example:
    grade = source.rng.choice(load_concepts("urgency"))
    text = source.say(source.rng.choice(grade.templates[source.split]))
    state = framing.state(source, framing.message(source, text), "request")
    draw = source.rng.random()
    if draw < 0.45:
        count = source.rng.choice(sorted(_URGENCY_LEVELS))
        begins, texts = _URGENCY_LEVELS[count]
        label = sum(grade.level >= begin for begin in begins)
        question = score(source.one(pool("graded", "urgency.scores")), list(source.rng.choice(texts)))
        return Example("urgency", state, question, label)
    if draw < 0.6:
        described = source.chance(0.5)
        order = source.rng.sample(_PRIORITY_OPTIONS, len(_PRIORITY_OPTIONS))
        options = {name: about if described else None for name, about in order}
        right = _PRIORITY_OPTIONS[_PRIORITY_OF_GRADE[grade.level]][0]
        return Example(
            "urgency", state, choice(source.one(pool("graded", "urgency.priorities")), options), right
        )
    asked, yes = source.rng.choice(
        (("today", grade.level >= 3), ("wait", grade.level <= 1), ("danger", grade.level == 5))
    )
    return Example("urgency", state, *noul(source, source.one(pool("graded", f"urgency.{asked}")), yes))


_THINGS: Mapping[str, tuple[str, ...]] = {
    "shop": ("delivery", "price", "packaging", "customer service", "quality", "website"),
    "hotel": ("room", "breakfast", "staff", "location", "bed", "pool"),
    "restaurant": ("food", "service", "wine", "music", "dessert", "table"),
    "app": ("design", "speed", "search", "support", "update", "sign up"),
}
_STAR_LEVELS: Mapping[int, tuple[Sequence[int], Sequence[Sequence[str]]]] = {
    3: ((2, 3), (("bad", "neutral", "good"), ("negative", "neutral", "positive"))),
    5: (
        (1, 2, 3, 4),
        (
            ("very bad", "bad", "neutral", "good", "very good"),
            ("one star", "two stars", "three stars", "four stars", "five stars"),
        ),
    ),
}


@cache
def phrases() -> dict[Split, dict[int, list[str]]]:
    """Every wording of every grade. Words of praise are vocabulary: a split owns combinations of them."""
    wordings: dict[int, list[str]] = {}
    grade = 0
    for line in (Path(__file__).parent / "text" / "sentiment.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("grade: "):
            grade = int(line[7:])
        elif line.startswith("- "):
            wordings.setdefault(grade, []).extend(_wordings(line[2:]))
    parts = {grade: split_templates(texts) for grade, texts in wordings.items()}
    return {split: {grade: part[split] for grade, part in parts.items()} for split in SPLITS}


def _wordings(template: str) -> list[str]:
    parts = re.split(r"\{([^{}]*)\}", template)
    alternatives = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(picked) for picked in itertools.product(*alternatives)]


def make_sentiment(source: Source) -> Example:
    """A review of one to three things; the question is about one of them."""
    place = source.rng.choice(sorted(_THINGS))
    things = source.rng.sample(_THINGS[place], source.rng.choice((1, 2, 2, 3)))
    grades = {thing: source.rng.randint(0, 4) for thing in things}
    clauses = []
    for thing, grade in grades.items():
        phrase = source.rng.choice(phrases()[source.split][grade])
        clause = source.one(pool("graded", "sentiment.clauses"))
        clauses.append(clause.replace("@thing", thing).replace("@phrase", phrase))
    asked = source.rng.choice(things)
    question, label = _ask_feeling(source, asked, grades[asked])
    state: Any = framing.state(source, framing.message(source, *clauses), "review")
    return Example("sentiment", state, question, label)


def _ask_feeling(source: Source, thing: str, grade: int) -> tuple[dict[str, Any], bool | str | int]:
    def ask(name: str) -> str:
        return source.one(pool("graded", f"sentiment.{name}")).replace("@thing", thing)

    draw = source.rng.random()
    if draw < 0.3:
        count = source.rng.choice(sorted(_STAR_LEVELS))
        begins, texts = _STAR_LEVELS[count]
        return score(ask("stars"), list(source.rng.choice(texts))), sum(grade >= begin for begin in begins)
    if draw < 0.6:
        names = ["positive", "neutral", "negative"]
        source.rng.shuffle(names)
        right = "positive" if grade > 2 else "negative" if grade < 2 else "neutral"
        return choice(ask("feelings"), dict.fromkeys(names)), right
    if source.chance(0.5):
        return noul(source, ask("happy"), grade > 2)
    return noul(source, ask("unhappy"), grade < 2)
