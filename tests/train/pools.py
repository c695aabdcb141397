"""Every pool of templates that the generator draws from, by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from train.data import graded, messages
from train.data.concepts import load_concepts
from train.data.grammar import SPLITS, Split
from train.data.pools import load_pools

Pool = Mapping[Split, Sequence[str]]
FOLDER = Path(__file__).resolve().parents[2] / "train" / "data" / "text" / "pools"
CONCEPT_DOMAINS = (*messages.DOMAINS, "urgency")
PAIRS = tuple(itertools.combinations(SPLITS, 2))


def question_pools() -> Iterator[tuple[str, Pool]]:
    for path in sorted(FOLDER.glob("*.txt")):
        for name, pool in load_pools(path.stem).items():
            yield f"{path.stem}.{name}", pool.parts


def concept_pools() -> Iterator[tuple[str, Pool]]:
    """What a whole domain can say: a sentence must not move between concepts of different splits either."""
    for domain in CONCEPT_DOMAINS:
        concepts = load_concepts(domain)
        yield domain, {split: [t for c in concepts for t in c.templates[split]] for split in SPLITS}


def phrase_pools() -> Iterator[tuple[str, Pool]]:
    for grade in range(5):
        yield f"sentiment.{grade}", {split: graded.phrases()[split][grade] for split in SPLITS}


def wordings(template: str) -> set[str]:
    """All sentences of a template with its slots left open, in lower case."""
    parts = re.split(r"\{([^{}]*)\}", template)
    picks = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return {" ".join("".join(picked).split()).lower() for picked in itertools.product(*picks)}
