"""C++ programs that tests build for themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    assert found is not None, (
        "the build of the package needs a C++ compiler, but neither c++ nor g++ is on PATH"
    )
    return found


def build_program(made: Path, sources: Sequence[str], flags: Sequence[str]) -> Path:
    """The program `made` of `sources`, named from the project's root."""
    command = [compiler(), "-std=c++20", *flags, f"-I{ROOT}", f"-I{ROOT / 'cpp'}"]
    build = subprocess.run(
        [*command, *(ROOT / source for source in sources), "-o", made], capture_output=True, text=True
    )
    assert build.returncode == 0, build.stderr
    return made
