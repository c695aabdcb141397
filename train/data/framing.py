"""What stands around the sentence that matters: greetings, idle remarks, typing errors, JSON."""

from __future__ import annotations

from typing import Any

from train.data.example import Source, SplitPool

_OPENERS = SplitPool(
    "Hello,",
    "Hi {there|team},",
    "Dear {team|support team|sir or madam},",
    "Good {morning|evening|afternoon},",
    "Hello {<person>|support},",
    "Hey,",
    "To whom it may concern,",
    "Dear <company> team,",
    "Hi, {this is|my name is} <person>.",
    "Good day, {<person>|<person> here}.",
)
_REMARKS = SplitPool(
    "I have been a customer {for <number> years|since <month>}.",
    "{It is|We had} {nice|cold} weather here in <city>.",
    "I {am writing|write} from <city>.",
    "My {colleague|sister} <person> {told me about you|gave me this address}.",
    "I {saw|found} your {address|page} on <weekday>.",
    "We {have|run} a small {shop|office} in <city>.",
    "I {will be|am} in <city> {until|on} <weekday>.",
    "{Last|This} {summer|winter} we {were|lived} in <city>.",
    "My {neighbour|friend} <person> {says hello|has one too}.",
    "I {bought|got} {a <product>|the <product>} {in <month>|from you} {before|as a gift}.",
    "{By the way|As you know}, I {live|work} in <city>.",
    "{This is|It is} the {first|second} time I write {to you|here}.",
    "My {daughter|son} is called <person>.",
    "The {shop|office} in <city> {sent me here|gave me this address}.",
)
_CLOSERS = SplitPool(
    "{Best|Kind} regards, <person>",
    "{Thanks|Thank you}, <person>",
    "{Regards|Greetings}, <person>",
    "Yours, <person>",
    "{Have|I wish you} a nice {day|weekend}.",
    "{Greetings|Best wishes} from <city>, <person>",
    "<person>, <city>",
    "{Best wishes|Many greetings}, <person>",
)
_CHANNELS = ("email", "chat", "web form", "phone")
_LANGUAGES = ("en", "en-GB", "en-US")


def message(source: Source, *sentences: str) -> str:
    """The sentences as somebody would write them: framed, with remarks, now and then without care."""
    parts = list(sentences)
    while source.chance(0.3):
        parts.insert(source.rng.randint(0, len(parts)), source.one(_REMARKS))
    if source.chance(0.35):
        parts.insert(0, source.one(_OPENERS))
    if source.chance(0.3):
        parts.append(source.one(_CLOSERS))
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
