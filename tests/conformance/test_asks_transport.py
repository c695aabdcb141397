"""What users of decision servers have asked for, by number (docs/conformance.md): HTTP and start."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import ORIGIN
from tests.conformance.service import JSON, ONE_THREAD, Service, choice, noul, score, serve_command, serving
from tests.server.process import server_process

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STATE = "The parcel is three days late. " * 60
REQUEST = {
    "model": "jev-latest",
    "state": STATE,
    "questions": {"late": noul(), "team": choice("billing", "shipping"), "mood": score("calm", "angry")},
}
BODY = json.dumps(REQUEST).encode()


def test_T12_pages_of_other_origins_are_refused(demo: Service, keyed: Service) -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Origin": ORIGIN}
    for reply in (
        demo.post(REQUEST, {"Origin": ORIGIN}),
        demo.call("OPTIONS", "/v1/systemone", None, preflight),
    ):
        assert reply.status == 403
        assert not any(name.lower().startswith("access-control-") for name in reply.headers)
    evil = {"Origin": "http://evil.test"}
    assert keyed.post(REQUEST, evil).status == 403
    for reply in (
        keyed.post(REQUEST, {"Origin": ORIGIN}),
        keyed.call("OPTIONS", "/v1/systemone", None, preflight),
    ):
        assert reply.status in (200, 204)
        assert reply.headers["Access-Control-Allow-Origin"] == ORIGIN


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_T14_an_open_address_without_a_key_is_warned_about(
    small_folder: Path, host: str, warned: bool
) -> None:
    with serving(small_folder, "--host", host) as service:
        process = service.process
    assert ("no API key" in process.stderr and "0.0.0.0" in process.stderr) == warned


def test_T16_the_same_request_gets_the_same_bytes(demo: Service) -> None:
    first = demo.post(REQUEST)
    assert first.status == 200
    assert all(demo.post(REQUEST).body == first.body for _ in range(20))
    for clients in (2, 8, 32):
        with ThreadPoolExecutor(clients) as pool:
            replies = list(pool.map(lambda _: demo.post(REQUEST), range(clients)))
        assert [reply.body for reply in replies] == [first.body] * clients
    ids = {demo.post(REQUEST).headers["x-typesafe-request-id"] for _ in range(3)}
    assert len(ids) == 3


# Runs before everything else in the process and writes down whom it tries to reach.
_WATCH = """
import os, sys
def watch(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        with open(os.environ["WATCHED"], "a", encoding="utf-8") as file:
            file.write(f"{event} {args[0 if event.startswith('socket.get') else 1]!r}\\n")
sys.addaudithook(watch)
"""


def test_T18_a_local_folder_is_served_without_reaching_out(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WATCH, encoding="utf-8")
    watched = tmp_path / "watched"
    watched.touch()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env = {"PYTHONPATH": path, "WATCHED": str(watched), "HF_HUB_OFFLINE": "1"}
    with serving(small_folder, env=env) as service:
        assert service.ask("Hi", q=noul()).status == 200
    reached = [line for line in watched.read_text(encoding="utf-8").splitlines() if "127.0.0.1" not in line]
    assert reached == []


def test_T18_the_watch_sees_a_connection(tmp_path: Path) -> None:
    """Otherwise the test above would pass for want of a watch."""
    (tmp_path / "sitecustomize.py").write_text(_WATCH, encoding="utf-8")
    watched = tmp_path / "watched"
    script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    env = {"PYTHONPATH": str(tmp_path), "WATCHED": str(watched)}
    with server_process([sys.executable, "-c", script], env) as process:
        process.exit_code()
    assert "192.0.2.1" in watched.read_text(encoding="utf-8")


def test_T22_the_locale_changes_nothing(small_folder: Path, keyed: Service) -> None:
    state = {"نص": "الطرد متأخر", "emoji": "📦👩‍👧"}
    asked = {"où": choice("é", "ñ"), "q": noul("متأخر؟")}
    body = json.dumps({"state": state, "questions": asked}, ensure_ascii=False).encode("utf-8")
    want = keyed.post(body)
    assert want.status == 200
    env = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with serving(small_folder, env=env) as service:
        assert service.post(body).body == want.body


def test_T23_health_is_503_until_ready(small_folder: Path) -> None:
    with server_process(serve_command(small_folder), ONE_THREAD) as process:
        process.wait_for("listening on")
        states = [process.health()]
        while states[-1][0] != 200:
            states.append(process.health())
        assert {(status, state["status"]) for status, state in states} <= {(503, "loading"), (200, "ready")}
        assert process.decide({"state": "Hi", "questions": {"q": noul()}})[0] == 200


def _pieces(size: int) -> Iterator[bytes]:
    for start in range(0, len(BODY), size):
        yield BODY[start : start + size]


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_T24_a_chunked_body_gets_the_same_answer(demo: Service, size: int) -> None:
    chunked = demo.call("POST", "/v1/systemone", _pieces(size), JSON)
    assert chunked.status == 200
    assert chunked.body == demo.post(BODY).body


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'])
def test_T27_deep_nesting_is_refused(demo: Service, depth: int, pair: str) -> None:
    opening, closing = pair[:-1], pair[-1]
    state = opening * depth + "1" + closing * depth
    body = f'{{"questions": {{"q": {json.dumps(noul())}}}, "state": {state}}}'.encode()
    assert demo.post(body).issues[0]["loc"][0] == "body"
    assert demo.ask("Hi", q=noul()).status == 200


def test_T28_a_zstd_body_is_unpacked_within_the_limit(demo: Service) -> None:
    packed: dict[str, Any] = {"Content-Encoding": "zstd"}
    assert len(BODY) > 2000
    good = demo.post(zstd.compress(BODY), packed)
    assert good.status == 200
    assert good.body == demo.post(BODY).body
    corrupt = bytearray(zstd.compress(BODY))
    corrupt[len(corrupt) // 2 :] = b"\xff" * (len(corrupt) - len(corrupt) // 2)
    assert demo.post(bytes(corrupt), packed).status == 400
    bomb = zstd.compress(json.dumps({**REQUEST, "state": "x" * (10 << 20)}).encode())
    assert len(bomb) < 1 << 20
    refused = demo.post(bomb, packed)
    assert refused.status == 413
    assert refused.json["detail"]["error_type"] == "request_too_large"
