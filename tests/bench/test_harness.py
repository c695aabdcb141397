"""The whole harness on a small model: plan, servers, ledger, gates, tables, figures. No time is judged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from bench import report, validate
from bench.harness import ledger as ledgers
from bench.harness import run
from bench.harness.arms import without_folders

from openjev.seeded import build_checkpoint
from tests.conformance.service import SMALL

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with plan, workload and the results of a run."""
    root = tmp_path_factory.mktemp("harness")
    folder = build_checkpoint(root / "model", config=SMALL, max_length=256)
    spec = {"name": "tiny", "generator": "noul", "seed": "tiny", "tokens": list(range(70, 81))}
    (root / "tiny.json").write_text(json.dumps(spec), encoding="utf-8")
    arms = [
        {"name": "share-on", "kind": "openjev", "device": "cpu", "threads": 1},
        {"name": "share-off", "kind": "openjev", "device": "cpu", "threads": 1, "share_prefixes": False},
    ]
    pair = {"arm": "share-on", "control": "share-off", "workload": "tiny"}
    plan: dict[str, Any] = {
        "format": "openjev-plan/1",
        "experiment": "small",
        "title": "A small model",
        "checkpoint": {"kind": "folder", "path": str(folder)},
        "workloads": ["tiny"],
        "protocol": {
            "feasibility_passes": 1,
            "measured_passes": 2,
            "concurrency": [1, 2],
            "memory_interval_s": 0.05,
            "request_timeout_s": 60,
        },
        "arms": arms,
        "native": [],
        "gates": [
            {"name": "the same bits", "kind": "parity-exact", **pair},
            {"name": "the same bits in company", "kind": "same-answers", "arm": "share-on"},
            {"name": "errors", "kind": "errors", "arm": "share-on"},
        ],
        "error_runs": True,
        "agreement": 5.0,
    }
    (root / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    arguments = [str(root / "plan.json"), "--out", str(root), "--workloads", str(root)]
    assert run.main(arguments) == 0
    return root


def test_the_ledger_is_valid_and_complete(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate.main([str(out / "small.json")]) == 0
    assert capsys.readouterr().out == "1 valid\n"
    record = ledgers.read(out / "small.json")
    assert record["status"] == "complete"
    assert [arm["name"] for arm in record["arms"]] == ["share-on", "share-off"]
    assert {v["verdict"] for v in record["verdicts"]} == {"passed"}
    assert all(arm["memory"]["what"] == "process" and arm["memory"]["peak_mib"] > 0 for arm in record["arms"])
    assert len(record["responses"]) == 11
    assert [error["status"] for error in record["arms"][0]["errors"]] == [200, 422, 422, 400, 422]


def test_a_ledger_names_no_folder_but_the_plans_own(out: Path) -> None:
    record = ledgers.read(out / "small.json")
    del record["plan"]
    assert str(out) not in json.dumps(record)
    assert "CHECKPOINT" in record["arms"][0]["command"]


def test_an_error_message_loses_its_folders() -> None:
    said = "File '/home/me/lib/x.py', line 3: no module (/opt/y/z.so), see http://host/a/b"
    assert without_folders(said) == "File 'x.py', line 3: no module (z.so), see http://host/a/b"


def test_a_complete_experiment_is_not_run_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (out / "small.json").read_bytes()
    assert run.main([str(out / "plan.json"), "--out", str(out), "--workloads", str(out)]) == 0
    assert capsys.readouterr().err == "small: complete already\n"
    assert (out / "small.json").read_bytes() == before


def test_the_report_draws_both_passes_and_fills_the_page(out: Path) -> None:
    page = out / "page.md"
    page.write_text("# Page\n\nKept.\n", encoding="utf-8")
    arguments = [str(out / "small.json"), "--docs", str(page), "--figures", str(out / "figures")]
    assert report.main(arguments) == 0
    once = page.read_text(encoding="utf-8")
    assert report.main(arguments) == 0
    assert page.read_text(encoding="utf-8") == once, "a block is replaced, not added again"
    assert once.startswith("# Page\n\nKept.\n\n<!-- begin small")
    assert "Ledger: [small.json](small.json)" in once
    assert once.count("| share-on | tiny |") == 2
    assert "| the same bits | passed |" in once
    for kind in ("arms", "concurrency", "tokens", "delta-http"):
        assert (out / "figures" / f"small-{kind}.png").read_bytes().startswith(PNG)
        drawn = (out / "figures" / f"small-{kind}.svg").read_text(encoding="utf-8")
        texts = "".join(xml.etree.ElementTree.fromstring(drawn).itertext())
        assert "pass 2" in texts or "each pass" in texts
        assert "ms" in texts


def test_a_tampered_ledger_is_not_reported(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = ledgers.read(out / "small.json")
    record["arms"][0]["measurements"][0]["passes"][0]["figures"]["mean_ms"] /= 2
    (out / "tampered.json").write_text(json.dumps(record), encoding="utf-8")
    assert report.main([str(out / "tampered.json")]) == 1
    assert "tampered.json: not valid" in capsys.readouterr().err


def test_an_arm_that_cannot_start_is_reported_and_fails_the_run(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    plan["experiment"] = "broken"
    plan["arms"][1]["max_length"] = 100_000
    (out / "broken-plan.json").write_text(json.dumps(plan), encoding="utf-8")
    assert run.main([str(out / "broken-plan.json"), "--out", str(out), "--workloads", str(out)]) == 1
    assert (
        "share-off: failed: ArmError: arm share-off: its server ended with status 1"
        in capsys.readouterr().err
    )
    record = ledgers.read(out / "broken.json")
    assert [arm["status"] for arm in record["arms"]] == ["completed", "failed"]
    assert {v["gate"]: v["verdict"] for v in record["verdicts"]}["the same bits"] == "not evaluated"
    assert validate.main([str(out / "broken.json")]) == 0


def test_a_run_told_to_stop_stops_its_server_and_leaves_a_valid_ledger(out: Path) -> None:
    plan = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    plan["experiment"] = "stopped"
    (out / "stopped-plan.json").write_text(json.dumps(plan), encoding="utf-8")
    words = [str(out / "stopped-plan.json"), "--out", str(out), "--workloads", str(out)]
    command = [sys.executable, "-m", "bench.harness.run", *words]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "share-off: starting" in line:
            process.send_signal(signal.SIGTERM)
    process.stderr.close()
    assert process.wait(60) == 130, "".join(lines)
    assert "interrupted; what was measured is in the ledger" in lines[-1]
    record = ledgers.read(out / "stopped.json")
    assert record["status"] == "incomplete"
    assert record["arms"][0]["status"] == "completed"
    assert all(arm["reason"] == "interrupted" for arm in record["arms"][1:])
    assert validate.main([str(out / "stopped.json")]) == 0
    commands = [read_text(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any("serve" in words and str(out) in words for words in commands)


def read_text(path: Path) -> str:
    """Empty for a process that has ended meanwhile."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
