"""Domains where a text expresses one concept of a list: routing, refunds, moderation, tools, logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.data import framing
from train.data.concepts import Concept, load_concepts
from train.data.example import Example, Source, SplitPool, choice, noul, score

_MOST_OPTIONS = 12


@dataclass(frozen=True)
class Domain:
    """How a domain is asked. @is stands for a concept's predicate; reversed nouls ask whether it is wrong."""

    choices: SplitPool
    nouls: SplitPool
    reversed_nouls: SplitPool
    denials: SplitPool | None = None
    key: str = "message"
    framed: bool = True
    score_question: SplitPool | None = None
    levels: Mapping[int, Sequence[Sequence[str]]] | None = None


_MESSAGE_NOULS = (
    "Is the message @is?",
    "Is this message @is?",
    "Is the customer @is?",
    "Would you say that the message is @is?",
    "Is the text @is?",
    "Is this @is?",
    "Is the writer @is?",
    "Is the following true: the message is @is?",
)
_REVERSED = SplitPool(
    "Is the message something other than @is?",
    "Is it wrong to say that the message is @is?",
    "Is the message not @is?",
    "Is the text not @is?",
    "Is this something other than @is?",
    "Is it wrong to say that this is @is?",
)
_SEVERITIES: Mapping[int, Sequence[Sequence[str]]] = {
    2: (("no problem", "a problem"), ("fine", "not fine"), ("normal", "needs attention")),
    3: (("fine", "minor problem", "serious problem"), ("none", "low", "high")),
    4: (("none", "low", "medium", "high"), ("harmless", "annoying", "serious", "dangerous")),
}
DOMAINS: Mapping[str, Domain] = {
    "routing": Domain(
        choices=SplitPool(
            "Which team should handle this message?",
            "Who should answer the {message|customer}?",
            "To which {department|team} does the message belong?",
            "Which {department|team} is {right|responsible} for this {message|customer}?",
            "Choose the {team|department} for the message.",
            "Where should the message be {sent|routed}?",
            "Route the message to a {team|department}.",
        ),
        nouls=SplitPool(*_MESSAGE_NOULS),
        reversed_nouls=_REVERSED,
        denials=SplitPool(
            "This is not @is.",
            "My message is not @is.",
            "I do not write @is.",
            "No, it is not @is.",
            "It is not @is.",
        ),
    ),
    "refunds": Domain(
        choices=SplitPool(
            "What does the customer want?",
            "What is the customer asking for?",
            "Which {action|request} {fits|matches} the message?",
            "What should {we|the shop} do for the customer?",
            "Choose the {request|wish} of the customer.",
            "What is the {request|wish} of the customer?",
            "Which request does the message make?",
        ),
        nouls=SplitPool(*_MESSAGE_NOULS),
        reversed_nouls=_REVERSED,
        denials=SplitPool(
            "I am not @is.",
            "To be clear, I am not @is.",
            "No, I am not @is.",
            "I am certainly not @is.",
        ),
    ),
    "moderation": Domain(
        choices=SplitPool(
            "Which rule applies to the comment?",
            "What kind of comment is this?",
            "Which label {fits|matches} the comment?",
            "Choose the {label|category} of the comment.",
            "How should the comment be labelled?",
            "Which {kind|category} does the comment belong to?",
        ),
        nouls=SplitPool(*_MESSAGE_NOULS, "Is the comment @is?", "Is this comment @is?"),
        reversed_nouls=_REVERSED,
        key="comment",
        score_question=SplitPool(
            "How bad is the comment?",
            "How severe is the comment?",
            "Rate how bad the comment is.",
            "How harmful is the comment?",
            "Rate the severity of the comment.",
        ),
        levels=_SEVERITIES,
    ),
    "tools": Domain(
        choices=SplitPool(
            "Which tool should the agent call?",
            "Which tool {fits|answers} the request?",
            "Choose the tool for the request.",
            "What tool should be {used|called} next?",
            "Which function should the assistant call?",
            "Which tool does the user need?",
            "Choose the function that the agent calls next.",
        ),
        nouls=SplitPool(
            "Does the user need @is?",
            "Should the agent use @is?",
            "Is @is the right tool?",
            "Does the request call for @is?",
            "Is @is what the user needs?",
            "Would @is help the user?",
        ),
        reversed_nouls=SplitPool(
            "Is @is the wrong tool?",
            "Is @is useless for the request?",
            "Would @is be the wrong tool here?",
            "Is @is wrong for the request?",
        ),
        key="request",
    ),
    "logs": Domain(
        choices=SplitPool(
            "What is the cause of the problem?",
            "What does the log show?",
            "Which {cause|problem} do the log lines show?",
            "Choose the cause that the log shows.",
            "Which label {fits|matches} the log?",
            "What kind of problem is this?",
        ),
        nouls=SplitPool(
            "Does the log show @is?",
            "Is there a sign of @is in the log?",
            "Do the lines show @is?",
            "Does the log point to @is?",
            "Is @is what the log shows?",
            "Do the log lines point to @is?",
        ),
        reversed_nouls=SplitPool(
            "Does the log show something other than @is?",
            "Is it wrong to say that the log shows @is?",
            "Do the lines show something other than @is?",
            "Is it wrong to say that the lines show @is?",
        ),
        key="log",
        framed=False,
        score_question=SplitPool(
            "How severe is the problem in the log?",
            "Rate the severity of the log.",
            "How severe are the log lines?",
            "How bad is the problem in the log?",
            "Rate how bad the problem in the log is.",
        ),
        levels={key: value for key, value in _SEVERITIES.items() if key < 4},
    ),
}
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
        return Example(name, _state(name, source, concept, None), *_score(domain, source, concept))
    if draw < 0.55:
        denied = _other(source, concepts, concept) if source.chance(0.2) else None
        return Example(
            name, _state(name, source, concept, denied), *_choice(domain, source, concepts, concept)
        )
    asked = concept if source.chance(0.5) else _other(source, concepts, concept)
    denied = asked if asked is not concept and source.chance(0.3) else None
    return Example(name, _state(name, source, concept, denied), *_noul(domain, source, asked, concept))


def _other(source: Source, concepts: Sequence[Concept], concept: Concept) -> Concept:
    return source.rng.choice([other for other in concepts if other is not concept])


def _state(name: str, source: Source, concept: Concept, denied: Concept | None) -> Any:
    domain = DOMAINS[name]
    text = source.say(source.rng.choice(concept.templates[source.split]))
    if name == "logs":
        return _log(source, text, concept)
    sentences = [text[:1].upper() + text[1:]]
    if denied is not None and domain.denials is not None:
        denial = source.one(domain.denials).replace("@is", source.rng.choice(denied.predicates))
        sentences.insert(source.rng.randint(0, 1), denial)
    return framing.state(source, framing.message(source, *sentences), domain.key)


def _log(source: Source, text: str, concept: Concept) -> Any:
    """The line among routine ones, as text or as records."""
    healthy = load_concepts("logs")[-1].templates[source.split]
    others = [source.say(source.rng.choice(healthy)) for _ in range(source.rng.randint(0, 2))]
    word = "INFO" if concept.level == 0 else source.rng.choice(("ERROR", "ERROR", "WARN"))
    lines = [("INFO", other) for other in others]
    lines.insert(source.rng.randint(0, len(lines)), (word, text))
    hour, minute = source.rng.randint(0, 23), source.rng.randint(0, 50)
    if source.chance(0.3):
        return [{"level": level, "message": said} for level, said in lines]
    return "\n".join(f"{hour:02}:{minute + i:02} {level} {said}" for i, (level, said) in enumerate(lines))


def _choice(
    domain: Domain, source: Source, concepts: Sequence[Concept], concept: Concept
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
        name = source.rng.choice(option.names)
        if style < 0.45:
            key, value = name, None
        elif style < 0.85:
            key, value = name, about
        else:
            key, value = chr(ord("A") + position), about
        while key in options:
            key = next(other for other in option.names if other not in options)
        options[key] = value
        if option is concept:
            label = key
    return choice(source.one(domain.choices), options), label


def _noul(domain: Domain, source: Source, asked: Concept, concept: Concept) -> tuple[dict[str, Any], bool]:
    predicate = source.rng.choice(asked.predicates)
    if source.chance(0.12):
        return noul(source, source.one(domain.reversed_nouls).replace("@is", predicate), asked is not concept)
    text = source.one(domain.nouls).replace("@is", predicate)
    about = source.rng.choice(asked.about)
    return noul(source, text, asked is concept, about, "anything else")


def _score(domain: Domain, source: Source, concept: Concept) -> tuple[dict[str, Any], int]:
    if domain.levels is None or domain.score_question is None:
        raise ValueError("found a domain without levels, allowed: one with them")
    count = source.rng.choice(sorted(domain.levels))
    levels = list(source.rng.choice(domain.levels[count]))
    return score(source.one(domain.score_question), levels), _SCORE_LEVEL[count](concept.level)
