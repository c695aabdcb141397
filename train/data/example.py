"""One decision with its answer, and what every domain needs to make one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from train.data.entities import Entities
from train.data.grammar import Split, expand, split_templates


@dataclass(frozen=True)
class Example:
    """A state, one question as the API takes it, and the right answer.

    `label`: bool of a noul, the option's name of a choice, the level's position of a score.
    """

    domain: str
    state: Any
    question: dict[str, Any]
    label: bool | str | int

    @property
    def candidate(self) -> int:
        """The position of the right candidate among the prompts; of a noul 1 for yes, 0 for no."""
        if self.question["type"] == "choice":
            return list(self.question["criteria"]).index(self.label)
        return int(self.label)


@dataclass(frozen=True)
class Source:
    """The randomness of one example and the split that it is for."""

    rng: random.Random
    split: Split
    entities: Entities

    def one(self, pool: SplitPool) -> str:
        """A sentence of one of the pool's templates of this split."""
        return self.say(self.rng.choice(pool.parts[self.split]))

    def say(self, template: str) -> str:
        return expand(template, self.rng, self.entities)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


class SplitPool:
    """Templates for one purpose, divided among the splits."""

    def __init__(self, *templates: str) -> None:
        self.parts = split_templates(templates)


def noul(
    source: Source, text: str, label: bool, true: str = "", false: str = ""
) -> tuple[dict[str, Any], bool]:
    """A yes/no question; `true` and `false` become criteria now and then."""
    question: dict[str, Any] = {"type": "noul", "instructions": text}
    if true and source.chance(0.2):
        question["criteria"] = {"true": true, "false": false} if source.chance(0.7) else {"true": true}
    return question, label


def choice(text: str, options: dict[str, str | None]) -> dict[str, Any]:
    return {"type": "choice", "instructions": text, "criteria": options}


def score(text: str, levels: list[str]) -> dict[str, Any]:
    return {"type": "score", "instructions": text, "criteria": levels}
