"""Any bytes at all: the answer is JSON and never a 5xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.support import THREE, Answer, Servers, Service, ask

REQUEST = json.dumps(THREE).encode()
ENCODINGS = st.sampled_from(["identity", "gzip", "deflate", "zstd", "br"])

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["model", "state", "questions", "assets", "type", "instructions", "criteria", "true", "0"]
)
QUESTION = st.dictionaries(
    KEYS, JSON_VALUES | st.sampled_from(["noul", "choice", "score", "box"]), max_size=4
)
NEAR_REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "model": JSON_VALUES | st.just("jev-latest"),
        "state": JSON_VALUES,
        "questions": JSON_VALUES | st.dictionaries(st.text(), QUESTION, max_size=3),
        "assets": JSON_VALUES,
    },
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with a few bytes replaced, removed or doubled."""
    body = bytearray(REQUEST)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body) - 1))
        body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(body)


class OpenServer:
    """A server that lives as long as the test, in an event loop that hypothesis may enter again and again."""

    def __init__(self, servers: Servers) -> None:
        self.runner = asyncio.new_event_loop()
        self.context = servers.running()
        self.service: Service = self.runner.run_until_complete(self.context.__aenter__())

    def post(self, body: bytes, encoding: str = "identity") -> Answer:
        return self.runner.run_until_complete(self.service.post(body, Content_Encoding=encoding))

    def raw(self, sent: bytes) -> bytes:
        async def exchange() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.service.port)
            writer.write(sent)
            writer.write_eof()
            try:
                return await asyncio.wait_for(reader.read(), 10)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        return self.runner.run_until_complete(exchange())

    def close(self) -> None:
        self.runner.run_until_complete(self.context.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[OpenServer]:
    opened = OpenServer(servers)
    yield opened
    opened.close()


def check(answer: Answer) -> None:
    assert answer.status == 200 or 400 <= answer.status < 500
    content: Any = answer.json
    assert set(content) == (
        {"model", "answers", "usage", "x_openjev"} if answer.status == 200 else {"detail"}
    )


@settings(deadline=None, max_examples=300)
@given(body=st.binary(max_size=200) | damaged())
def test_any_body_gets_json_and_never_a_5xx(server: OpenServer, body: bytes) -> None:
    check(server.post(body))


@settings(deadline=None, max_examples=300)
@given(request=NEAR_REQUESTS)
def test_any_json_gets_json_and_never_a_5xx(server: OpenServer, request: Any) -> None:
    check(server.post(json.dumps(request).encode()))


@settings(deadline=None, max_examples=100)
@given(body=st.binary(max_size=100), encoding=ENCODINGS)
def test_any_packed_body_gets_json_and_never_a_5xx(server: OpenServer, body: bytes, encoding: str) -> None:
    check(server.post(body, encoding))


@settings(deadline=None, max_examples=200)
@given(
    sent=st.binary(min_size=1, max_size=200)
    | st.builds(
        lambda line, header, tail: b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n%b" % (line, header, tail),
        st.binary(max_size=30),
        st.binary(max_size=30),
        st.binary(max_size=30),
    )
)
def test_any_bytes_on_a_connection_get_json_or_nothing(server: OpenServer, sent: bytes) -> None:
    received = server.raw(sent)
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        assert 400 <= status < 500
        headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        assert headers[b"Content-Type"] == b"application/json"
        length = int(headers[b"Content-Length"])
        assert "detail" in json.loads(rest[:length])
        received = rest[length:]


def test_the_server_still_answers_afterwards(server: OpenServer) -> None:
    assert server.post(json.dumps(ask()).encode()).status == 200
