"""Domains where a text expresses one concept of a list: routing, refunds, moderation, tools, logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.data import framing
from train.data.concepts import Concept, load_concepts
from train.data.example import Example, Source, choice, noul, score
from train.data.pools import load_pools, pool

_MOST_OPTIONS = 12


@dataclass(frozen=True)
class Domain:
    """How a domain is asked, by the names of its yes/no pools. In them @is stands for a concept's predicate
    and @who for one of `subjects`; reversed ones ask whether the predicate is wrong.
    """

    nouls: str = "nouls"
    reversed_nouls: str = "nouls.reversed"
    subjects: Sequence[str] = ("the message", "this message", "the text")
    key: str = "message"
    framed: bool = True
    levels: Mapping[int, Sequence[Sequence[str]]] | None = None


_SEVERITIES: Mapping[int, Sequence[Sequence[str]]] = {
    2: (("no problem", "a problem"), ("fine", "not fine"), ("normal", "needs attention")),
    3: (("fine", "minor problem", "serious problem"), ("none", "low", "high")),
    4: (("none", "low", "medium", "high"), ("harmless", "annoying", "serious", "dangerous")),
}
DOMAINS: Mapping[str, Domain] = {
    "routing": Domain(),
    "refunds": Domain(subjects=("the customer", "the customer", "the writer", "the message")),
    "moderation": Domain(
        subjects=("the comment", "this comment", "the text", "the message"),
        key="comment",
        levels=_SEVERITIES,
    ),
    "tools": Domain("tools.nouls", "tools.reversed", key="request"),
    "logs": Domain(
        "logs.nouls",
        "logs.reversed",
        key="log",
        framed=False,
        levels={key: value for key, value in _SEVERITIES.items() if key < 4},
    ),
}
# How often a text has a second sentence of its concept, and a log a second line.
_SECOND_SENTENCE, _SECOND_LINE = 0.4, 0.3
_PRIMERS = 0.12
_SCORE_LEVEL: Mapping[int, Callable[[int], int]] = {
    2: lambda severity: int(severity > 0),
    3: lambda severity: min(severity, 2),
    4: lambda severity: severity,
}


def make(name: str, source: Source) -> Example:
    """An example of domain `name`: one concept expressed, one question about it."""
    domain, concepts = DOMAINS[name], load_concepts(name)
    concept = source.rng.choice(concepts)
    draw = source.rng.random()
    if domain.levels is not None and draw < 0.25:
        if source.chance(0.4):  # as many harmless texts as others
            concept = concepts[-1]
        return Example(name, _state(name, source, concept, None), *_score(name, source, concept))
    if draw < 0.55:
        denied = _other(source, concepts, concept) if source.chance(0.2) else None
        return Example(name, _state(name, source, concept, denied), *_choice(name, source, concepts, concept))
    asked = concept if source.chance(0.5) else _other(source, concepts, concept)
    denied = asked if asked is not concept and source.chance(0.3) else None
    return Example(name, _state(name, source, concept, denied), *_noul(domain, source, asked, concept))


def _other(source: Source, concepts: Sequence[Concept], concept: Concept) -> Concept:
    return source.rng.choice([other for other in concepts if other is not concept])


def _state(name: str, source: Source, concept: Concept, denied: Concept | None) -> Any:
    domain = DOMAINS[name]
    if not domain.framed:
        return _log(source, concept)
    sentences = [text[:1].upper() + text[1:] for text in _said(source, concept, _SECOND_SENTENCE)]
    denials = load_pools("messages").get(f"{name}.denials")
    if denied is not None and denials is not None:
        denial = source.one(denials).replace("@is", source.rng.choice(denied.predicates))
        sentences.insert(source.rng.randint(0, len(sentences)), denial)
    return framing.state(source, framing.message(source, *sentences), domain.key)


def _said(source: Source, concept: Concept, second: float) -> list[str]:
    """A sentence of the concept and, with probability `second`, one of another of its templates.

    Some texts of training are a description of the concept and nothing else: to compare a text with options
    in its own words is learnt first, and other words by leaning on that.
    """
    if source.split == "train" and source.chance(_PRIMERS):
        return [source.rng.choice(concept.about)]
    templates = concept.templates[source.split]
    count = 2 if len(templates) > 1 and source.chance(second) else 1
    return [source.say(template) for template in source.rng.sample(templates, count)]


def _log(source: Source, concept: Concept) -> Any:
    """The concept's lines among routine ones, as text or as records."""
    routine = load_concepts("logs")[-1]
    said = _said(source, concept, 0.0 if concept is routine else _SECOND_LINE)
    healthy = routine.templates[source.split]
    lines = [("INFO", source.say(source.rng.choice(healthy))) for _ in range(source.rng.randint(0, 2))]
    for text in said:
        word = "INFO" if concept.level == 0 else source.rng.choice(("ERROR", "ERROR", "WARN"))
        lines.insert(source.rng.randint(0, len(lines)), (word, text))
    hour, minute = source.rng.randint(0, 23), source.rng.randint(0, 50)
    if source.chance(0.3):
        return [{"level": level, "message": text} for level, text in lines]
    return "\n".join(f"{hour:02}:{minute + i:02} {level} {text}" for i, (level, text) in enumerate(lines))


def _choice(
    name: str, source: Source, concepts: Sequence[Concept], concept: Concept
) -> tuple[dict[str, Any], str]:
    most = min(_MOST_OPTIONS, len(concepts))
    count = min(most, 2 + min(source.rng.randint(0, most - 2), source.rng.randint(0, most - 2)))
    others = [other for other in concepts if other is not concept]
    shown = [*source.rng.sample(others, count - 1), concept]
    source.rng.shuffle(shown)
    style = source.rng.random()
    options: dict[str, str | None] = {}
    label = ""
    for position, option in enumerate(shown):
        about = source.rng.choice(option.about)
        short = source.rng.choice(option.names)
        if style < 0.45:
            key, value = short, None
        elif style < 0.85:
            key, value = short, about
        else:
            key, value = chr(ord("A") + position), about
        while key in options:
            key = next(other for other in option.names if other not in options)
        options[key] = value
        if option is concept:
            label = key
    return choice(source.one(pool("messages", f"{name}.choices")), options), label


def _noul(domain: Domain, source: Source, asked: Concept, concept: Concept) -> tuple[dict[str, Any], bool]:
    predicate = source.rng.choice(asked.predicates)
    backwards = source.chance(0.12)
    text = source.one(pool("messages", domain.reversed_nouls if backwards else domain.nouls))
    text = text.replace("@who", source.rng.choice(domain.subjects)).replace("@is", predicate)
    text = text[:1].upper() + text[1:]
    if backwards:
        return noul(source, text, asked is not concept)
    about = source.rng.choice(asked.about)
    return noul(source, text, asked is concept, about, "anything else")


def _score(name: str, source: Source, concept: Concept) -> tuple[dict[str, Any], int]:
    choices = DOMAINS[name].levels
    if choices is None:
        raise ValueError(f"domain: found {name}, which has no levels, allowed: one with them")
    count = source.rng.choice(sorted(choices))
    levels = list(source.rng.choice(choices[count]))
    return score(source.one(pool("messages", f"{name}.scores")), levels), _SCORE_LEVEL[count](concept.level)
