"""The measuring client: kept connections, a timer around what the network and the server do.

The timer starts before the POST is written and stops when the body has been decoded as UTF-8. Connecting,
building the JSON and reading it are outside.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.harness.workloads import Request

PATH = "/v1/systemone"
_HEADERS = {"Content-Type": "application/json"}


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
    """One kept connection. Not for several threads."""

    def __init__(self, url: str, timeout_s: float, key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: found {url!r}, allowed: http://HOST:PORT or https://HOST")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._http = kind(parts.hostname, parts.port, timeout=timeout_s)
        self._prefix = parts.path.rstrip("/")
        self._headers = {**_HEADERS, **({"Authorization": f"Bearer {key}"} if key else {})}

    def open(self) -> None:
        """Connects, so that no measured request has to. Raises OSError."""
        self._http.connect()

    def close(self) -> None:
        self._http.close()

    def post(self, body: bytes) -> Reply:
        """One decision; never raises for what the server or the network does."""
        start = time.perf_counter()
        try:
            self._http.request("POST", self._prefix + PATH, body, self._headers)
            response = self._http.getresponse()
            text = response.read().decode("utf-8")
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            self._http.close()
            return Reply(0, f"{type(error).__name__}: {error}", 1e3 * (time.perf_counter() - start))
        ms = 1e3 * (time.perf_counter() - start)
        return Reply(response.status, text, ms, _model_ms(response.getheader("Server-Timing")))

    def get(self, path: str) -> tuple[int, str]:
        """Raises OSError, http.client.HTTPException."""
        self._http.request("GET", self._prefix + path)
        response = self._http.getresponse()
        return response.status, response.read().decode("utf-8", "replace")


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
