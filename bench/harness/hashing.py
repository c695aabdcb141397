"""Hashes of JSON values: of their canonical form, so that layout and key order do not matter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Keys of a response that say how long something took; they differ between equal answers.
TIMING_FIELDS = frozenset(
    {"timings", "timing", "inference_seconds", "latency_ms", "latency_seconds", "duration_ms", "elapsed_ms"}
)


def canonical(value: Any) -> bytes:
    """Compact UTF-8 JSON with sorted keys. Raises ValueError for a number that is not finite."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


def without_timings(response: Mapping[str, Any]) -> dict[str, Any]:
    """The response without TIMING_FIELDS, at any depth outside `answers`, whose keys are the caller's."""
    return {
        key: value if key == "answers" else _stripped(value)
        for key, value in response.items()
        if key not in TIMING_FIELDS
    }


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _stripped(inner) for key, inner in value.items() if key not in TIMING_FIELDS}
    if isinstance(value, list):
        return [_stripped(inner) for inner in value]
    return value
