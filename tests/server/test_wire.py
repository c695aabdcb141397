"""Bytes to JSON under strict rules: what is refused, where, and that nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_server import wire
from openjev_server.errors import ApiError

DEPTH = 128


def refused(body: bytes) -> dict[str, Any]:
    """The one entry of the 422 list for `body`."""
    with pytest.raises(ApiError) as caught:
        wire.parse(body, DEPTH)
    assert caught.value.status == 422
    (entry,) = caught.value.detail
    assert isinstance(entry, dict)
    assert entry["loc"][0] == "body"
    assert entry["msg"]
    return entry


def test_t3_a_cut_body_is_json_invalid_at_its_position() -> None:
    entry = refused(b'{"model": "jev-latest", "state"')
    assert (entry["type"], entry["loc"]) == ("json_invalid", ["body", 31])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "json_invalid"),
        (b"{} {}", "json_invalid"),
        (b"\xef\xbb\xbf{}", "json_invalid"),
        (b'{"a": "\xff"}', "json_invalid"),
        ('{"a": 1}'.encode("utf-16"), "json_invalid"),
        (b'{"a": 1, "a": 1}', "duplicate_key"),
        (b'{"a": [{"b": {"c": 1, "d": 2, "c": 3}}]}', "duplicate_key"),
        (b'{"a": NaN}', "finite_number"),
        (b'{"a": -Infinity}', "finite_number"),
        (b'{"a": 1e999}', "finite_number"),
        (b'{"a": -1e999}', "finite_number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "finite_number"),
        (rb'{"a": "\ud800"}', "string_unicode"),
        (rb'{"\uDFFF": 1}', "string_unicode"),
        (rb'["\udc00\ud800"]', "string_unicode"),
    ],
)
def test_what_is_not_strict_json_is_named(body: bytes, kind: str) -> None:
    assert refused(body)["type"] == kind


def test_a_duplicate_key_is_named() -> None:
    entry = refused(b'{"questions": {"q1": 1, "q1": 2}}')
    assert entry["loc"] == ["body", "q1"]
    assert "'q1'" in entry["msg"]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_t27_nesting_is_bounded_and_never_crashes(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"

    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    assert wire.parse(nested(DEPTH), DEPTH)
    for depth in (DEPTH + 1, 1_000, 100_000):
        entry = refused(nested(depth))
        assert (entry["type"], entry["ctx"]) == ("too_deep", {"limit": DEPTH})
    assert refused(opening * 100_000)["type"] in ("too_deep", "json_invalid")


def test_many_siblings_are_not_depth() -> None:
    assert len(wire.parse(b"[" + b",".join([b"[[]]"] * 1000) + b"]", DEPTH)) == 1000


def test_escaped_pairs_and_unusual_text_arrive_unchanged() -> None:
    assert wire.parse(rb'{"\ud83d\ude00": "\u2028\u0000\\ud800"}', DEPTH) == {"😀": "\u2028\0\\ud800"}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON_VALUES, st.booleans())
def test_strict_json_arrives_unchanged_and_goes_out_unchanged(value: Any, ascii_only: bool) -> None:
    arrived = wire.parse(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8"), DEPTH)
    assert arrived == value
    assert wire.parse(wire.encode(arrived), DEPTH) == value


@settings(deadline=None)
@given(st.binary() | JSON_VALUES.map(lambda value: json.dumps(value).encode()[:-1]))
def test_any_bytes_are_json_or_a_422(body: bytes) -> None:
    try:
        json.loads(body.decode("utf-8"))
        ours: Any = wire.parse(body, DEPTH)
    except ApiError as error:
        assert error.status == 422
    except ValueError:
        assert refused(body)["type"]
    else:
        assert ours == json.loads(body)


def test_a_number_that_is_not_finite_is_never_sent() -> None:
    with pytest.raises(ValueError):
        wire.encode({"noul": float("nan")})
