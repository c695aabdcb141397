"""Policy checks: deadlines, dates, amounts and conditions against a rule that stands in the state."""

from __future__ import annotations

import json
from typing import Any

from train.data.entities import MONTHS
from train.data.example import Example, Source, SplitPool, choice, noul, score
from train.data.grammar import split_pairs

_DAY_LIMITS = (7, 10, 14, 30, 60, 90)
_AMOUNT_LIMITS = (50, 100, 200, 300, 500)
_DAY_RULES = SplitPool(
    "Returns are accepted within @limit days.",
    "Items can be returned up to @limit days after purchase.",
    "The return window is @limit days.",
    "Rule: returns within @limit days of purchase.",
    "We accept returns up to @limit days after purchase.",
    "Policy: the return window is @limit days.",
)
_DAY_FACTS = SplitPool(
    "{The customer|<person>} bought the <product> @value days ago.",
    "The purchase was @value days ago.",
    "The <product> was bought @value days ago.",
    "<person> asks to return a <product> bought @value days ago.",
    "It is @value days since the purchase of the <product>.",
    "@value days ago <person> bought the <product>.",
)
_DAY_QUESTIONS = SplitPool(
    "Is the return within the allowed time?",
    "Is the return in time?",
    "Is the purchase within the return window?",
    "Does the return window still cover the purchase?",
    "Is the purchase still within the allowed time?",
    "Is the item within the return window?",
)
_DAY_LATE = SplitPool(
    "Is the return too late?",
    "Is the return window over?",
    "Is it too late to return the item?",
    "Is the purchase too long ago?",
    "Is it too late for a return?",
)
_AMOUNT_RULES = SplitPool(
    "Expenses up to $@limit need no approval.",
    "Limit without approval: $@limit.",
    "Employees may spend up to $@limit without approval.",
    "Above $@limit a manager must approve.",
    "A manager must approve expenses above $@limit.",
    "Rule: expenses above $@limit need approval.",
)
_AMOUNT_FACTS = SplitPool(
    "<person> claims $@value for a <product>.",
    "The claim of <person> is $@value.",
    "The expense: a <product> for $@value.",
    "<person> spent $@value on a <product>.",
    "A <product> was bought for $@value.",
    "<person> hands in a claim of $@value.",
)
_AMOUNT_QUESTIONS = SplitPool(
    "Does the claim need approval?",
    "Must a manager approve the expense?",
    "Is the amount above the limit?",
    "Is approval needed for the claim?",
    "Must a manager approve the claim?",
    "Does the expense need approval?",
)
_AMOUNT_DECISIONS = SplitPool(
    "What should happen to the claim?",
    "How should the claim be handled?",
    "Choose the next step for the claim.",
    "What is the next step for the expense?",
    "How should the expense be handled?",
)
_DATE_RULES = SplitPool(
    "The deadline is @limit.",
    "Applications are accepted until @limit.",
    "Forms must arrive by @limit.",
    "Last day for applications: @limit.",
    "The last day is @limit.",
)
_DATE_FACTS = SplitPool(
    "The form of <person> arrived on @value.",
    "<person> applied on @value.",
    "The application came on @value.",
    "Received from <person>: @value.",
    "The application of <person> arrived on @value.",
)
_DATE_QUESTIONS = SplitPool(
    "Did the application arrive in time?",
    "Was the deadline met?",
    "Is the application in time?",
    "Did it arrive before the deadline was over?",
    "Was the application in time?",
)
_DATE_LATE = SplitPool(
    "Is the application too late?",
    "Was the deadline missed?",
    "Did the form arrive too late?",
    "Did the application miss the deadline?",
    "Did the application arrive too late?",
)
_PAPERS = ("receipt", "signature", "photo", "passport", "contract", "form")
_PAPER_RULES = SplitPool(
    "Needed: @needed.",
    "A request needs @needed.",
    "Required papers: @needed.",
    "The rule asks for @needed.",
    "The papers needed are @needed.",
)
_PAPER_FACTS = SplitPool(
    "<person> sent @given.",
    "We received @given.",
    "Papers of <person>: @given.",
    "The request contains @given.",
    "<person> handed in @given.",
)
_PAPER_COMPLETE = SplitPool(
    "Is the request complete?",
    "Are all needed papers there?",
    "Does the request meet the rule?",
    "Are all papers there?",
    "Is everything there that the rule asks for?",
)
_PAPER_ONE = SplitPool(
    "Is the @paper missing?",
    "Is the @paper not there?",
    "Does the @paper still have to come?",
    "Is the needed @paper missing?",
)
_PAPER_COUNT = SplitPool(
    "How many papers are missing?",
    "How much of the request is missing?",
    "Count the missing papers.",
    "How many of the needed papers are missing?",
)
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


def _filled(source: Source, pool: SplitPool, **values: object) -> str:
    text = source.one(pool)
    for name, value in values.items():
        text = text.replace(f"@{name}", str(value))
    return text


def _days(source: Source) -> Example:
    limit, value = _compared(source, _DAY_LIMITS, 120)
    fields = {"return_window_days": limit, "days_since_purchase": value}
    rule, fact = _filled(source, _DAY_RULES, limit=limit), _filled(source, _DAY_FACTS, value=value)
    state = _state(source, rule, fact, fields)
    in_time = value <= limit
    if source.chance(0.3):
        return Example("policy", state, *noul(source, source.one(_DAY_LATE), not in_time))
    return Example("policy", state, *noul(source, source.one(_DAY_QUESTIONS), in_time))


def _amounts(source: Source) -> Example:
    limit, value = _compared(source, _AMOUNT_LIMITS, 900)
    fields = {"limit_without_approval": limit, "claim": value}
    rule, fact = _filled(source, _AMOUNT_RULES, limit=limit), _filled(source, _AMOUNT_FACTS, value=value)
    state = _state(source, rule, fact, fields)
    if source.chance(0.6):
        return Example("policy", state, *noul(source, source.one(_AMOUNT_QUESTIONS), value > limit))
    options: list[tuple[str, str | None]] = [
        ("pay", "no approval is needed"),
        ("approval", "ask a manager first"),
    ]
    source.rng.shuffle(options)
    if source.chance(0.5):
        options = [(name, None) for name, _ in options]
    right = "approval" if value > limit else "pay"
    return Example("policy", state, choice(source.one(_AMOUNT_DECISIONS), dict(options)), right)


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
    rule, fact = _filled(source, _DATE_RULES, limit=due), _filled(source, _DATE_FACTS, value=came)
    state = _state(source, rule, fact, fields)
    if source.chance(0.4):
        return Example("policy", state, *noul(source, source.one(_DATE_LATE), value > limit))
    return Example("policy", state, *noul(source, source.one(_DATE_QUESTIONS), value <= limit))


def _papers(source: Source) -> Example:
    needed = source.rng.sample(_PAPERS, source.rng.randint(2, 3))
    missing = source.rng.sample(needed, source.rng.choice((0, 0, 1, 1, 2)))
    given = [paper for paper in needed if paper not in missing]
    source.rng.shuffle(given)
    rule = _filled(source, _PAPER_RULES, needed=_listed(needed))
    fact = _filled(source, _PAPER_FACTS, given=_listed(given))
    state = _state(source, rule, fact, {"needed": needed, "given": given})
    draw = source.rng.random()
    if draw < 0.3:
        levels = list(source.rng.choice(_MISSING_LEVELS))[: len(needed) + 1]
        return Example("policy", state, score(source.one(_PAPER_COUNT), levels), len(missing))
    if draw < 0.65:
        return Example("policy", state, *noul(source, source.one(_PAPER_COMPLETE), not missing))
    paper = source.rng.choice(missing if missing and source.chance(0.5) else needed)
    return Example("policy", state, *noul(source, _filled(source, _PAPER_ONE, paper=paper), paper in missing))


def _listed(papers: list[str]) -> str:
    if not papers:
        return "nothing"
    named = [f"{'an' if paper[0] in 'aeiou' else 'a'} {paper}" for paper in papers]
    return named[0] if len(named) == 1 else ", ".join(named[:-1]) + " and " + named[-1]


def canonical(value: Any) -> str:
    """JSON of one spelling, for hashes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
