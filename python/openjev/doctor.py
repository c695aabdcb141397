"""`openjev doctor`: what works on this machine, and why the rest does not."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from typing import Any

from openjev.errors import InternalError
from openjev.native import runtime
from openjev.settings import Settings

# Import name, what it is for, and the extra that installs it.
_OPTIONAL = (
    ("aiohttp", "the server", "server"),
    ("prometheus_client", "the server's /metrics", "server"),
    ("uvloop", "a faster event loop", "fast"),
)

_SELF_TEST: dict[str, dict[str, Any]] = {
    "reply": {"type": "noul", "instructions": "Does this need a reply?"},
    "team": {
        "type": "choice",
        "instructions": "Who handles it?",
        "criteria": {"billing": None, "shipping": None},
    },
    "urgency": {"type": "score", "instructions": "How urgent is it?", "criteria": ["low", "medium", "high"]},
}


@dataclass(frozen=True)
class Finding:
    """One line: `ok` is None for what is only said, False for what must work and does not."""

    name: str
    text: str
    ok: bool | None = None

    def line(self) -> str:
        mark = {None: "  ", True: "ok", False: "!!"}[self.ok]
        return f"{mark}  {self.name:<17} {self.text}"


def run_doctor(args: argparse.Namespace, settings: Settings) -> int:
    """Prints one line a finding; 0 when what must work does."""
    failed = 0
    for check in (_versions, _cpu, _backends, _packages, _self_test):
        for finding in check():
            print(finding.line(), flush=True)
            failed += finding.ok is False
    print("everything that must work does" if not failed else f"{failed} of the above must work and does not")
    return 1 if failed else 0


def version() -> str:
    """The installed version of openjev."""
    try:
        return importlib.metadata.version("openjev")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def _versions() -> list[Finding]:
    python = f"{platform.python_version()} at {sys.executable}"
    return [
        Finding("openjev", version()),
        Finding("python", python),
        Finding("platform", f"{platform.platform()}, {platform.machine()}"),
    ]


def _cpu() -> list[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [Finding("cpu", f"{usable} of {os.cpu_count()} logical cores are usable by this process")]


def _backends() -> list[Finding]:
    try:
        backends = runtime().backends()
    except ImportError as error:
        return [Finding("native", str(error), ok=False)]
    found = []
    for name, usable, detail in backends:
        # A machine without a GPU is well; one without a working CPU backend is not.
        ok = True if usable else (False if name == "cpu" else None)
        found.append(Finding(f"device {name}", detail if usable else f"not usable: {detail}", ok=ok))
    return found


def _packages() -> list[Finding]:
    wanted = list(_OPTIONAL)
    if sys.version_info < (3, 14):
        wanted.append(("backports.zstd", "zstd request bodies", "server"))
    found = []
    for module, purpose, extra in wanted:
        installed = _installed(module)
        text = installed or f"not installed; for {purpose}: pip install 'openjev[{extra}]'"
        found.append(Finding(module.replace("_", "-"), text))
    return found


def _installed(module: str) -> str | None:
    try:
        if importlib.util.find_spec(module) is None:
            return None
        return importlib.metadata.version(module.replace("_", "-"))
    except ImportError:
        return None


def _self_test() -> list[Finding]:
    """Loads the demo checkpoint on the CPU and answers a question of each type."""
    try:
        return [Finding("demo", _answer_on_demo(), ok=True)]
    except Exception as error:  # whatever it is, it is what the user came to find out
        return [Finding("demo", f"{type(error).__name__}: {error}", ok=False)]


def _answer_on_demo() -> str:
    from openjev.model import load

    begin = time.perf_counter()
    model = load("demo", device="cpu")
    loaded = time.perf_counter()
    decision = model.decide("The parcel is late.", _SELF_TEST)
    answered = time.perf_counter()
    for name, answer in decision.to_dict()["answers"].items():
        values = [answer["noul"]] if answer["type"] == "noul" else list(answer["probabilities"].values())
        total = 1.0 if answer["type"] == "noul" else math.fsum(values)
        if not all(0 <= value <= 1 for value in values) or abs(total - 1) > 1e-9:
            raise InternalError(f"{name}: found probabilities {values}, allowed: 0 to 1 with the sum 1")
    ms = (loaded - begin) * 1e3, (answered - loaded) * 1e3
    return f"loaded in {ms[0]:.0f} ms, answered 3 questions in {ms[1]:.1f} ms"
