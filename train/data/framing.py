"""What stands around the sentence that matters: greetings, idle remarks, typing errors, JSON."""

from __future__ import annotations

from typing import Any

from train.data.example import Source
from train.data.pools import pool

_CHANNELS = ("email", "chat", "web form", "phone")
_LANGUAGES = ("en", "en-GB", "en-US")


def message(source: Source, *sentences: str) -> str:
    """The sentences as somebody would write them: framed, with remarks, now and then without care."""
    parts = list(sentences)
    while source.chance(0.3):
        parts.insert(source.rng.randint(0, len(parts)), source.one(pool("framing", "remarks")))
    if source.chance(0.35):
        parts.insert(0, source.one(pool("framing", "openers")))
    if source.chance(0.3):
        parts.append(source.one(pool("framing", "closers")))
    text = " ".join(parts)
    if source.chance(0.1):
        text = text.lower()
    return _misspell(source, text) if source.chance(0.1) else text


def _misspell(source: Source, text: str) -> str:
    """Two neighbouring letters of one word change places."""
    places = [i for i in range(1, len(text) - 2) if text[i - 1 : i + 2].isalpha()]
    if not places:
        return text
    place = source.rng.choice(places)
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


def state(source: Source, text: str, key: str = "message") -> Any:
    """The text itself, or an object that holds it among fields that do not matter."""
    if source.chance(0.65):
        return text
    fields: dict[str, Any] = {key: text}
    extras: dict[str, Any] = {
        "channel": source.rng.choice(_CHANNELS),
        "customer": source.say("<person>"),
        "language": source.rng.choice(_LANGUAGES),
        "id": source.say("<order>"),
        "city": source.say("<city>"),
        "attachments": source.rng.randint(0, 3),
    }
    for name in source.rng.sample(sorted(extras), source.rng.randint(1, 3)):
        fields[name] = extras[name]
    return fields
