"""The System One request: typed questions, and the checks that turn the wire's dict form into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from openjev.errors import Issue, RequestError, UnsupportedRequestError
from openjev.json_value import Json as Json
from openjev.json_value import JsonFault, check_json, encodable, kind, quote, short

Loc: TypeAlias = tuple[str | int, ...]

MAX_ISSUES = 100  # a hostile request must not turn each of its bytes into an error entry


@dataclass(frozen=True)
class Noul:
    """A yes/no question. ``true`` and ``false`` describe the outcomes; not all three may be ``None``."""

    instructions: Json = None
    true: Json = None
    false: Json = None


@dataclass(frozen=True)
class Choice:
    """One of the named ``options``; the value describes the option, ``None`` leaves its name to speak."""

    instructions: Json = None
    options: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """A position on a scale of ``levels``, lowest first."""

    instructions: Json = None
    levels: list[Json] = field(default_factory=list)


Question: TypeAlias = Noul | Choice | Score


@dataclass(frozen=True)
class DecisionRequest:
    """A checked request: what is known (``state``) and what is asked, by question id and in order."""

    state: Json
    questions: Mapping[str, Question]
    model: str | None = None


@dataclass(frozen=True)
class Limits:
    """Upper bounds of one request, inclusive. ``depth`` counts the nested arrays and objects of one value."""

    questions: int = 4096
    candidates: int = 65536
    options: int = 255
    levels: int = 10
    depth: int = 128


DEFAULT_LIMITS = Limits()


def parse_request(obj: Any, limits: Limits = DEFAULT_LIMITS) -> DecisionRequest:
    """Checks the dict form of ``POST /v1/systemone`` and returns it typed.

    Values are kept as they are, never normalised or re-encoded. Absent and ``null`` instructions are equal.
    Unknown keys are ignored.

    Raises:
        RequestError: with every fault found, up to ``MAX_ISSUES``.
        UnsupportedRequestError: the request carries images or asks a ``box`` question.
    """
    faults = _Faults()
    if not isinstance(obj, dict):
        faults.add(("body",), f"must be a JSON object, found {kind(obj)}", "dict_type")
        raise RequestError(faults.issues)
    try:
        _check_text_only(obj)
        state = _parse_state(obj, limits, faults)
        questions = _parse_questions(obj, limits, faults)
        model = obj.get("model")
        if model is not None:
            _check_model_name(model, faults)
    except _TooManyFaults:
        pass
    if faults.issues:
        raise RequestError(faults.issues)
    return DecisionRequest(state=state, questions=questions, model=model)


def wire_question(question: Question) -> dict[str, Json]:
    """The dict form of a typed question, as :func:`parse_request` reads it."""
    if isinstance(question, Noul):
        return {
            "type": "noul",
            "instructions": question.instructions,
            "criteria": {"true": question.true, "false": question.false},
        }
    if isinstance(question, Choice):
        return {"type": "choice", "instructions": question.instructions, "criteria": dict(question.options)}
    return {"type": "score", "instructions": question.instructions, "criteria": list(question.levels)}


class _TooManyFaults(Exception):
    """Ends the checks once the list of issues is full."""


class _Faults:
    """Collects issues; stops the checks at ``MAX_ISSUES``."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def add(
        self, loc: Loc, msg: str, kind: str, *, value: Any = None, ctx: Mapping[str, Any] | None = None
    ) -> None:
        self.issues.append(Issue(loc, msg, kind, short(value), ctx))
        if len(self.issues) >= MAX_ISSUES:
            raise _TooManyFaults


def _check_text_only(obj: Mapping[Any, Any]) -> None:
    if obj.get("assets"):
        raise UnsupportedRequestError("assets: this model reads text only, images are not supported")
    questions = obj.get("questions")
    if isinstance(questions, dict):
        for name, question in questions.items():
            if isinstance(question, dict) and question.get("type") == "box":
                raise UnsupportedRequestError(
                    f"questions.{quote(name)}: box questions are about images and not supported; "
                    "the types are noul, choice and score"
                )


def _check_model_name(model: Any, faults: _Faults) -> None:
    loc = ("body", "model")
    if not isinstance(model, str):
        faults.add(loc, f"must be a string or null, found {kind(model)}", "string_type", value=model)
    elif not encodable(model):
        faults.add(loc, "has a lone surrogate", "string_unicode")


def _parse_state(obj: Mapping[str, Any], limits: Limits, faults: _Faults) -> Json:
    if "state" not in obj:
        faults.add(("body", "state"), "is required", "missing")
        return None
    state: Json = _text_value(obj["state"], ("body", "state"), limits, faults, nullable=False)
    return state


def _parse_questions(obj: Mapping[str, Any], limits: Limits, faults: _Faults) -> dict[str, Question]:
    loc = ("body", "questions")
    found = obj.get("questions")
    if not isinstance(found, dict):
        if "questions" not in obj:
            faults.add(loc, "is required", "missing")
        else:
            msg = f"must be an object of question id to question, found {kind(found)}"
            faults.add(loc, msg, "dict_type")
        return {}
    if not found:
        ctx = {"min_length": 1, "actual_length": 0}
        faults.add(loc, "must hold at least 1 question, found 0", "too_short", ctx=ctx)
        return {}
    if len(found) > limits.questions:
        _add_too_long(faults, loc, "questions", len(found), limits.questions)
        return {}
    questions: dict[str, Question] = {}
    candidates = 0
    for name, body in found.items():
        if not isinstance(name, str) or not name or not encodable(name):
            msg = f"a question id must be a non-empty Unicode string, found {quote(name)}"
            faults.add(loc, msg, "question_id")
            continue
        question = _parse_question(body, (*loc, name), limits, faults)
        if question is not None:
            questions[name] = question
            candidates += candidate_count(question)
    if candidates > limits.candidates:
        what = "candidates (options and levels of all questions)"
        _add_too_long(faults, loc, what, candidates, limits.candidates)
    return questions


def candidate_count(question: Question) -> int:
    """How many answers the question weighs against each other; a noul counts as one."""
    if isinstance(question, Noul):
        return 1
    return len(question.options) if isinstance(question, Choice) else len(question.levels)


def _parse_question(body: Any, loc: Loc, limits: Limits, faults: _Faults) -> Question | None:
    if not isinstance(body, dict):
        faults.add(loc, f"must be an object, found {kind(body)}", "dict_type")
        return None
    if "type" not in body:
        faults.add((*loc, "type"), "is required: noul, choice or score", "union_tag_not_found")
        return None
    tag = body["type"]
    parse = _PARSERS.get(tag) if isinstance(tag, str) else None
    if parse is None:
        faults.add(
            (*loc, "type"),
            f"must be noul, choice or score, found {quote(tag)}",
            "union_tag_invalid",
            value=tag,
            ctx={"expected_tags": "noul, choice, score"},
        )
        return None
    return parse(body, loc, limits, faults)


def _parse_noul(body: Mapping[str, Any], loc: Loc, limits: Limits, faults: _Faults) -> Question | None:
    before = len(faults.issues)
    instructions = _text_value(body.get("instructions"), (*loc, "instructions"), limits, faults)
    criteria = body.get("criteria")
    if criteria is None:
        criteria = {}
    if not isinstance(criteria, dict):
        msg = f"must be null or an object with true and false, found {kind(criteria)}"
        faults.add((*loc, "criteria"), msg, "dict_type")
        return None
    true = _text_value(criteria.get("true"), (*loc, "criteria", "true"), limits, faults)
    false = _text_value(criteria.get("false"), (*loc, "criteria", "false"), limits, faults)
    if instructions is None and true is None and false is None and len(faults.issues) == before:
        msg = "needs instructions, or criteria that describe true or false; found neither"
        faults.add(loc, msg, "missing")
    return Noul(instructions, true, false)


def _parse_choice(body: Mapping[str, Any], loc: Loc, limits: Limits, faults: _Faults) -> Question | None:
    instructions = _text_value(body.get("instructions"), (*loc, "instructions"), limits, faults)
    where = (*loc, "criteria")
    if "criteria" not in body:
        faults.add(where, "is required: an object of option name to description", "missing")
        return None
    options = body["criteria"]
    if not isinstance(options, dict):
        found = kind(options)
        faults.add(where, f"must be an object of option name to description, found {found}", "dict_type")
        return None
    if not _count_allowed(len(options), limits.options, "options", loc, faults):
        return None
    for name, description in options.items():
        if not isinstance(name, str) or not encodable(name):
            faults.add(where, f"an option name must be a Unicode string, found {quote(name)}", "string_type")
        else:
            _text_value(description, (*where, name), limits, faults)
    return Choice(instructions, options)


def _parse_score(body: Mapping[str, Any], loc: Loc, limits: Limits, faults: _Faults) -> Question | None:
    instructions = _text_value(body.get("instructions"), (*loc, "instructions"), limits, faults)
    where = (*loc, "criteria")
    if "criteria" not in body:
        faults.add(where, "is required: an array of levels, lowest first", "missing")
        return None
    levels = body["criteria"]
    if not isinstance(levels, list):
        faults.add(where, f"must be an array of levels, lowest first, found {kind(levels)}", "list_type")
        return None
    if not _count_allowed(len(levels), limits.levels, "levels", loc, faults):
        return None
    for index, level in enumerate(levels):
        _text_value(level, (*where, index), limits, faults, nullable=False)
    return Score(instructions, levels)


_PARSERS: dict[str, Callable[[Mapping[str, Any], Loc, Limits, _Faults], Question | None]] = {
    "noul": _parse_noul,
    "choice": _parse_choice,
    "score": _parse_score,
}


def _count_allowed(found: int, limit: int, what: str, loc: Loc, faults: _Faults) -> bool:
    if found == 0:
        msg = f"question {quote(loc[-1])} must have 1 to {limit} {what}, found 0"
        faults.add((*loc, "criteria"), msg, "too_short", ctx={"min_length": 1, "actual_length": 0})
    elif found > limit:
        _add_too_long(faults, (*loc, "criteria"), f"{what} in question {quote(loc[-1])}", found, limit)
    return 0 < found <= limit


def _add_too_long(faults: _Faults, loc: Loc, what: str, found: int, limit: int) -> None:
    ctx = {"max_length": limit, "actual_length": found}
    faults.add(loc, f"too many {what}: at most {limit}, found {found}", "too_long", ctx=ctx)


def _text_value(value: Any, loc: Loc, limits: Limits, faults: _Faults, *, nullable: bool = True) -> Any:
    """Accepts what can stand for a text: a string, object or array, or null; and checks all that it holds."""
    if value is None and nullable:
        return None
    if isinstance(value, str):
        if not encodable(value):
            faults.add(loc, "has a lone surrogate", "string_unicode")
    elif isinstance(value, dict | list):
        try:
            check_json(value, limits.depth)
        except JsonFault as fault:
            faults.add((*loc, *fault.path), fault.msg, fault.type)
    else:
        allowed = "a string, object, array or null" if nullable else "a string, object or array"
        faults.add(loc, f"must be {allowed}, found {kind(value)}", "text_type", value=value)
    return value
