"""Templates: "I {want|would like} a refund for the <product>" stands for many sentences.

A split owns templates, not sentences: no sentence of the test comes from a template seen in training.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from train.data.entities import Entities

Split: TypeAlias = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<([a-z]+)>")
_WORD = re.compile(r"[a-z]{4,}")
_SHARES: Mapping[Split, float] = {"test": 0.2, "validation": 0.1}
# Share of the words of a held-out template that other templates of its list must contain.
_KNOWN_WORDS = 0.5


def expand(template: str, rng: random.Random, entities: Entities) -> str:
    """One sentence of the template: an alternative of each {a|b}, a value in each <slot>."""
    text = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    text = _SLOT.sub(lambda match: entities.draw(match[1], rng), text)
    return " ".join(text.split()).replace(" ,", ",").replace(" .", ".").replace(" ?", "?").replace(" ;", ";")


def split_templates(templates: Sequence[str]) -> dict[Split, list[str]]:
    """Each template in one split, in the order of its hash; every split gets one at least.
    Raises ValueError for fewer than three different templates.

    Held out are templates whose words mostly occur in the others: a model that has read nothing but
    this data knows a word from training or not at all, and a test of unseen words would test nothing.
    """
    ranked = sorted(set(templates), key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(ranked) < len(SPLITS):
        raise ValueError(f"templates: found {len(ranked)} different, allowed: at least {len(SPLITS)}")
    parts: dict[Split, list[str]] = {"train": [], "validation": [], "test": []}
    wanted = {split: max(1, round(len(ranked) * share)) for split, share in _SHARES.items()}
    left = list(ranked)
    for split in _SHARES:
        for text in list(left):
            if len(parts[split]) == wanted[split]:
                break
            others = {word for other in left if other != text for word in _WORD.findall(other.lower())}
            words = set(_WORD.findall(text.lower()))
            if len(words & others) >= _KNOWN_WORDS * len(words):
                parts[split].append(text)
                left.remove(text)
    for split in _SHARES:
        while len(parts[split]) < wanted[split]:
            parts[split].append(left.pop())
    parts["train"] = left
    return parts


def split_pairs(key: str) -> Split:
    """The split that owns a combination, such as a limit and a value compared with it."""
    draw = hashlib.sha256(key.encode()).digest()[0] / 256
    if draw < _SHARES["test"]:
        return "test"
    return "validation" if draw < _SHARES["test"] + _SHARES["validation"] else "train"
