"""Policy checks: deadlines, dates, amounts and conditions against a rule that stands in the state."""

from __future__ import annotations

import json
from typing import Any

from train.data.entities import MONTHS
from train.data.example import Example, Source, choice, noul, score
from train.data.grammar import split_pairs
from train.data.pools import pool

_DAY_LIMITS = (7, 10, 14, 30, 60, 90)
_AMOUNT_LIMITS = (50, 100, 200, 300, 500)
_PAPERS = ("receipt", "signature", "photo", "passport", "contract", "form")
_MISSING_LEVELS = (
    ("none", "one", "two", "three"),
    ("nothing missing", "one missing", "two missing", "three missing"),
)


def make_policy(source: Source) -> Example:
    makers = (_days, _days, _amounts, _amounts, _dates, _papers)
    return source.rng.choice(makers)(source)


def _compared(source: Source, limits: tuple[int, ...], most: int) -> tuple[int, int]:
    """A limit and a value, about as often above as not, of a pair that this split owns."""
    while True:
        limit = source.rng.choice(limits)
        above = source.chance(0.5)
        low, high = (limit + 1, min(most, limit * 4)) if above else (1, limit)
        value = source.rng.randint(low, high)
        if split_pairs(f"{limit}/{value}") == source.split:
            return limit, value


def _state(source: Source, rule: str, fact: str, fields: dict[str, Any]) -> Any:
    """Rule and fact in either order, as two lines, or as fields."""
    draw = source.rng.random()
    if draw < 0.3:
        extra = {"case": source.say("<order>"), "city": source.say("<city>")} if source.chance(0.5) else {}
        return {**fields, **extra}
    if draw < 0.5:
        return {"policy": rule, "case": fact}
    sentences = [rule, fact]
    if source.chance(0.4):
        sentences.reverse()
    return source.rng.choice((" ", "\n")).join(sentences)


def _filled(source: Source, name: str, **values: object) -> str:
    """A sentence of pool `name` with a value for each @slot."""
    text = source.one(pool("policy", name))
    for slot, value in values.items():
        text = text.replace(f"@{slot}", str(value))
    return text


def _days(source: Source) -> Example:
    limit, value = _compared(source, _DAY_LIMITS, 120)
    fields = {"return_window_days": limit, "days_since_purchase": value}
    rule, fact = _filled(source, "days.rules", limit=limit), _filled(source, "days.facts", value=value)
    state = _state(source, rule, fact, fields)
    in_time = value <= limit
    if source.chance(0.3):
        return Example("policy", state, *noul(source, _filled(source, "days.late"), not in_time))
    return Example("policy", state, *noul(source, _filled(source, "days.questions"), in_time))


def _amounts(source: Source) -> Example:
    limit, value = _compared(source, _AMOUNT_LIMITS, 900)
    fields = {"limit_without_approval": limit, "claim": value}
    rule, fact = _filled(source, "amounts.rules", limit=limit), _filled(source, "amounts.facts", value=value)
    state = _state(source, rule, fact, fields)
    if source.chance(0.6):
        return Example("policy", state, *noul(source, _filled(source, "amounts.questions"), value > limit))
    options: list[tuple[str, str | None]] = [
        ("pay", "no approval is needed"),
        ("approval", "ask a manager first"),
    ]
    source.rng.shuffle(options)
    if source.chance(0.5):
        options = [(name, None) for name, _ in options]
    right = "approval" if value > limit else "pay"
    return Example("policy", state, choice(_filled(source, "amounts.decisions"), dict(options)), right)


def _dates(source: Source) -> Example:
    """Two days of one month, or the same or another day of the month before or after."""
    while True:
        month = source.rng.randint(0, 10)
        limit = (month, source.rng.randint(2, 27))
        shift = source.rng.choice((0, 0, 0, 1, -1))
        low, high = (limit[1] + 1, 28) if source.chance(0.5) else (1, limit[1])
        value = (max(0, month + shift), source.rng.randint(low, high))
        if split_pairs(f"{limit}/{value}") == source.split:
            break
    due, came = (f"{day} {MONTHS[number]}" for number, day in (limit, value))
    fields = {"deadline": due, "received": came}
    rule, fact = _filled(source, "dates.rules", limit=due), _filled(source, "dates.facts", value=came)
    state = _state(source, rule, fact, fields)
    if source.chance(0.4):
        return Example("policy", state, *noul(source, _filled(source, "dates.late"), value > limit))
    return Example("policy", state, *noul(source, _filled(source, "dates.questions"), value <= limit))


def _papers(source: Source) -> Example:
    needed = source.rng.sample(_PAPERS, source.rng.randint(2, 3))
    missing = source.rng.sample(needed, source.rng.choice((0, 0, 1, 1, 2)))
    given = [paper for paper in needed if paper not in missing]
    source.rng.shuffle(given)
    rule = _filled(source, "papers.rules", needed=_listed(needed))
    fact = _filled(source, "papers.facts", given=_listed(given))
    state = _state(source, rule, fact, {"needed": needed, "given": given})
    if source.split == "test" and isinstance(state, dict) and "needed" in state:
        # Two short lists have so few values that training shows most of them; sentences are the split's own.
        state = {"policy": rule, "case": fact}
    draw = source.rng.random()
    if draw < 0.3:
        levels = list(source.rng.choice(_MISSING_LEVELS))[: len(needed) + 1]
        return Example("policy", state, score(_filled(source, "papers.count"), levels), len(missing))
    if draw < 0.65:
        return Example("policy", state, *noul(source, _filled(source, "papers.complete"), not missing))
    paper = source.rng.choice(missing if missing and source.chance(0.5) else needed)
    return Example(
        "policy", state, *noul(source, _filled(source, "papers.one", paper=paper), paper in missing)
    )


def _listed(papers: list[str]) -> str:
    if not papers:
        return "nothing"
    named = [f"{'an' if paper[0] in 'aeiou' else 'a'} {paper}" for paper in papers]
    return named[0] if len(named) == 1 else ", ".join(named[:-1]) + " and " + named[-1]


def canonical(value: Any) -> str:
    """JSON of one spelling, for hashes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
