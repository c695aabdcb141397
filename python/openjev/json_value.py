"""JSON values as Python holds them: what may stand in one, and how to name one in a message."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_INTEGER_DIGITS = 4300  # what Python converts between int and text by default
_INTEGER_BOUND = 10**MAX_INTEGER_DIGITS
_SHORT = 80


class JsonFault(Exception):
    """A value that JSON text cannot carry, or that is nested too deeply; ``path`` leads to it."""

    def __init__(self, msg: str, kind: str) -> None:
        super().__init__(msg)
        self.msg, self.type = msg, kind
        self._keys: list[str | int] = []  # innermost first, added while the fault travels up

    @property
    def path(self) -> tuple[str | int, ...]:
        return tuple(reversed(self._keys))

    def inside(self, key: str | int) -> None:
        """Says that the fault lies under ``key`` of the level now reached."""
        self._keys.append(key)


def check_json(container: list[Any] | dict[Any, Any], depth: int) -> None:
    """Raises :class:`JsonFault` unless this is JSON of at most ``depth`` nested arrays and objects."""
    if depth == 0:
        raise JsonFault("is nested too deeply", "nesting_depth")
    if isinstance(container, dict):
        for key in container:
            if not isinstance(key, str) or not encodable(key):
                raise JsonFault(f"an object key must be a Unicode string, found {quote(key)}", "string_type")
        items: Any = container.items()
    else:
        items = enumerate(container)
    for key, value in items:
        if value is None:
            continue
        try:
            if isinstance(value, str):
                if not encodable(value):
                    raise JsonFault("has a lone surrogate", "string_unicode")
            elif isinstance(value, dict | list):
                check_json(value, depth - 1)
            else:
                _check_number(value)
        except JsonFault as fault:
            fault.inside(key)
            raise


def _check_number(value: Any) -> None:
    if isinstance(value, int):
        if not -_INTEGER_BOUND < value < _INTEGER_BOUND:
            raise JsonFault(f"an integer may have at most {MAX_INTEGER_DIGITS} digits", "int_parsing_size")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise JsonFault(f"a number must be finite, found {value}", "finite_number")
    else:
        raise JsonFault(f"must be a JSON value, found a Python {type(value).__name__}", "json_type")


def encodable(text: str) -> bool:
    """False if ``text`` has a lone surrogate, which neither UTF-8 nor a tokenizer can take."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind(value: Any) -> str:
    """The JSON name of the type of ``value``, with an article."""
    return _KINDS.get(type(value), f"a Python {type(value).__name__}")


def quote(value: Any) -> str:
    """A value of the request for a message: it always encodes, and is cut to a readable length."""
    if not isinstance(value, str):
        return kind(value)
    text = value if len(value) <= _SHORT else value[: _SHORT - 1] + "…"
    return f"'{text}'" if encodable(text) else ascii(text)


def short(value: Any) -> Any:
    """``value`` where a message may repeat it, else ``None``."""
    if isinstance(value, str):
        return value if len(value) <= _SHORT and encodable(value) else None
    if isinstance(value, bool):
        return value
    return value if isinstance(value, int | float) and abs(value) < 2**53 else None
