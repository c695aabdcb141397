"""openjev-bench inside an experiment: kernels, matrix products and forward passes without HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.harness.arms import ROOT, without_folders
from bench.harness.workloads import read_spec

TIMEOUT_S = 600


def run(spec: Mapping[str, Any], scratch: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """One declared call and its record. An argument "workload:NAME" becomes a file of its token counts."""
    arguments = [str(word) for word in spec["arguments"]]
    record = scratch / f"{spec['name']}.json"
    row: dict[str, Any] = {"name": spec["name"], "arguments": arguments, "status": "failed", "reason": ""}
    words = [_lengths_file(word, scratch) for word in arguments]
    command = [sys.executable, "-m", "openjev", "bench", *words, "--json", str(record)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        row["reason"] = f"no result after {TIMEOUT_S} s"
    else:
        if done.returncode == 0:
            row.update(status="completed", tables=json.loads(record.read_text(encoding="utf-8"))["tables"])
        else:
            row["reason"] = f"status {done.returncode}: {without_folders(done.stderr.strip()[-300:])}"
    say(f"  {spec['name']}: {row['status']} {row['reason']}")
    return row


def _lengths_file(word: str, scratch: Path) -> str:
    """ "workload:NAME" becomes a file with the token counts of that workload's specification."""
    if not word.startswith("workload:"):
        return word
    path = scratch / "lengths.json"
    path.write_text(json.dumps(read_spec(word.partition(":")[2])["tokens"]), encoding="utf-8")
    return str(path)
