"""Time inside the server around the engine: one client, one kept connection, a request of three questions.

    python bench/server_overhead.py                  the demo checkpoint
    python bench/server_overhead.py --engine none    a stand-in that returns at once; needs no build
    python bench/server_overhead.py --json FILE      also writes the record

"inside" is Server-Timing's total minus its model: from the first line of the handler to the finished
response, without the engine call. "around" is the client's wall time minus model: it adds HTTP parsing, the
socket and the client.
Prints a Markdown row; exits 1 when the median inside is over the target.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm  # type: ignore[import-untyped]

from openjev.checkpoints import resolve
from openjev.model import DecisionModel
from openjev.settings import Settings
from openjev.tokens import Tokenizer
from openjev_server.app import run

TARGET_MS = 1.0

REQUEST = {
    "model": "jev-latest",
    "state": "The parcel was promised for Monday. It is Thursday and the customer has written twice.",
    "questions": {
        "late": {"type": "noul", "instructions": "Is the parcel late?"},
        "team": {
            "type": "choice",
            "instructions": "Who should act?",
            "criteria": {"billing": None, "shipping": "parcels and carriers", "support": None},
        },
        "mood": {
            "type": "score",
            "instructions": "How annoyed is the customer?",
            "criteria": ["calm", "annoyed", "furious"],
        },
    },
}


class NoEngine:
    """Returns zeros at once; its info is that of the checkpoint whose tokenizer is used."""

    def __init__(self, folder: Path) -> None:
        manifest = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        prompt = manifest["prompt"]
        self.info: Mapping[str, Any] = {
            "device": "none",
            "device_detail": "no engine",
            "threads": 0,
            "weight_dtype": "F32",
            "weight_bytes": 0,
            "parameters": 0,
            "layers": config["num_hidden_layers"],
            "hidden_size": config["hidden_size"],
            "vocab_size": config["vocab_size"],
            "format": manifest["format"],
            "base": manifest["base"],
            "checkpoint": manifest["checkpoint"],
            "readout": manifest["readout"]["kind"],
            "outputs": 1,
            "temperature": manifest["readout"].get("temperature", 1.0),
            "token_ids": manifest["readout"].get("token_ids", []),
            "prompt_prefix": prompt["prefix"],
            "prompt_suffix": prompt["suffix"],
            "strip": prompt["strip"],
            "max_length": manifest["max_length"],
        }

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        return np.zeros((len(offsets) - 1, 1), np.float32)

    def stats(self) -> Mapping[str, Any]:
        return {}


class Client:
    """Keep-alive HTTP over a bare socket, so that the client's own time is small."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps(REQUEST).encode()
        head = "POST /v1/systemone HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def ask(self) -> tuple[float, dict[str, float]]:
        """Wall time and the stages of Server-Timing, all in milliseconds."""
        start = time.perf_counter()
        self._socket.sendall(self._request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        missing = int(fields["Content-Length"]) - len(body)
        while missing > 0:
            missing -= len(self._receive())
        wall = 1e3 * (time.perf_counter() - start)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answered {head.decode()}\n{body.decode()}")
        stages = re.findall(r"(\w+);dur=([0-9.]+)", fields["Server-Timing"])
        return wall, {name: float(value) for name, value in stages}

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise SystemExit("the server closed the connection")
        return data


def serve(model: str, engine: str) -> int:
    """The server process."""
    settings = Settings(model=model, port=0)
    if engine == "model":
        return run(settings)

    def load() -> DecisionModel:
        folder = resolve(model)
        return DecisionModel(NoEngine(folder), Tokenizer(folder))

    return run(settings, load)


def measure(model: str, engine: str, warm_up: int, requests: int) -> dict[str, Any]:
    """Starts a server, asks it, stops it; returns the record."""
    command = [sys.executable, __file__, "--serve", "--model", model, "--engine", engine]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            client = Client(_wait_ready(process))
            for _ in range(warm_up):
                client.ask()
            steps = tqdm(range(requests), disable=not sys.stderr.isatty(), unit="request")
            samples = [client.ask() for _ in steps]
        finally:
            process.terminate()
    inside = [stages["total"] - stages["model"] for _, stages in samples]
    around = [wall - stages["model"] for wall, stages in samples]
    stages = {name: statistics.median(s[name] for _, s in samples) for name in samples[0][1]}
    return {
        "model": model,
        "engine": engine,
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "requests": requests,
        "inside_ms": _summary(inside),
        "around_ms": _summary(around),
        "stage_median_ms": {name: round(value, 3) for name, value in stages.items()},
    }


def _wait_ready(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    port = None
    seen = ""
    for line in process.stderr:
        seen += line
        if found := re.search(r"listening on http://\S+:(\d+)", line):
            port = int(found[1])
        if "ready:" in line and port is not None:
            return port
    raise SystemExit(f"the server did not start:\n{seen}")


def _summary(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=20)
    return {"median": round(statistics.median(values), 3), "p95": round(cuts[18], 3)}


def markdown(record: dict[str, Any]) -> str:
    """The record as a table of one row."""
    inside, around, stages = record["inside_ms"], record["around_ms"], record["stage_median_ms"]
    parts = " / ".join(str(stages[name]) for name in ("body", "prepare", "queue"))
    columns = [
        ("engine", f"{record['engine']} ({record['model']})"),
        ("requests", record["requests"]),
        ("inside median ms", inside["median"]),
        ("inside p95 ms", inside["p95"]),
        ("around median ms", around["median"]),
        ("around p95 ms", around["p95"]),
        ("body / prepare / queue ms", parts),
        ("model ms", stages["model"]),
    ]
    rows = ([name for name, _ in columns], ["---"] * len(columns), [str(value) for _, value in columns])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo", help="checkpoint folder or name (default: demo)")
    parser.add_argument("--engine", choices=("model", "none"), default="model")
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE", help="also write the record here")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.model, args.engine)
    record = measure(args.model, args.engine, args.warm_up, args.requests)
    print(markdown(record))
    if args.json:
        Path(args.json).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if record["inside_ms"]["median"] > TARGET_MS:
        print(f"over the target of {TARGET_MS} ms inside the server", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
