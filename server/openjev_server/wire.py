"""JSON in, JSON out: bytes to an object under strict rules, and a decision to bytes.

Strict means: UTF-8, no duplicate key (an option would vanish), no NaN, no infinity, no text without a UTF-8
form, a bounded depth. Whatever breaks a rule is a 422 that names it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from openjev.errors import Issue
from openjev_server.errors import ApiError, invalid

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN = 80

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


class _Refused(ValueError):
    """A value that JSON's grammar, or Python's reader, takes but this server does not."""

    def __init__(self, kind: str, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.issue = Issue(("body",) if key is None else ("body", key[:_SHOWN]), message, kind)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"The key {key[:_SHOWN]!r} occurs twice in one object; allowed: once."
                raise _Refused("duplicate_key", message, key)
            seen.add(key)
    return found


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused("finite_number", f"The number {text[:_SHOWN]} is larger than a double can hold.")
    return value


def _no_constant(text: str) -> float:
    raise _Refused("finite_number", f"Found {text}; JSON has no such number.")


_DECODE = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant).decode


def parse(body: bytes, max_depth: int) -> Any:
    """The JSON value of `body`; the outermost object has depth 1. Raises 422."""
    try:
        value = _DECODE(body.decode("utf-8"))
    except _Refused as refused:
        raise invalid([refused.issue]) from None
    except UnicodeDecodeError as exc:
        raise _not_json(exc.start, f"The body is not UTF-8: {exc.reason}.") from None
    except json.JSONDecodeError as exc:
        raise _not_json(exc.pos, f"The body is not JSON: {exc.msg}.") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError:
        # The only other one: an integer longer than Python reads (sys.set_int_max_str_digits).
        raise invalid([Issue(("body",), "A number has too many digits.", "finite_number")]) from None
    # Fewer brackets than the limit cannot nest deeper; most bodies are done here.
    if body.count(b"{") + body.count(b"[") > max_depth and _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    if _SURROGATE_ESCAPE.search(body):
        _check_text(value)
    return value


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. Raises ValueError for a number that is not finite."""
    return _ENCODE(value).encode("utf-8")


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
    return False


def _check_text(value: Any) -> None:
    try:
        _ENCODE(value).encode("utf-8")
    except UnicodeEncodeError:
        message = "A text holds half of a surrogate pair; it has no UTF-8 form."
        raise invalid([Issue(("body",), message, "string_unicode")]) from None


def _not_json(position: int, message: str) -> ApiError:
    return invalid([Issue(("body", position), message, "json_invalid")])


def _too_deep(limit: int) -> ApiError:
    message = f"The body nests deeper than {limit} levels."
    return invalid([Issue(("body",), message, "too_deep", ctx={"limit": limit})])
