"""The peer suite jevcompat, as its users run it: the command line against a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.service import Service


def jevcompat(service: Service, folder: Path, *flags: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON report and printed text of one run."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "jevcompat.cli", "test", service.url, "--json", str(report), *flags]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=280)
    assert report.is_file(), done.stderr
    return done.returncode, json.loads(report.read_text(encoding="utf-8")), done.stdout


def test_without_a_key_every_must_and_should_passes(demo: Service, tmp_path: Path) -> None:
    code, report, text = jevcompat(demo, tmp_path)
    assert "MUST 32/32, SHOULD 13/13" in text, text
    assert report["summary"]["verdict"] == "conformant"
    assert report["summary"]["untested_musts"] == []
    assert code == 0


def test_with_a_key_the_rules_of_authentication_pass_too(keyed: Service, tmp_path: Path) -> None:
    code, report, text = jevcompat(keyed, tmp_path, "--key", keyed.key)
    assert "MUST 32/32, SHOULD 15/15" in text, text
    assert report["summary"]["verdict"] == "conformant"
    assert code == 0


@pytest.mark.parametrize("flags", [[], ["--key", "not-the-key"]], ids=["no key", "wrong key"])
def test_without_the_key_the_suite_is_not_let_in(keyed: Service, tmp_path: Path, flags: list[str]) -> None:
    code, report, _ = jevcompat(keyed, tmp_path, *flags)
    assert report["summary"]["verdict"] == "not tested"
    assert code == 2
