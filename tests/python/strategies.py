"""Hypothesis strategies for requests in wire form: all that the contract allows, in small."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# What tends to break tokenizers and renderers.
HOSTILE = [
    # line ends and white space of all kinds
    *("\n", "\r", "\r\n", "\u0085", "\u2028", "\x0b", "\x1c", " ", "   ", "\t", "\u00a0", "\u3000", "!\n\n"),
    # marks that compose with what stands before them, letters that normalise, halves of Hangul syllables
    *("e\u0301", "\u0301", "\u0338", "\u212b", "\u1100", "\u1161", "\uac00", "\u0e01\u0e47", "\u0928\u0940"),
    # partners of ASCII letters under case folding, contractions, digits of other scripts
    *("\u017f", "\u212a", "'s", "'LL", "\u2019s", "don't", "123", "\u0663", "\U0001d7d8", "_", "\\", '"'),
    # emoji with joiners, marks of byte order, control characters
    *("\U0001f642", "\U0001f469\u200d\U0001f467", "\ufeff", "\u200d", "\x00", "\x7f"),
    # special tokens, whole and cut, and the words of the prompts themselves
    *("<|im_end|>", "<|im_start|>", "<think>", "</think>", "<|endoftext", "|>"),
    *("Question: ", "Context:\n", "Proposed answer: ", "Hello world"),
]

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.sampled_from(HOSTILE), max_size=8).map("".join),
)
NUMBER = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TEXTUAL = st.one_of(TEXT, st.lists(JSON, max_size=3), st.dictionaries(TEXT, JSON, max_size=3))
OPTIONAL = st.none() | TEXTUAL


@st.composite
def noul(draw: st.DrawFn) -> dict[str, Any]:
    question: dict[str, Any] = {"type": "noul"}
    criteria = draw(st.none() | st.fixed_dictionaries({}, optional={"true": OPTIONAL, "false": OPTIONAL}))
    described = criteria is not None and any(value is not None for value in criteria.values())
    instructions = draw(OPTIONAL if described else TEXTUAL)
    if instructions is not None or draw(st.booleans()):
        question["instructions"] = instructions
    if criteria is not None or draw(st.booleans()):
        question["criteria"] = criteria
    return question


def choice(max_options: int = 6) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "type": st.just("choice"),
            "criteria": st.dictionaries(TEXT, OPTIONAL, min_size=1, max_size=max_options),
        },
        optional={"instructions": OPTIONAL},
    )


SCORE = st.fixed_dictionaries(
    {"type": st.just("score"), "criteria": st.lists(TEXTUAL, min_size=1, max_size=10)},
    optional={"instructions": OPTIONAL},
)
IDS = TEXT.filter(bool)


def requests(
    question: st.SearchStrategy[dict[str, Any]] | None = None, state: st.SearchStrategy[Any] = TEXTUAL
) -> st.SearchStrategy[dict[str, Any]]:
    asked = st.one_of(noul(), choice(), SCORE) if question is None else question
    return st.fixed_dictionaries(
        {"state": state, "questions": st.dictionaries(IDS, asked, min_size=1, max_size=4)},
        optional={"model": st.sampled_from([None, "jev-latest"]), "seed": JSON},
    )


CUA_REQUESTS = requests(choice(26), TEXTUAL.filter(bool))
