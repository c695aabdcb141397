"""From examples to token arrays: the prompts of the server, one for each candidate."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from openjev.contract import parse_request
from openjev.prompts import OpenJevPrompts
from train.data.example import Example
from train.data.generate import DOMAINS, digest, examples
from train.data.grammar import Split

PREFIX = "<|im_start|>user\n"
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TYPES = ("noul", "choice", "score")
BLOCK = 5_000


@dataclass(frozen=True)
class Encoded:
    """Questions as flat arrays.

    `tokens` uint16 [sum of lengths], prompt p is tokens[offsets[p]:offsets[p + 1]] and its first `states[p]`
    tokens hold the state; question q has prompts first[q] to first[q + 1]; `kinds`, `domains`: positions in
    TYPES and DOMAINS; `targets` int64 [questions]: the right candidate, of a noul 1 for yes and 0 for no.
    """

    tokens: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    states: NDArray[np.int32]
    first: NDArray[np.int64]
    kinds: NDArray[np.int8]
    domains: NDArray[np.int8]
    targets: NDArray[np.int64]

    @property
    def questions(self) -> int:
        return len(self.targets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each prompt."""
        return np.diff(self.offsets)


def prompt_parts(examples_: Iterable[Example]) -> Iterator[list[tuple[str, str]]]:
    """The prompts of each example, each cut after the state."""
    family = OpenJevPrompts(PREFIX, SUFFIX)
    for made in examples_:
        request = parse_request({"model": "demo", "state": made.state, "questions": {"q": made.question}})
        rendered = family.render(request)
        head = "".join(piece.text for piece in rendered.head)
        question = rendered.questions[0]
        stem = "".join(piece.text for piece in question.stem)
        yield [(head, stem + "".join(piece.text for piece in tail)) for tail in question.tails]


def encode(rows: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
    """All prompts of the rows; joining ids at the cut equals encoding the whole (openjev/tokens.py)."""
    tokens: list[int] = []
    offsets, states, first = [0], [], [0]
    for parts in prompt_parts(rows):
        head = tokenizer.encode(parts[0][0], add_special_tokens=False).ids
        for encoding in tokenizer.encode_batch_fast([rest for _, rest in parts], add_special_tokens=False):
            tokens += head
            tokens += encoding.ids
            offsets.append(len(tokens))
            states.append(len(head))
        first.append(len(states))
    return Encoded(
        np.array(tokens, np.uint16),
        np.array(offsets, np.int64),
        np.array(states, np.int32),
        np.array(first, np.int64),
        np.array([TYPES.index(row.question["type"]) for row in rows], np.int8),
        np.array([DOMAINS.index(row.domain) for row in rows], np.int8),
        np.array([row.candidate for row in rows], np.int64),
    )


def concatenate(parts: Sequence[Encoded]) -> Encoded:
    def running(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(array) for array in arrays]))])

    return Encoded(
        np.concatenate([part.tokens for part in parts]),
        running([part.offsets for part in parts]),
        np.concatenate([part.states for part in parts]),
        running([part.first for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.domains for part in parts]),
        np.concatenate([part.targets for part in parts]),
    )


def _encode_block(work: tuple[Split, int, int, int, str]) -> tuple[Encoded, str]:
    split, start, stop, seed, tokenizer_file = work
    tokenizer = Tokenizer.from_file(tokenizer_file)
    rows = list(examples(split, start, stop, seed))
    return encode(rows, tokenizer), digest(split, start, stop, seed)


def encode_split(
    pool: Executor, split: Split, start: int, stop: int, seed: int, tokenizer_file: Path
) -> tuple[Encoded, str]:
    """Rows start to stop of a split, and the SHA-256 of the digests of their blocks of BLOCK rows."""
    work = [
        (split, begin, min(begin + BLOCK, stop), seed, str(tokenizer_file))
        for begin in range(start, stop, BLOCK)
    ]
    results = list(pool.map(_encode_block, work))
    sha = hashlib.sha256("".join(block for _, block in results).encode()).hexdigest()
    return concatenate([part for part, _ in results]), sha
