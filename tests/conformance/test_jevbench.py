"""The peer benchmark jevbench: relations that hold for any model whose prompts judge candidates one by one.

Such a model is indifferent to a question's id, its company and the other options, whatever its weights are;
so these relations measure the server, not what the demonstration model knows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conformance.service import Service

NAMED = ("key_rename", "key_instruction_conflict", "option_permutation")
BATCH = ("batch_solo", "batch_order", "duplicate_question", "batch_content", "batch_size_sweep")
MENU = ("irrelevant_option", "remove_option_iia", "pairwise_iia")


def test_batches_menus_keys_and_orders_score_100(demo: Service, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    command = [sys.executable, "-m", "jevbench", "eval", "--suite", "examples", "--no-cache"]
    command += ["--url", f"{demo.url}/v1/systemone", "--model", "jev-latest", "--out", str(out)]
    command += ["--dimensions", "BAT,CHO", "--relations", ",".join(NAMED)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["result"]["errors"] == []
    assert report["scores"]["relations"] == dict.fromkeys((*NAMED, *BATCH, *MENU), 1.0)
    # Not within the tolerance of the benchmark but exactly: the graded score is 1 only at distance 0.
    assert report["scores"]["graded"]["relations"] == dict.fromkeys((*NAMED, *BATCH, *MENU), 1.0)
