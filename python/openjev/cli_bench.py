"""`openjev bench`: the C++ binary that is installed beside the native library."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from openjev.cli_input import InputError
from openjev.native import runtime
from openjev.settings import Settings


def run_bench(args: argparse.Namespace, settings: Settings) -> int:
    """Runs openjev-bench with the rest of the command line and returns its exit code."""
    binary = Path(runtime().__file__).parent / "openjev-bench"
    if not os.access(binary, os.X_OK):
        raise InputError(f"{binary}: not found, or not a program; the package installs it there")
    return subprocess.run([binary, *args.arguments], check=False).returncode
