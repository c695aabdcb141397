"""The reader of safetensors under the address and undefined-behaviour sanitizers: 10,000 mutated files."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tests.native import build_program, compiler

SOURCES = [
    "tests/io/fuzz_safetensors.cc",
    "cpp/io/bad_checkpoint.cc",
    "cpp/io/mapped_file.cc",
    "cpp/io/safetensors.cc",
    "cpp/io/safetensors_header.cc",
]
FLAGS = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def json_include() -> Path:
    spec = importlib.util.find_spec("nlohmann_json")
    assert spec is not None, "nlohmann-json is a requirement of the build: make build installs it"
    assert spec.origin is not None
    return Path(spec.origin).parent / "include"


def sanitizers_missing(folder: Path) -> str:
    """Why no program can be built and run with the sanitizers, or "" when one can."""
    source = folder / "empty.cc"
    source.write_text("int main() { return 0; }\n", encoding="utf-8")
    build = subprocess.run(
        [compiler(), *FLAGS, source, "-o", folder / "empty"], capture_output=True, text=True
    )
    if build.returncode != 0:
        return f"{compiler()} cannot link the sanitizers: {build.stderr.strip()[-300:]}"
    start = subprocess.run([folder / "empty"], capture_output=True, text=True)
    return f"a sanitized program does not start: {start.stderr.strip()[-300:]}" if start.returncode else ""


@pytest.mark.timeout(900)
def test_mutated_files_are_read_or_refused_without_a_sanitizer_report(tmp_path: Path) -> None:
    if reason := sanitizers_missing(tmp_path):
        pytest.skip(reason)
    flags = [*FLAGS, "-isystem", str(json_include())]
    program = build_program(tmp_path / "fuzz_safetensors", SOURCES, flags)
    run = subprocess.run([program, "1", "10000", tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    tally = re.fullmatch(r"10000 mutated files: (\d+) read, (\d+) refused\n", run.stdout)
    assert tally is not None, run.stdout
    assert int(tally[1]) > 100
    assert int(tally[2]) > 1000
