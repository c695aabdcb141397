"""`openjev score-demo FILE`: figures on labelled rows, gates, and the comparison with a reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openjev
from openjev import calibration, cli, evaluation
from openjev.evaluation import Gate, Reference, Scored
from openjev.seeded import build_checkpoint

NOUL = {"type": "noul", "instructions": "Is it late?"}
CHOICE = {
    "type": "choice",
    "instructions": "Which team?",
    "criteria": {"billing": None, "shipping": "parcels"},
}
SCORE = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "angry"]}


def row(number: int, domain: str, question: Any, label: Any) -> dict[str, Any]:
    state = f"Parcel {number} is late."
    return {"id": f"r{number}", "domain": domain, "state": state, "question": question, "label": label}


ROWS = [
    row(0, "logs", NOUL, True),
    row(1, "logs", NOUL, False),
    row(2, "tools", CHOICE, "shipping"),
    row(3, "tools", SCORE, 2),
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint") / "demo")


@pytest.fixture(scope="module")
def logits(checkpoint: Path) -> list[list[float]]:
    """What the model says of ROWS, taken back from the answers: log p is z / T up to a constant."""
    model = openjev.load(checkpoint, device="cpu")
    assert model.info.temperature is not None
    found = []
    for one in ROWS:
        answer = model.decide(one["state"], {"q": one["question"]})["q"]
        if isinstance(answer, openjev.NoulAnswer):
            p = [1 - answer.noul, answer.noul]
        elif isinstance(answer, openjev.ChoiceAnswer):
            p = list(answer.probabilities.values())
        else:
            p = list(answer.probabilities)
        z = model.info.temperature * np.log(p)
        found.append((z - z[0]).tolist())
    return found


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkpoint: Path
) -> Run:
    monkeypatch.chdir(tmp_path)
    write("test.jsonl", *ROWS)

    def call(*argv: str, model: Path = checkpoint) -> tuple[int, str, str]:
        code = cli.main(("score-demo", *argv, "--model", str(model)), {"OPENJEV_DEVICE": "cpu"})
        return (code, *capfd.readouterr())

    return call


def write(name: str, *rows: Any) -> None:
    Path(name).write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")


def reference(temperature: Any, logits: Any) -> str:
    Path("reference.json").write_text(json.dumps({"temperature": temperature, "logits": logits}))
    return "reference.json"


def test_the_figures_are_those_of_the_answers(run: Run, logits: list[list[float]]) -> None:
    code, out, _ = run("test.jsonl", "--out", "report.json", "--batch-tokens", "100")
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    arrays = [np.array(one) for one in logits]
    kinds, domains = ["noul", "noul", "choice", "score"], ["logs", "logs", "tools", "tools"]
    want = calibration.summary(arrays, kinds, domains, [1, 0, 1, 2], 1.5)
    found = report["figures"]
    assert set(found) == set(want)
    for name in ("questions", "temperature", "accuracy", "noul_and_choice", "by_type", "by_domain"):
        assert found[name] == want[name]
    for name in ("brier", "ece"):
        assert found[name] == pytest.approx(want[name], abs=1e-9)
    assert found["score_mae"] == pytest.approx(want["score_mae"])
    assert code == (0 if all(gate["passed"] for gate in report["gates"]) else 1)
    assert "openjev/seeded @ seed-20261202 on cpu: 4 questions" in out
    assert f"{found['accuracy']:.1%}" in out and f"{found['ece']['before']:.4f}" in out


def test_a_model_that_misses_no_gate_gives_code_0(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("LEAST_ACCURACY", 0.0), ("LEAST_DOMAIN_ACCURACY", 0.0)):
        monkeypatch.setattr(evaluation, name, limit)
    for name, limit in (("MOST_CALIBRATION_ERROR", 1.0), ("MOST_SCORE_ERROR", 2.0)):
        monkeypatch.setattr(evaluation, name, limit)
    code, out, _ = run("test.jsonl")
    assert code == 0 and out.count("passed") == 4 and "missed" not in out
    monkeypatch.setattr(evaluation, "MOST_SCORE_ERROR", -1.0)
    code, out, _ = run("test.jsonl")
    assert code == 1 and out.count("passed") == 3 and out.count("missed by") == 1


def test_a_reference_with_the_same_logits_decides_the_same(run: Run, logits: list[list[float]]) -> None:
    _, out, _ = run("test.jsonl", "--reference", reference(1.5, logits), "--out", "report.json")
    found = json.loads(Path("report.json").read_text(encoding="utf-8"))["reference"]
    assert found["flips"] == [] and found["max_probability_difference"] < 1e-9
    assert "reference: 4 questions, 0 decided differently" in out and "its temperature" not in out


def test_flips_are_listed_with_both_decisions(run: Run, logits: list[list[float]]) -> None:
    other = [*logits[:2], [-one for one in logits[2]], logits[3]]
    _, out, _ = run("test.jsonl", "--reference", reference(2, other), "--out", "report.json")
    found = json.loads(Path("report.json").read_text(encoding="utf-8"))["reference"]
    (flip,) = found["flips"]
    assert (flip["id"], flip["domain"], flip["right"]) == ("r2", "tools", "shipping")
    assert {flip["here"]["decision"], flip["reference"]["decision"]} == {"billing", "shipping"}
    p, q = calibration.softmax(logits[2], 1.5), calibration.softmax(other[2], 2)
    assert found["max_probability_difference_at"] == "r2"
    assert found["max_probability_difference"] == pytest.approx(np.abs(p - q).max())
    assert "1 decided differently" in out and "  r2 (tools): " in out
    assert "its temperature is 2, here 1.5" in out


@pytest.mark.parametrize(
    "temperature, rows, said",
    [
        (0, [[0, 1]], "temperature: found 0, allowed: a number greater than 0"),
        (None, [[0, 1]], "temperature: found None"),
        (1, {}, "logits: found an object"),
        (1, [[0, 1], 2], "logits[1]: allowed: an array of numbers"),
        (1, [[0, True]], "logits[0]: allowed: an array of numbers"),
        (1, [[0, 1]], "logits: found 1 rows, allowed: 4"),
        (
            1,
            [[0, 1], [0, 1], [0, 1], [0, 1]],
            "logits[3]: found 2 numbers, allowed: 3, one for each outcome of r3",
        ),
    ],
)
def test_a_reference_of_other_rows_is_refused(run: Run, temperature: Any, rows: Any, said: str) -> None:
    code, _, err = run("test.jsonl", "--reference", reference(temperature, rows))
    assert code == 1 and f"reference.json: {said}" in err.splitlines()[-1]


@pytest.mark.parametrize(
    "bad, said",
    [
        (row(9, "x", NOUL, "yes"), "label: found 'yes', allowed: true or false"),
        (row(9, "x", NOUL, 1), "label: found a number, allowed: true or false"),
        (row(9, "x", CHOICE, "legal"), "label: found 'legal', allowed: the name of an option"),
        (row(9, "x", CHOICE, ["billing"]), "label: found an array, allowed: the name of an option"),
        (row(9, "x", SCORE, 3), "label: found a number, allowed: a level from 0 to 2"),
        (row(9, "x", SCORE, True), "label: found a boolean, allowed: a level from 0 to 2"),
        (row(9, "x", {"type": "riddle"}, True), "questions.q.type"),
        ({**row(9, "x", NOUL, True), "state": "word " * 5000}, "tokens"),
        ({"state": "x", "label": True}, '"question" and "label"'),
        ([], '"question" and "label"'),
    ],
)
def test_a_wrong_row_ends_the_run_and_is_named(run: Run, bad: Any, said: str) -> None:
    write("test.jsonl", ROWS[0], bad)
    code, out, err = run("test.jsonl")
    last = err.splitlines()[-1]
    assert (code, out) == (1, "") and "test.jsonl: line 2: " in last and said in last


def test_no_rows_and_a_readout_without_temperature_are_refused(run: Run, tmp_path: Path) -> None:
    write("none.jsonl")
    assert "none.jsonl: found no row" in run("none.jsonl")[2]
    assert "absent.jsonl: cannot be opened" in run("absent.jsonl")[2]
    letters = build_checkpoint(tmp_path / "letters", kind="letters")
    code, _, err = run("test.jsonl", model=letters)
    assert code == 1 and "found the readout letters, allowed: scalar" in err


def test_gates_are_about_noul_and_choice_the_worst_domain_calibration_and_scores() -> None:
    scored = Scored(temperature=1.0)
    for kind, domain, target, z in (
        ("noul", "logs", 1, [0.0, 3.0]),
        ("choice", "logs", 0, [3.0, 0.0]),
        ("noul", "tools", 0, [0.0, 3.0]),
        ("score", "tools", 1, [0.0, 50.0, 0.0]),
    ):
        scored.kinds.append(kind)
        scored.domains.append(domain)
        scored.targets.append(target)
        scored.logits.append(np.array(z))
    accuracy, domain_accuracy, error, score = evaluation.gates(scored.figures())
    assert accuracy.found == pytest.approx(2 / 3) and not accuracy.passed
    assert domain_accuracy.name.endswith("(tools)") and domain_accuracy.found == 0.5
    assert error.upper and error.found == pytest.approx(scored.figures()["ece"]["after"])
    assert score.upper and score.found == pytest.approx(0) and score.passed
    assert Gate("x", 0.85, 0.85).passed and Gate("x", 0.06, 0.06, upper=True).passed
    assert Gate("x", 0.8, 0.85).missed_by == pytest.approx(0.05)
    assert Gate("x", 0.1, 0.06, upper=True).missed_by == pytest.approx(0.04)


def test_the_comparison_ignores_a_constant_added_to_the_logits() -> None:
    scored = Scored(2.0, ["a"], ["logs"], ["noul"], [["no", "yes"]], [1], [np.array([0.0, 1.0])])
    found = evaluation.compare(scored, Reference("r", 2.0, [np.array([5.0, 6.0])]))
    assert found["max_probability_difference"] == pytest.approx(0, abs=1e-12) and not found["flips"]
