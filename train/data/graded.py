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
from train.data.example import Example, Source, SplitPool, choice, noul, score
from train.data.grammar import SPLITS, Split, split_templates

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
_URGENCY_SCORES = SplitPool(
    "How urgent is the message?",
    "Rate the urgency of the message.",
    "How quickly must somebody act?",
    "How urgent is {this|the request}?",
    "Rate how urgent the request is.",
    "How quickly must the message be answered?",
)
_TODAY = SplitPool(
    "Must somebody act today?",
    "Does the message need action today?",
    "Is action needed today?",
    "Must somebody answer today or sooner?",
    "Does the request need action today?",
    "Is an answer needed today?",
)
_WAIT = SplitPool(
    "Can the message wait until next week?",
    "Can this wait for some days?",
    "Is it fine to answer next week?",
    "Can the request wait until next week?",
    "Can the answer wait for some days?",
    "Is it fine to wait until next week?",
)
_DANGER = SplitPool(
    "Is a person in danger?",
    "Is somebody hurt or in danger?",
    "Are people in danger?",
    "Is there danger for people?",
    "Is somebody in danger?",
    "Are people hurt or in danger?",
)
_PRIORITIES = SplitPool(
    "Which priority should the message get?",
    "What priority does the request have?",
    "Choose the priority of the message.",
    "Which priority {fits|is right for} the request?",
    "Choose the priority of the request.",
    "What priority should the message get?",
)
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
        question = score(source.one(_URGENCY_SCORES), list(source.rng.choice(texts)))
        return Example("urgency", state, question, label)
    if draw < 0.6:
        described = source.chance(0.5)
        order = source.rng.sample(_PRIORITY_OPTIONS, len(_PRIORITY_OPTIONS))
        options = {name: about if described else None for name, about in order}
        right = _PRIORITY_OPTIONS[_PRIORITY_OF_GRADE[grade.level]][0]
        return Example("urgency", state, choice(source.one(_PRIORITIES), options), right)
    pool, yes = source.rng.choice(
        ((_TODAY, grade.level >= 3), (_WAIT, grade.level <= 1), (_DANGER, grade.level == 5))
    )
    return Example("urgency", state, *noul(source, source.one(pool), yes))


_THINGS: Mapping[str, tuple[str, ...]] = {
    "shop": ("delivery", "price", "packaging", "customer service", "quality", "website"),
    "hotel": ("room", "breakfast", "staff", "location", "bed", "pool"),
    "restaurant": ("food", "service", "wine", "music", "dessert", "table"),
    "app": ("design", "speed", "search", "support", "update", "sign up"),
}
_CLAUSES = SplitPool(
    "The @thing was @phrase.",
    "The @thing: @phrase.",
    "About the @thing: @phrase.",
    "I found the @thing @phrase.",
    "The @thing is @phrase.",
    "As for the @thing, it was @phrase.",
    "For us the @thing was @phrase.",
    "{To me|In my view} the @thing was @phrase.",
    "We thought the @thing was @phrase.",
    "I would call the @thing @phrase.",
)
_HAPPY = SplitPool(
    "Is the writer happy with the @thing?",
    "Did the writer like the @thing?",
    "Is the opinion about the @thing positive?",
    "Does the writer praise the @thing?",
    "Is the writer positive about the @thing?",
    "Is the writer's opinion about the @thing positive?",
)
_UNHAPPY = SplitPool(
    "Is the writer unhappy with the @thing?",
    "Does the writer complain about the @thing?",
    "Is the opinion about the @thing negative?",
    "Is the writer negative about the @thing?",
    "Did the writer dislike the @thing?",
    "Is the writer's opinion about the @thing negative?",
)
_FEELINGS = SplitPool(
    "How does the writer feel about the @thing?",
    "What is the opinion about the @thing?",
    "What does the writer think of the @thing?",
    "Which label fits the opinion about the @thing?",
    "Choose the opinion about the @thing.",
    "What does the review say about the @thing?",
)
_STARS = SplitPool(
    "How satisfied is the writer with the @thing?",
    "Rate the opinion about the @thing.",
    "How good does the writer find the @thing?",
    "Rate how satisfied the writer is with the @thing.",
    "How good is the @thing in the review?",
)
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
        clauses.append(source.one(_CLAUSES).replace("@thing", thing).replace("@phrase", phrase))
    asked = source.rng.choice(things)
    question, label = _ask_feeling(source, asked, grades[asked])
    state: Any = framing.state(source, framing.message(source, *clauses), "review")
    return Example("sentiment", state, question, label)


def _ask_feeling(source: Source, thing: str, grade: int) -> tuple[dict[str, Any], bool | str | int]:
    def ask(pool: SplitPool) -> str:
        return source.one(pool).replace("@thing", thing)

    draw = source.rng.random()
    if draw < 0.3:
        count = source.rng.choice(sorted(_STAR_LEVELS))
        begins, texts = _STAR_LEVELS[count]
        return score(ask(_STARS), list(source.rng.choice(texts))), sum(grade >= begin for begin in begins)
    if draw < 0.6:
        names = ["positive", "neutral", "negative"]
        source.rng.shuffle(names)
        right = "positive" if grade > 2 else "negative" if grade < 2 else "neutral"
        return choice(ask(_FEELINGS), dict.fromkeys(names)), right
    if source.chance(0.5):
        return noul(source, ask(_HAPPY), grade > 2)
    return noul(source, ask(_UNHAPPY), grade < 2)
