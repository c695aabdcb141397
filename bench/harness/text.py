"""Text for requests: a function of a seed alone, on every machine and every version of Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

_WHO = (
    "the customer",
    "a returning buyer",
    "the account owner",
    "our courier",
    "the night shift",
    "a new reseller",
    "the clinic",
    "a parent",
    "the library",
    "the landlord",
    "the accountant",
    "a tester",
)
_DID = (
    "wrote about",
    "called about",
    "returned",
    "ordered",
    "never received",
    "praised",
    "complained about",
    "replaced",
    "asked for",
    "cancelled",
    "paid for",
    "lost",
)
_WHAT = (
    "the blue lamp",
    "two invoices",
    "a winter coat",
    "the second parcel",
    "an annual plan",
    "the spare key",
    "a damaged box",
    "the March report",
    "the phone contract",
    "a set of chairs",
    "the old password",
    "a train ticket",
)
_WHEN = (
    "on Monday morning",
    "last week",
    "after the update",
    "before the holiday",
    "at noon",
    "during the storm",
    "a month ago",
    "in the evening",
    "twice this year",
    "on the first of May",
)
_THEN = (
    "and nobody has answered since",
    "and wants the money back",
    "and is happy with the result",
    "so the case was closed",
    "but the receipt is missing",
    "and asks for a manager",
    "and will wait another day",
    "but the address was wrong",
    "so a refund was offered",
    "and sent three pictures",
)
_ASKED = (
    "Is {who} unhappy with {what}?",
    "Did {who} ask for money back?",
    "Has {what} arrived?",
    "Should a person look at {what}?",
    "Is {what} mentioned as broken?",
    "Does {who} want to cancel?",
    "Is a deadline named for {what}?",
    "Was {what} paid for?",
)
_DIGITS = "0123456789"


class Stream:
    """Numbers from a seed: SHA-256 of the seed and a counter."""

    def __init__(self, *seed: object) -> None:
        self._seed = "/".join(map(str, seed)).encode()
        self._count = 0

    def below(self, bound: int) -> int:
        """An integer from 0 to bound - 1."""
        self._count += 1
        digest = hashlib.sha256(self._seed + b":%d" % self._count).digest()
        return int.from_bytes(digest[:8], "big") % bound

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[ItemT]) -> list[ItemT]:
        """Fisher-Yates."""
        out = list(items)
        for last in range(len(out) - 1, 0, -1):
            other = self.below(last + 1)
            out[last], out[other] = out[other], out[last]
        return out

    def digits(self, count: int) -> str:
        return "".join(self.pick(_DIGITS) for _ in range(count))


def sentence(stream: Stream) -> str:
    """One sentence of a case report."""
    parts = [stream.pick(part) for part in (_WHO, _DID, _WHAT, _WHEN, _THEN)]
    text = " ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def question(stream: Stream) -> str:
    """A yes/no question."""
    return stream.pick(_ASKED).format(who=stream.pick(_WHO), what=stream.pick(_WHAT))


def label(stream: Stream) -> str:
    """A short name of an option, without a guarantee that it occurs once."""
    return f"{stream.pick(_DID)} {stream.pick(_WHAT)}"


def fill(stream: Stream, target: int, count: Callable[[str], int]) -> str:
    """Text for which `count` is exactly `target`: words first, then the digits of a reference number.

    `count` is never given an empty text. It must grow with the text, by one for some run of digits at its end
    (the Qwen3.5 split pattern makes every digit a token). Raises ValueError when no text is found.
    """
    words = sentence(stream).split()
    while count(" ".join(words)) <= target:
        words += sentence(stream).split()
    low, high = 0, len(words)
    while low < high - 1:
        middle = (low + high) // 2
        if count(" ".join(words[:middle])) <= target:
            low = middle
        else:
            high = middle
    digits = stream.digits(32)
    for kept in range(low, max(low - 4, 0), -1):
        base = " ".join(words[:kept]).rstrip(".")  # a full stop may share a token with what follows
        for length in range(min(target - count(base), len(digits)) + 1):
            for text in (base + digits[:length], f"{base} #{digits[:length]}"):
                if count(text) == target:
                    return text
    raise ValueError(f"target: found no text of {target} tokens, the nearest have {count(words[0])} or more")
