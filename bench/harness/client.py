"""The measuring client: kept connections, a timer around what the network and the server do.

The timer starts before the POST is written and stops when the body has been decoded as UTF-8. Connecting,
building the JSON and reading it are outside.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from bench.harness.workloads import Request

PATH = "/v1/systemone"


@dataclass(frozen=True)
class Reply:
    """A response in time: `ms` by the client's timer, `model_ms` as the server reports it, if it does.

    Status 0: there was no response, `text` says why.
    """

    status: int
    text: str
    ms: float
    model_ms: float | None = None


@dataclass(frozen=True)
class Sample:
    request: Request
    reply: Reply


@dataclass(frozen=True)
class Pass:
    """One run over a workload; `samples` in the order of the requests, as far as they were sent."""

    wall_s: float
    samples: tuple[Sample, ...]

    @property
    def failed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.reply.status != 200]


class Connection:
    """One kept connection; a request goes out in one write. Not for several threads."""

    def __init__(self, url: str, timeout_s: float, key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: found {url!r}, allowed: http://HOST:PORT or https://HOST")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._timeout_s = timeout_s
        self._prefix = parts.path.rstrip("/")
        self._common = f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
        self._common += f"Authorization: Bearer {key}\r\n" if key else ""
        self._socket: socket.socket | None = None

    def open(self) -> socket.socket:
        """Connects, so that no measured request has to. Raises OSError."""
        if self._socket is None:
            plain = socket.create_connection((self._host, self._port), self._timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = ssl.create_default_context() if self._secure else None
            self._socket = context.wrap_socket(plain, server_hostname=self._host) if context else plain
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def post(self, body: bytes) -> Reply:
        """One decision; never raises for what the server or the network does."""
        start = time.perf_counter()
        try:
            status, raw, headers = self._exchange("POST", PATH, body)
            text = raw.decode("utf-8")
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            self.close()
            return Reply(0, f"{type(error).__name__}: {error}", 1e3 * (time.perf_counter() - start))
        ms = 1e3 * (time.perf_counter() - start)
        return Reply(status, text, ms, _model_ms(headers.get("Server-Timing")))

    def get(self, path: str) -> tuple[int, str]:
        """Raises OSError, http.client.HTTPException."""
        status, raw, _ = self._exchange("GET", path, b"")
        return status, raw.decode("utf-8", "replace")

    def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes, Message]:
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._common}"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        connection = self.open()
        connection.sendall(f"{head}\r\n".encode() + body)
        response = http.client.HTTPResponse(connection, method=method)
        try:
            response.begin()
            raw = response.read()
            if response.will_close:
                self.close()
        finally:
            response.close()
        return response.status, raw, response.headers


def _model_ms(timing: str | None) -> float | None:
    found = re.search(r"\bmodel;dur=([0-9.]+)", timing or "")
    return float(found[1]) if found else None


def run_pass(connect: Callable[[], Connection], requests: Sequence[Request], concurrency: int) -> Pass:
    """Sends every request once, in order, `concurrency` at a time; stops at the first that fails.

    Raises OSError when there is nobody to connect to.
    """
    replies: list[Reply | None] = [None] * len(requests)
    turns = iter(range(len(requests)))
    turn_lock = threading.Lock()
    stop = threading.Event()
    ready = threading.Barrier(concurrency + 1)

    def work(connection: Connection) -> None:
        ready.wait()
        while not stop.is_set():
            with turn_lock:
                index = next(turns, None)
            if index is None:
                return
            reply = replies[index] = connection.post(requests[index].body)
            if reply.status != 200:
                stop.set()

    with contextlib.ExitStack() as stack:
        connections = [connect() for _ in range(concurrency)]
        for connection in connections:
            stack.callback(connection.close)
            connection.open()
        threads = [threading.Thread(target=work, args=(connection,)) for connection in connections]
        for thread in threads:
            thread.start()
        ready.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        wall = time.perf_counter() - start
    pairs = zip(requests, replies, strict=True)
    return Pass(wall, tuple(Sample(request, reply) for request, reply in pairs if reply is not None))


def parse_response(text: str) -> Any:
    """The JSON of a response, outside any timer. Raises ValueError."""
    return json.loads(text)
