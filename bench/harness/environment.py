"""What the measurements ran on: device, versions, commit. No name of a machine, a user or a folder."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness.memory import Nvml

_PACKAGES = ("openjev", "numpy", "tokenizers", "aiohttp", "uvloop", "nvidia-cublas")
TORCH_PACKAGES = ("torch", "transformers", "peft", "flash-linear-attention", "openjev")
_ROOT = Path(__file__).resolve().parents[2]


def describe(commit: str = "") -> dict[str, Any]:
    """`commit` names the sources where there is no repository to ask."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "commit": commit or _commit(),
        "packages": versions(_PACKAGES),
        "gpu": gpu_facts(),
    }


def versions(names: tuple[str, ...]) -> dict[str, str | None]:
    """Installed versions; None: not installed."""
    return {name: _version(name) for name in names}


def versions_elsewhere(python: str, names: Sequence[str]) -> dict[str, str | None]:
    """Installed versions as another interpreter sees them; None: not installed, or no answer."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "def version(name):\n"
        "    try:\n        return m.version(name)\n"
        "    except m.PackageNotFoundError:\n        return None\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code, *names], capture_output=True, text=True, timeout=60, check=True
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return dict.fromkeys(names)
    return found


def gpu_facts() -> dict[str, Any] | None:
    """Of device 0, now; None without an NVIDIA driver."""
    try:
        return Nvml().facts()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(_ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        dirty = "-dirty" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
