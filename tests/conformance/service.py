"""A real `openjev serve` process on a real checkpoint, as a client sees it."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.process import ServerProcess, server_process

JSON = {"Content-Type": "application/json"}
START_SECONDS = 120

# The clients of a test need a core as well, and the number of threads changes no answer.
ONE_THREAD = {"OPENJEV_DEVICE": "cpu", "OPENJEV_THREADS": "1"}

# Of the demo's kind and a fraction of its size, for tests of everything around the model.
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 64,
    "linear_num_key_heads": 1,
}


@dataclass(frozen=True)
class Reply:
    """A response; `body` as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def answers(self) -> Any:
        assert self.status == 200, self.body
        return self.json["answers"]

    @property
    def issues(self) -> list[dict[str, Any]]:
        """The list form of an error."""
        assert self.status == 422, self.body
        detail = self.json["detail"]
        assert isinstance(detail, list) and detail
        return detail


class Service:
    """A running server: its address, its process and a blocking client."""

    def __init__(self, process: ServerProcess, key: str = "") -> None:
        self.process = process
        self.key = key
        self.port = process.port
        self.url = f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request on a connection of its own; an iterator of bytes as `body` is sent in chunks."""
        own = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, {**own, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())

    def post(self, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """A decision; anything but bytes and iterators is sent as JSON."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        return self.call("POST", "/v1/systemone", data, {**JSON, **(headers or {})})

    def ask(self, state: Any, **questions: Any) -> Reply:
        return self.post({"model": "jev-latest", "state": state, "questions": questions})

    def memory(self) -> int:
        """Resident bytes of the process."""
        return process_memory(self.process.process.pid, "VmRSS")


def process_memory(pid: int | str, field: str) -> int:
    """A kB field of /proc/<pid>/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {field}")


def serve_command(model: str | Path, *flags: str) -> list[str]:
    """The command line on a free port."""
    return [sys.executable, "-m", "openjev", "serve", "--port", "0", "--model", str(model), *flags]


@contextlib.contextmanager
def serving(
    model: str | Path, *flags: str, key: str = "", env: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """A server that is ready; afterwards it must obey SIGTERM and exit with 0."""
    environment = {**ONE_THREAD, **(env or {}), **({"OPENJEV_API_KEY": key} if key else {})}
    with server_process(serve_command(model, *flags), environment) as process:
        process.wait_for("ready: ", START_SECONDS)
        assert process.health()[0] == 200
        yield Service(process, key)
        assert process.process.poll() is None, f"the server ended before it was told to:\n{process.stderr}"
        process.stop()
        assert process.exit_code() == 0, process.stderr


def noul(text: str = "Is it late?", **criteria: Any) -> dict[str, Any]:
    question: dict[str, Any] = {"type": "noul", "instructions": text}
    return {**question, "criteria": criteria} if criteria else question


def choice(*names: str, text: str = "Which?") -> dict[str, Any]:
    return {"type": "choice", "instructions": text, "criteria": dict.fromkeys(names)}


def score(*levels: Any, text: str = "How much?") -> dict[str, Any]:
    return {"type": "score", "instructions": text, "criteria": list(levels)}
