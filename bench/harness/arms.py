"""Arms: one server process each, started, waited for, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.checkpoints import Checkpoint
from bench.harness.client import Connection

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 900.0
_POLL_S = 0.05
_LISTENING = re.compile(r"listening on (http://\S+?:\d+)")
# Settings of `openjev serve` that an arm may give, by their names there.
_SETTINGS = ("device", "threads", "graph_mode", "graph_entries", "matmul_mode", "batch_tokens", "max_length")


class ArmError(RuntimeError):
    """The server of an arm did not start, or did not stay."""


@dataclass(frozen=True)
class Server:
    """A server that is ready; `pid` is None when it is not ours."""

    url: str
    pid: int | None
    start_s: float
    key: str = ""

    def connect(self, timeout_s: float) -> Connection:
        return Connection(self.url, timeout_s, self.key)


def command(arm: Mapping[str, Any], checkpoint: Checkpoint, model: str, torch_python: str) -> list[str]:
    """The command line of an arm's server. `model` stands for the checkpoint folder."""
    if arm["kind"] == "openjev":
        words = [sys.executable, "-m", "openjev", "serve"]
        for name in _SETTINGS:
            if name in arm:
                words += [f"--{name.replace('_', '-')}", str(arm[name])]
        if checkpoint.seeded:
            words += ["--load-format", "dummy"]
        if not arm.get("share_prefixes", True):
            words.append("--no-share-prefixes")
    else:
        words = [torch_python, "-m", "bench.transformers_server"]
        words += ["--device", arm.get("device", "cpu"), "--lora", arm.get("lora", "none")]
        words += ["--rule", "fla" if arm["kind"] == "transformers-fla" else "torch"]
        for name in ("lora_rank", "adapter", "base", "dtype", "threads"):
            if name in arm:
                words += [f"--{name.replace('_', '-')}", str(arm[name])]
        if checkpoint.seeded:
            words.append("--seeded")
    return [*words, "--model", model, "--host", "127.0.0.1", "--port", "0"]


def shown_command(arm: Mapping[str, Any], checkpoint: Checkpoint) -> list[str]:
    """The command for the record: without the folders of this machine."""
    if arm["kind"] == "url":
        return []
    words = command(arm, checkpoint, "CHECKPOINT", "python")
    return ["python", *words[1:]]


@contextlib.contextmanager
def running(arm: Mapping[str, Any], checkpoint: Checkpoint, log: Path, torch_python: str) -> Iterator[Server]:
    """The arm's server, ready: loaded and warmed up. Its output goes to `log`. Raises ArmError."""
    if arm["kind"] == "url":
        key = os.environ.get("OPENJEV_API_KEY", "")
        yield Server(arm["url"].rstrip("/"), None, 0.0, key)
        return
    words = command(arm, checkpoint, str(checkpoint.folder), torch_python)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # The settings of an arm are those of its plan: what the shell says must not reach it.
    for name in [name for name in environment if name.startswith("OPENJEV_") and name != "OPENJEV_CACHE"]:
        del environment[name]
    begin = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    with log.open("wb") as output:
        try:
            with _uninterrupted():
                process = subprocess.Popen(
                    words,
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            url = _wait_until_ready(process, log, arm["name"], begin + START_TIMEOUT_S)
            yield Server(url, process.pid, time.monotonic() - begin)
        finally:
            if process is not None:
                with _uninterrupted():
                    _stop(process)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds SIGTERM and SIGINT back until the block has ended.

    An exception out of a handler while a process is being made would leave one that nobody knows of.
    """
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda found, _: held.append(found))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, name: str, deadline: float) -> str:
    url = ""
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ArmError(f"arm {name}: its server ended with status {process.returncode}: {_tail(log)}")
        if not url:
            found = _LISTENING.search(log.read_text(encoding="utf-8", errors="replace"))
            url = found[1] if found else ""
        if url and _is_ready(url):
            return url
        time.sleep(_POLL_S)
    raise ArmError(f"arm {name}: its server was not ready after {START_TIMEOUT_S:g} s: {_tail(log)}")


def _is_ready(url: str) -> bool:
    connection = Connection(url, 10)
    try:
        return connection.get("/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL for the whole group: nothing of an arm may share the device with the next."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return without_folders(" | ".join(lines[-3:]))


def without_folders(text: str) -> str:
    """Absolute paths cut to their last part: a ledger says nothing about where a machine keeps its files."""
    return re.sub(r"(?<![\w:/])/(?:[^\s/:'\"]+/)+([^\s/:'\"]*)", r"\1", text)


def counters(server: Server) -> dict[str, float]:
    """The graph counters of a server that has them, from /metrics; empty for others."""
    connection = server.connect(10)
    try:
        status, text = connection.get("/metrics")
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    found = re.findall(r"^openjev_graph_(\w+) ([0-9.e+]+)$", text, re.MULTILINE) if status == 200 else []
    return {name: float(value) for name, value in found}
