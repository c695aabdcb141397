"""The command line: results on stdout, one readable line on stderr for what is wrong, and the exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import openjev
from openjev import cli
from openjev.checkpoints import CHECKPOINTS
from openjev.progress import load_progress, progress_bar
from openjev.seeded import build_checkpoint

STATE = "My parcel is three days late and nobody answers."
QUESTIONS: dict[str, Any] = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": None, "shipping": "parcels"},
    },
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "angry"]},
}


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint") / "demo")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*argv: str, stdin: bytes = b"", environ: dict[str, str] | None = None) -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = cli.main(argv, {"OPENJEV_DEVICE": "cpu", **(environ or {})})
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


def one_line(text: str) -> str:
    assert text.endswith("\n") and text.count("\n") == 1
    return text


def jsonl(*rows: Any) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


@pytest.mark.parametrize(
    "command", ["serve", "decide", "score", "score-demo", "info", "pull", "export", "verify", "doctor"]
)
def test_the_help_of_each_command_shows_an_example(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.code == 0
    assert f"example:\n  openjev {command}" in result.out


def test_the_version_is_the_installed_one(run: Run) -> None:
    result = run("--version")
    assert result.code == 0
    assert result.out.startswith("openjev ")


@pytest.mark.parametrize(
    "argv, said",
    [
        ([], "COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["decide"], "--state"),
        (["decide", "--state", "x"], "--questions JSON, --noul TEXT"),
        (["decide", "--state", "-", "--questions", "-"], "standard input for one of --state"),
        (["decide", "--state", "x", "--noul", "?", "--port", "1"], "--port"),
        (["score"], "FILE"),
        (["serve", "--port", "eighty"], "--port: found 'eighty', allowed: a whole number from 0 to 65535"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(run: Run, argv: list[str], said: str) -> None:
    result = run(*argv)
    assert (result.code, result.out) == (2, "")
    assert said in one_line(result.err)


def test_a_wrong_variable_is_named_and_only_where_it_is_used(run: Run) -> None:
    result = run("serve", environ={"OPENJEV_DEVICE": "abacus"})
    assert result.code == 2
    assert "OPENJEV_DEVICE: found 'abacus'" in one_line(result.err)
    assert run("info", "open-jev-9b", environ={"OPENJEV_DEVICE": "abacus"}).code == 0


def test_decide_prints_what_the_library_answers(run: Run, checkpoint: Path) -> None:
    result = run("decide", "--model", str(checkpoint), "--state", STATE, "--questions", json.dumps(QUESTIONS))
    assert result.code == 0
    assert result.out.count("\n") == 1
    assert result.json == openjev.load(checkpoint, device="cpu").decide(STATE, QUESTIONS).to_dict()
    assert "weights are random" in one_line(result.err)


def test_decide_is_indented_for_a_person(run: Run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ("decide", "--model", str(checkpoint), "--state", STATE, "--noul", "Late?")
    piped = run(*argv)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = run(*argv)
    assert shown.json == piped.json
    assert shown.out.startswith('{\n  "model"')


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    with load_progress() as report:
        report(1_000_000, 4_000_000, "reading weights")
        report(4_000_000, 4_000_000, "reading weights")
    with progress_bar(10, "scoring", unit="row") as advance:
        advance(10)
    assert ("reading weights" in stream.getvalue()) is terminal
    assert ("scoring" in stream.getvalue()) is terminal


def test_noul_is_short_for_a_yes_no_question(run: Run, checkpoint: Path) -> None:
    model = ("--model", str(checkpoint))
    short = run("decide", *model, "--state", STATE, "--noul", "Late?", "--noul", "Angry?")
    long = {"q1": {"type": "noul", "instructions": "Late?"}, "q2": {"type": "noul", "instructions": "Angry?"}}
    assert short.json == run("decide", *model, "--state", STATE, "--questions", json.dumps(long)).json
    both = run("decide", *model, "--state", STATE, "--noul", "Late?", "--questions", json.dumps(QUESTIONS))
    assert list(both.json["answers"]) == [*QUESTIONS, "q1"]
    taken = run("decide", *model, "--state", STATE, "--noul", "Late?", "--questions", json.dumps(long))
    assert taken.code == 2 and "q1 is taken" in one_line(taken.err)


def test_state_and_questions_come_from_files_and_standard_input(
    run: Run, checkpoint: Path, tmp_path: Path
) -> None:
    text, as_json, asked = tmp_path / "state.txt", tmp_path / "state.json", tmp_path / "questions.json"
    text.write_text(STATE, encoding="utf-8")
    as_json.write_text(json.dumps({"text": STATE}), encoding="utf-8-sig")
    asked.write_text(json.dumps(QUESTIONS), encoding="utf-8")
    model = openjev.load(checkpoint, device="cpu")
    decide = ("decide", "--model", str(checkpoint), "--questions", f"@{asked}", "--state")
    want = model.decide(STATE, QUESTIONS).to_dict()
    assert run(*decide, STATE).json == want
    assert run(*decide, f"@{text}").json == want
    assert run(*decide, "-", stdin=STATE.encode()).json == want
    assert run(*decide, f"@{as_json}").json == model.decide({"text": STATE}, QUESTIONS).to_dict()
    assert run(*decide, "@@home").json == model.decide("@home", QUESTIONS).to_dict()


@pytest.mark.parametrize(
    "argv, said",
    [
        (["--questions", "{"], "--questions: found text that is not JSON at line 1 column 2"),
        (["--questions", "[]"], "--questions: found JSON of another kind, allowed: an object"),
        (["--questions", '{"a": {}, "a": {}}'], "--questions: found the key 'a' twice"),
        (["--questions", '{"a": 1e999}'], "--questions: found the number 1e999"),
        (["--questions", '{"a": NaN}'], "--questions: found the number NaN"),
        (["--questions", "[" * 200_000], "--questions: found JSON that is nested too deeply"),
        (["--questions", "9" * 5000], "--questions: found a number with too many digits"),
        (["--questions", '{"a": {"type": "riddle"}}'], "a.type"),
        (["--questions", "@no-such-file"], "no-such-file: cannot be opened: No such file"),
        (
            ["--noul", "?", "--model", "no-such-model"],
            "no-such-model: found neither a folder nor a known name",
        ),
        (["--noul", "?", "--device", "cuda:99"], "cuda"),
    ],
)
def test_a_bad_request_file_or_checkpoint_is_one_line_and_code_1(
    run: Run, checkpoint: Path, argv: list[str], said: str
) -> None:
    model = [] if "--model" in argv else ["--model", str(checkpoint)]
    result = run("decide", *model, "--state", STATE, *argv)
    assert (result.code, result.out) == (1, "")
    assert said in result.err.splitlines()[-1]


def test_a_state_that_is_not_utf8_is_refused(run: Run, tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("schön".encode("latin-1"))
    result = run("decide", "--state", f"@{latin}", "--noul", "?")
    assert result.code == 1
    assert f"{latin}: found a byte that is not UTF-8 at position 3" in one_line(result.err)


def test_a_prompt_over_max_length_is_refused_with_both_numbers(run: Run, checkpoint: Path) -> None:
    argv = ("decide", "--model", str(checkpoint), "--state", STATE, "--noul", "Late?", "--max-length")
    tokens = run(*argv, "0").json["usage"]["input_tokens"]
    assert run(*argv, str(tokens)).code == 0
    result = run(*argv, str(tokens - 1))
    assert result.code == 1
    assert str(tokens) in result.err and str(tokens - 1) in result.err


def test_literal_special_tokens_changes_the_tokens_and_sharing_does_not_change_the_answer(
    run: Run, checkpoint: Path
) -> None:
    argv = (
        "decide",
        "--model",
        str(checkpoint),
        "--state",
        "a<|im_end|>b",
        "--questions",
        json.dumps(QUESTIONS),
    )
    plain = run(*argv).json
    assert run(*argv, "--literal-special-tokens").json["usage"] != plain["usage"]
    assert run(*argv, "--no-share-prefixes").json == plain
    assert run(*argv, "--threads", "1").json == plain


def test_score_answers_in_order_and_keeps_bad_rows(run: Run, checkpoint: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    states = ["Hi", "The parcel is late.", STATE]
    file.write_bytes(
        jsonl(
            {"id": "first", "state": states[0], "questions": QUESTIONS},
            b"",
            b"{not json",
            {"id": 7, "state": states[1], "questions": {"x": {"type": "riddle"}}},
            b'{"state": "\xff"}',
            [],
            {"state": states[2], "questions": QUESTIONS},
        )
    )
    result = run("score", str(file), "--model", str(checkpoint), "--out", str(out))
    assert (result.code, result.out) == (1, "")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["line"], row["id"]) for row in rows] == [
        (1, "first"),
        (3, None),
        (4, 7),
        (5, None),
        (6, None),
        (7, None),
    ]
    assert ["error" in row for row in rows] == [False, True, True, True, True, False]
    reported = [line for line in result.err.splitlines() if "weights are random" not in line]
    assert [line.split(":")[1] for line in reported[:-1]] == [" line 3", " line 4", " line 5", " line 6"]
    assert reported[-1] == 'openjev: 6 rows; 4 bad: see "error" in the output'
    model = openjev.load(checkpoint, device="cpu")
    for row, state in ((rows[0], states[0]), (rows[-1], states[-1])):
        want = model.decide(state, QUESTIONS).to_dict()
        assert {key: row[key] for key in want} == want


def test_score_gives_the_same_rows_whatever_is_put_together(run: Run, checkpoint: Path) -> None:
    data = jsonl(*({"id": n, "state": f"Case {n}. " * (n + 1), "questions": QUESTIONS} for n in range(6)))
    argv = ("score", "-", "--model", str(checkpoint), "--batch-tokens")
    alone, together = run(*argv, "1", stdin=data), run(*argv, "100000", stdin=data)
    assert alone.code == together.code == 0
    assert alone.out == together.out
    assert [row["id"] for row in alone.rows] == list(range(6))


def test_a_failing_engine_call_costs_only_the_rows_that_fail_alone(
    run: Run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = openjev.DecisionModel.execute

    def fails_on_long_ones(self: openjev.DecisionModel, batch: Any) -> Any:
        if any(prepared.input_tokens > 200 for prepared in batch):
            raise openjev.OutOfDeviceMemoryError("no room")
        return execute(self, batch)

    monkeypatch.setattr(openjev.DecisionModel, "execute", fails_on_long_ones)
    asked = {"late": QUESTIONS["late"]}
    data = jsonl(*({"state": state, "questions": asked} for state in ("Hi", "word " * 400, "Ho")))
    result = run("score", "-", "--model", str(checkpoint), stdin=data)
    assert result.code == 1
    assert [row.get("error") for row in result.rows] == [None, "no room", None]


def test_score_does_not_overwrite_its_input(run: Run, checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(jsonl({"state": "Hi", "questions": QUESTIONS}))
    before = file.read_bytes()
    result = run("score", str(file), "--model", str(checkpoint), "--out", str(file))
    assert result.code == 2 and "--out" in one_line(result.err)
    assert file.read_bytes() == before


def test_an_output_that_cannot_be_written_is_named(run: Run, checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "no" / "such" / "folder.jsonl"
    result = run("score", "-", "--model", str(checkpoint), "--out", str(target))
    assert result.code == 1
    assert f"{target}: cannot be opened" in result.err.splitlines()[-1]


def test_info_describes_a_folder(run: Run, checkpoint: Path) -> None:
    facts = run("info", str(checkpoint), "--json").json
    info = openjev.load(checkpoint, device="cpu").info
    assert facts["names"] == [info.name, *info.aliases]
    assert facts["family"] == info.family
    assert facts["parameters"] == info.parameters
    assert facts["temperature"] == info.temperature
    assert facts["tokens_per_prompt"] == info.max_length
    assert facts["answers"] == info.caveat
    text = run("info", str(checkpoint))
    assert text.code == 0
    assert str(checkpoint) in text.out and "openjev/seeded @ seed-" in text.out


def test_info_describes_letters_and_float32_weights(run: Run, tmp_path: Path) -> None:
    folder = build_checkpoint(tmp_path / "x", kind="letters", dtype="F32")
    facts = run("info", str(folder), "--json").json
    info = openjev.load(folder, device="cpu").info
    assert info.readout == "letters" and info.weight_dtype == "F32"
    assert facts["family"] == info.family
    assert facts["readout"] == "26 option letters"
    assert facts["weights"].startswith("F32")
    assert (facts["tokens_per_prompt"], facts["options_per_choice"]) == (16384, 26)


@pytest.mark.parametrize("row", CHECKPOINTS, ids=lambda row: row.name)
def test_info_of_a_known_checkpoint_that_is_not_here_says_what_is_known(run: Run, row: Any) -> None:
    result = run("info", row.name, "--json")
    assert result.code == 0
    assert result.json["checkpoint"] == f"{row.checkpoint_id} @ {row.checkpoint_revision}"
    assert result.json["parameters"] == row.shape.parameters()


def test_t23_info_refuses_a_folder_with_another_base_revision(run: Run, tmp_path: Path) -> None:
    row = CHECKPOINTS[0]
    folder = build_checkpoint(tmp_path / "x")
    manifest = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    manifest["base"] = {"id": row.base_id, "revision": "0" * 40}
    manifest["checkpoint"] = {"id": row.checkpoint_id, "revision": row.checkpoint_revision}
    (folder / "decision.json").write_text(json.dumps(manifest), encoding="utf-8")
    for argv in (["info", str(folder)], ["decide", "--model", str(folder), "--state", "x", "--noul", "?"]):
        result = run(*argv)
        assert result.code == 1
        assert "0" * 40 in one_line(result.err) and row.base_revision in result.err


def test_a_folder_without_manifest_is_refused(run: Run, tmp_path: Path) -> None:
    folder = build_checkpoint(tmp_path / "x")
    (folder / "decision.json").unlink()
    result = run("info", str(folder))
    assert result.code == 1
    assert "decision.json" in one_line(result.err)


def test_serve_hands_the_settings_to_the_server(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from openjev_server import app

    seen: list[openjev.settings.Settings] = []
    monkeypatch.setattr(app, "run", lambda settings: seen.append(settings) or 0)
    environ = {"OPENJEV_PORT": "9000", "OPENJEV_HOST": "::1"}
    assert run("serve", "--port", "9001", environ=environ).code == 0
    assert seen == [openjev.settings.Settings(port=9001, host="::1", device="cpu")]
    assert run("serve", "open-jev-9b").code == 0
    assert seen[1].model == "open-jev-9b"
    twice = run("serve", "open-jev-9b", "--model", "demo")
    assert twice.code == 2 and "found open-jev-9b and --model demo" in one_line(twice.err)


def test_serve_without_the_server_extra_says_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openjev_server.app", None)  # makes its import fail
    result = run("serve")
    assert result.code == 1
    assert "pip install 'openjev[server]'" in one_line(result.err)
