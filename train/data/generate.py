"""Rows of decision data. Row i of a split depends on the seed, the split and i only, so that parts of a split
can be made anywhere in any order. `python -m train.data.generate OUT` writes the held-out rows and hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from train.data import graded, messages, policy
from train.data.entities import Entities
from train.data.example import Example, Source
from train.data.grammar import SPLITS, Split

SEED = 20261202
SIZES: Mapping[Split, int] = {"train": 320_000, "validation": 4_000, "test": 4_000}

_MAKERS: Mapping[str, Callable[[Source], Example]] = {
    **{name: partial(messages.make, name) for name in messages.DOMAINS},
    "urgency": graded.make_urgency,
    "sentiment": graded.make_sentiment,
    "policy": policy.make_policy,
}
DOMAINS = tuple(_MAKERS)
# Domains with more to learn than words get more rows.
_WEIGHTS = {"policy": 2.5, "sentiment": 1.3}


@cache
def _entities(split: Split) -> Entities:
    return Entities(split)


def example(split: Split, index: int, seed: int = SEED) -> Example:
    """Row `index` of `split`."""
    rng = random.Random(f"{seed}/{split}/{index}")
    weights = [_WEIGHTS.get(name, 1.0) if split == "train" else 1.0 for name in DOMAINS]
    name = rng.choices(DOMAINS, weights)[0]
    return _MAKERS[name](Source(rng, split, _entities(split)))


def examples(split: Split, start: int, stop: int, seed: int = SEED) -> Iterator[Example]:
    return (example(split, index, seed) for index in range(start, stop))


def row(split: Split, index: int, made: Example) -> dict[str, Any]:
    """The row as JSON: its name, domain, state, question and answer."""
    return {
        "id": f"{split}-{index}",
        "domain": made.domain,
        "state": made.state,
        "question": made.question,
        "label": made.label,
    }


def digest(split: Split, start: int, stop: int, seed: int = SEED) -> str:
    """SHA-256 of rows start to stop as JSON lines."""
    sha = hashlib.sha256()
    for index in range(start, stop):
        sha.update(policy.canonical(row(split, index, example(split, index, seed))).encode() + b"\n")
    return sha.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder, made when missing")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=["validation", "test"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for split in args.splits:
        with open(args.out / f"{split}.jsonl", "w", encoding="utf-8", newline="\n") as file:
            for index in range(SIZES[split]):
                made = row(split, index, example(split, index, args.seed))
                file.write(json.dumps(made, ensure_ascii=False) + "\n")
        print(split, SIZES[split], digest(split, 0, SIZES[split], args.seed))


if __name__ == "__main__":
    main()
