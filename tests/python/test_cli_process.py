"""The command as a process: the locale, a reader that leaves, a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import openjev
from openjev.seeded import build_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint") / "demo")


def environment(**changes: str) -> dict[str, str]:
    """Of this process, with the import path of the tests, and without what chooses an encoding."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHONIO"))
    }
    return {**kept, "OPENJEV_DEVICE": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changes}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "openjev", *arguments]


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_t22_text_is_utf8_whatever_the_locale_says(checkpoint: Path, locale: str) -> None:
    state = "الطرد متأخر 📦 schön"
    asked = {"où": {"type": "choice", "instructions": "quelle équipe ?", "criteria": {"é": None, "ñ": None}}}
    want = openjev.load(checkpoint, device="cpu").decide(state, asked).to_dict()
    questions = json.dumps(asked, ensure_ascii=False)
    environ = environment(LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    for given, stdin in ((state, b""), ("-", state.encode())):
        argv = command("decide", "--model", str(checkpoint), "--state", given, "--questions", questions)
        raw = [part.encode("utf-8") for part in argv]
        done = subprocess.run(raw, input=stdin, env=environ, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.decode("utf-8")) == want


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line_and_code_1(checkpoint: Path) -> None:
    argv = command("info", str(checkpoint))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(argv, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1
    assert done.stderr == b"openjev: error: output: No space left on device\n"


def test_a_reader_that_leaves_early_is_no_traceback(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    # Several times the buffer of a pipe's writer, so that it writes again after the reader has left.
    row = {"id": "x" * 2000, "state": "Hi", "questions": {"late": {"type": "noul", "instructions": "Late?"}}}
    file.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for _ in range(100)))
    argv = command("score", str(file), "--model", str(checkpoint), "--batch-tokens", "1000")
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode("utf-8")
        assert process.wait(timeout=120) == 1
    assert "Traceback" not in said and "Exception" not in said
