"""The reference arm of the measurement harness: raw Transformers behind the HTTP front of openjev."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import openjev
from openjev.seeded import build_checkpoint
from tests.server.process import ServerProcess, server_process

REQUEST: dict[str, Any] = {
    "model": "jev-latest",
    "state": "The parcel was promised for Monday. It is Thursday and nobody answers.",
    "questions": {
        "late": {"type": "noul", "instructions": "Is the parcel late?"},
        "team": {
            "type": "choice",
            "instructions": "Who acts?",
            "criteria": {"a": None, "b": None, "c": None},
        },
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("demo"))


def command(folder: Path, *flags: str) -> list[str]:
    words = ["--model", str(folder), "--port", "0", "--dtype", "float32", "--threads", "1", *flags]
    return [sys.executable, "-m", "bench.transformers_server", *words]


@pytest.fixture(scope="module", params=["none", "unmerged"])
def server(folder: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_process(command(folder, "--lora", request.param)) as process:
        process.wait_for("ready: ", 120)
        yield process


def test_it_decides_as_openjev_does(server: ServerProcess, folder: Path) -> None:
    status, answer = server.decide(REQUEST)
    assert status == 200
    ours = openjev.load(folder, device="cpu", threads=1).decide(REQUEST["state"], REQUEST["questions"])
    assert answer["usage"] == ours.to_dict()["usage"]
    assert math.isclose(answer["answers"]["late"]["noul"], ours["late"].noul, abs_tol=1e-4)
    theirs = answer["answers"]["team"]["probabilities"]
    for name, p in ours["team"].probabilities.items():
        assert math.isclose(theirs[name], p, abs_tol=1e-4)


def test_it_refuses_as_openjev_does(server: ServerProcess) -> None:
    assert server.decide({**REQUEST, "model": "another"})[0] == 400
    assert server.decide({**REQUEST, "questions": {}})[0] == 422


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--rule", "fla"), "Transformers ran its torch fallback, asked for: fla"),
        (("--lora", "merged"), "--lora merged: found no --adapter"),
        (("--seeded",), "--seeded: found --device cpu, allowed: cuda"),
    ],
)
def test_what_it_cannot_be_it_does_not_serve(flags: tuple[str, ...], said: str, folder: Path) -> None:
    with server_process(command(folder, *flags)) as process:
        assert process.exit_code(120) == 1
        assert said in process.stderr
