"""A GPU of another architecture is refused in a sentence that says what is needed: tested without any GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native import build_program

DEVICE_UNAVAILABLE = "3"  # its position in ErrorKind


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("architecture") / "architecture_test"
    return build_program(made, ["tests/gpu/architecture_test.cc"], ["-Wall", "-Werror"])


def said_of(program: Path, major: int, minor: int) -> str:
    done = subprocess.run([program, str(major), str(minor)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_hopper_is_accepted(program: Path) -> None:
    assert said_of(program, 9, 0) == "accepted"


@pytest.mark.parametrize(("major", "minor"), [(7, 0), (8, 0), (8, 9), (10, 0), (12, 0)])
def test_others_are_refused_older_and_newer(program: Path, major: int, minor: int) -> None:
    assert said_of(program, major, minor) == (
        f"{DEVICE_UNAVAILABLE} device cuda: Some GPU has compute capability {major}.{minor}; "
        "needed is 9.0 (Hopper: H100, H200)"
    )
