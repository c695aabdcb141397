"""The bundled demonstration model: what is in the package, and that it decides."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from train.data.generate import examples, row

import openjev
from openjev import cli
from openjev.demo import DEMO_ID, demo_facts, demo_folder
from openjev.export import export
from openjev.model import DecisionModel
from openjev.sources import AdaptedBase, locate

ROOT = Path(__file__).parents[2]
BASE_LIMIT = 24e6  # bytes of weights that a package may carry for a demonstration
ROWS = 240


@pytest.fixture(scope="module")
def demo() -> DecisionModel:
    return openjev.load(device="cpu")


def code_blocks(language: str) -> Iterator[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield found[1]


def close(found: Any, printed: Any) -> bool:
    """The same JSON, numbers within what another instruction set may change."""
    if isinstance(printed, dict):
        return found.keys() == printed.keys() and all(close(found[key], printed[key]) for key in printed)
    return found == (pytest.approx(printed, abs=1e-4) if isinstance(printed, float) else printed)


def test_it_is_what_opens_by_default_and_says_what_it_is(demo: DecisionModel) -> None:
    assert demo.info.checkpoint["id"] == DEMO_ID
    assert demo.info.name == "openjev-demo" and demo.info.demo
    assert "demonstration" in demo.info.caveat


def test_its_files_are_those_of_a_published_checkpoint_and_small() -> None:
    found = {
        path.relative_to(demo_folder()).as_posix() for path in demo_folder().rglob("*") if path.is_file()
    }
    assert found == {
        "record.json",
        *(f"base/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")),
        "package/manifest.json",
        *(f"package/checkpoint/{name}" for name in ("head.pt", "model.json", "temperature.json")),
        *(f"package/checkpoint/adapter/adapter_{name}" for name in ("config.json", "model.safetensors")),
    }
    assert (demo_folder() / "base" / "model.safetensors").stat().st_size < BASE_LIMIT


def test_info_says_what_it_was_trained_on_and_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("info", "demo", "--json"), {}) == 0
    facts = json.loads(capsys.readouterr().out)
    record = json.loads((demo_folder() / "record.json").read_text(encoding="utf-8"))
    assert {name: facts[name] for name in demo_facts()} == demo_facts()
    assert f"{record['test']['noul_and_choice']['accuracy']:.1%}" in facts["test"]
    assert str(record["settings"]["seed"]) in facts["trained_on"]
    assert "demonstration" in facts["answers"]


def test_it_decides_held_out_rows_and_is_calibrated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, report = tmp_path / "test.jsonl", tmp_path / "report.json"
    rows = [row("test", i, made) for i, made in enumerate(examples("test", 0, ROWS))]
    file.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    cli.main(("score-demo", str(file), "--out", str(report), "--device", "cpu"), {})
    assert f"{ROWS} questions" in capsys.readouterr().out
    figures = json.loads(report.read_text(encoding="utf-8"))["figures"]
    assert figures["noul_and_choice"]["accuracy"] > 0.88
    assert figures["ece"]["after"] < 0.06
    assert figures["score_mae"] < 0.4


def test_the_merged_export_gives_the_same_bits(demo: DecisionModel, tmp_path: Path) -> None:
    source = locate("demo")
    assert isinstance(source, AdaptedBase)
    merged = openjev.load(export(source, tmp_path / "export"), device="cpu")
    requests = [{"state": made.state, "questions": {"q": made.question}} for made in examples("test", 0, 20)]
    for one, other in zip(demo.decide_many(requests), merged.decide_many(requests), strict=True):
        assert one.to_dict()["answers"] == other.to_dict()["answers"]


def test_the_readme_prints_the_answer_that_its_request_gets(demo: DecisionModel) -> None:
    (command,) = [block for block in code_blocks("sh") if block.startswith("curl")]
    words = shlex.split(command)
    request = json.loads(words[words.index("-d") + 1])
    (printed,) = [json.loads(block) for block in code_blocks("json")]
    assert close(demo.decide(request["state"], request["questions"]).to_dict(), printed)
