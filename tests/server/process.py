"""A server process: its port, its standard error and its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """Reads standard error as it comes, so that the process never blocks on it."""

    def __init__(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self._lines: list[str] = []
        self._grew = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._grew:
                self._lines.append(line)
                self._grew.notify_all()

    @property
    def stderr(self) -> str:
        return "".join(self._lines)

    def wait_for(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        """The first match of `pattern` in standard error, waiting for it."""
        deadline = time.monotonic() + seconds
        with self._grew:
            while (found := re.search(pattern, self.stderr)) is None:
                left = deadline - time.monotonic()
                assert left > 0 and self.process.poll() is None, f"no {pattern!r} in:\n{self.stderr}"
                self._grew.wait(min(left, 0.2))
        return found

    @property
    def port(self) -> int:
        return int(self.wait_for(r"listening on http://\S+:(\d+)")[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path: str) -> tuple[int, bytes]:
        with contextlib.closing(self.connect()) as connection:
            return exchange(connection, "GET", path)

    def health(self) -> tuple[int, Any]:
        status, body = self.get("/health")
        return status, json.loads(body)

    def decide(self, request: Any) -> tuple[int, Any]:
        with contextlib.closing(self.connect()) as connection:
            return decide(connection, request)

    def open_requests(self) -> int:
        """Requests in the engine and in the queue."""
        text = self.get("/metrics")[1].decode()
        counts = re.findall(r"^openjev_(?:running|queue)_requests ([0-9.]+)$", text, re.MULTILINE)
        return int(sum(map(float, counts)))

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self, seconds: float = 60) -> int:
        """Waits for the end; standard error is complete afterwards."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    """One request on an open connection."""
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    response = connection.getresponse()
    return response.status, response.read()


def decide(connection: http.client.HTTPConnection, request: Any) -> tuple[int, Any]:
    """Status and body of a decision asked on an open connection."""
    status, body = exchange(connection, "POST", "/v1/systemone", json.dumps(request).encode())
    return status, json.loads(body)


@contextlib.contextmanager
def server_process(command: list[str], env: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    server = ServerProcess(command, env)
    try:
        yield server
    finally:
        server.process.kill()
        server.exit_code()


def fake_server(folder: Path, **options: Any) -> list[str]:
    """The command line of tests/server/fake_server.py on a free port."""
    options["settings"] = {"port": 0, **options.get("settings", {})}
    return [sys.executable, "-m", "tests.server.fake_server", json.dumps({"folder": str(folder), **options})]
