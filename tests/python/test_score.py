"""`openjev score FILE --questions Q.json --out OUT`: a row out for each row in, and runs taken up again."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import openjev
from openjev import cli, score_output, scoring
from openjev.score_layout import FlatColumns, JsonLines
from openjev.score_rows import MAX_ROW_BYTES, Selection, Table, ends_inside_quotes, read_records
from openjev.seeded import build_checkpoint

QUESTIONS: dict[str, Any] = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": None, "a,b": "parcels"},
    },
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]},
}
STATES = ["The parcel is late.", "schön, 📦", 'He said "no",\nthen left.', "", "word " * 20]


@dataclass
class Result:
    code: int
    out: str
    err: str


Score = Callable[..., Result]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint") / "demo")


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> openjev.DecisionModel:
    return openjev.load(checkpoint, device="cpu")


@pytest.fixture
def score(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: openjev.DecisionModel
) -> Score:
    """Runs the command in the current folder with one loaded model."""
    monkeypatch.setattr(cli_score_module(), "load_model", lambda settings: model)

    def call(*argv: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.main(("score", *argv), {"OPENJEV_DEVICE": "cpu"})
        return Result(code, *capfd.readouterr())

    return call


def cli_score_module() -> Any:
    from openjev import cli_score

    return cli_score


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the questions and the states as JSON Lines and as CSV."""
    monkeypatch.chdir(tmp_path)
    Path("q.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    rows = [{"number": n, "text": state, "from": "Ümit"} for n, state in enumerate(STATES)]
    Path("in.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    with open("in.csv", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, ["number", "text", "from"])
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").split("\n")[:-1]]


def wanted(model: openjev.DecisionModel, states: Sequence[Any]) -> list[Any]:
    return [model.decide(state, QUESTIONS).to_dict()["answers"] for state in states]


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_one_field_is_the_state_of_the_same_questions(
    score: Score, model: openjev.DecisionModel, name: str
) -> None:
    result = score(name, "--questions", "q.json", "--state", "text", "--id", "number", "--out", "out.jsonl")
    assert (result.code, result.out) == (0, "")
    assert result.err == f"openjev: {len(STATES)} rows; none bad\n"
    found = lines("out.jsonl")
    assert [row["answers"] for row in found] == wanted(model, STATES)
    assert [row["id"] for row in found] == [str(n) if name == "in.csv" else n for n in range(len(STATES))]


def test_several_fields_or_the_whole_row_are_an_object(score: Score, model: openjev.DecisionModel) -> None:
    two = ("--state", "text", "--state", "from")
    assert score("in.csv", "--questions", "q.json", *two, "--out", "two.jsonl").code == 0
    named = [{"text": state, "from": "Ümit"} for state in STATES]
    assert [row["answers"] for row in lines("two.jsonl")] == wanted(model, named)
    assert score("in.csv", "--questions", "q.json", "--id", "number", "--out", "rest.jsonl").code == 0
    assert [row["answers"] for row in lines("rest.jsonl")] == wanted(model, named)
    assert score("in.jsonl", "--questions", "q.json", "--out", "whole.jsonl").code == 0
    whole = [{"number": n, **state} for n, state in enumerate(named)]
    assert [row["answers"] for row in lines("whole.jsonl")] == wanted(model, whole)


def test_csv_out_has_a_column_for_each_number(score: Score, model: openjev.DecisionModel) -> None:
    Path("in.jsonl").write_text('{"n": "a,\\"b\\"", "t": "Hi"}\n{"n": 2}\n', encoding="utf-8")
    argv = ("in.jsonl", "--questions", "q.json", "--state", "t", "--id", "n", "--out", "out.csv")
    assert score(*argv).code == 1
    with open("out.csv", encoding="utf-8", newline="") as file:
        good, bad = csv.DictReader(file)
    late, team, mood = wanted(model, ["Hi"])[0].values()
    assert (good["line"], good["id"], good["error"]) == ("1", 'a,"b"', "")
    assert (float(good["late"]), good["team"]) == (late["noul"], team["choice"])
    assert float(good["team.p.a,b"]) == team["probabilities"]["a,b"]
    assert float(good["team.confidence"]) == team["confidence"]
    assert (float(good["mood"]), float(good["mood.p.1"])) == (mood["score"], mood["probabilities"]["1"])
    assert (bad["line"], bad["id"], bad["late"]) == ("2", "2", "")
    assert bad["error"] == "row: found no field 't', it has: 'n'"


def test_bad_rows_keep_their_place_and_their_id(score: Score, model: openjev.DecisionModel) -> None:
    rows = [
        b'{"n": 1, "t": "Hi"}',
        b'{"n": 2, "t": "\xff"}',
        b"{",
        b"[]",
        b'{"n": 5, "t": 7}',
        b'{"n": 6, "t": "' + b"word " * 5000 + b'"}',
        b'{"n": 7, "t": null}',
        b'{"n": 8}',
        b'{"n": 9, "t": "Ho"}',
    ]
    Path("in.jsonl").write_bytes(b"\n".join(rows))
    argv = ("in.jsonl", "--questions", "q.json", "--state", "t", "--id", "n", "--out", "out.jsonl")
    result = score(*argv)
    found = lines("out.jsonl")
    assert result.code == 1
    assert [row["line"] for row in found] == list(range(1, 10))
    assert [row["id"] for row in found] == [1, None, None, None, 5, 6, 7, 8, 9]
    said = [
        "not UTF-8",
        "not JSON",
        "found an array",
        "found a number",
        "tokens",
        "found null",
        "no field 't'",
    ]
    for row, text in zip(found[1:-1], said, strict=True):
        assert text in row["error"]
    assert [row["answers"] for row in (found[0], found[-1])] == wanted(model, ["Hi", "Ho"])
    assert result.err.splitlines()[-1] == 'openjev: 9 rows; 7 bad: see "error" in the output'


def test_bad_csv_rows_are_told_apart(score: Score, model: openjev.DecisionModel) -> None:
    Path("in.csv").write_bytes(b'n,t\r\n1,"Hi"\r\n2\r\n\r\n3,a,b\r\n4,"un\r\nclosed\r\n')
    assert score("in.csv", "--questions", "q.json", "--state", "t", "--out", "out.jsonl").code == 1
    found = lines("out.jsonl")
    assert [row["line"] for row in found] == [2, 3, 5, 6]
    assert found[0]["answers"] == wanted(model, ["Hi"])[0]
    assert "found 1 fields, allowed: 2" in found[1]["error"]
    assert "found 3 fields, allowed: 2" in found[2]["error"]
    assert "a quote that is never closed, from line 6" in found[3]["error"]


@pytest.mark.parametrize(
    "name, data, out", [("in.jsonl", b"", b""), ("in.jsonl", b"\n\n", b""), ("in.csv", b"text\n", b"")]
)
def test_a_file_without_rows_gives_an_output_without_rows(
    score: Score, name: str, data: bytes, out: bytes
) -> None:
    Path(name).write_bytes(data)
    result = score(name, "--questions", "q.json", "--out", "out.jsonl")
    assert (result.code, result.err) == (0, "openjev: 0 rows; none bad\n")
    assert Path("out.jsonl").read_bytes() == out


@pytest.mark.parametrize(
    "argv, code, said",
    [
        (["in.csv"], 2, "needed: --questions"),
        (["in.jsonl", "--state", "text"], 2, "--state"),
        (["in.jsonl", "--id", "number"], 2, "--id"),
        (["in.jsonl", "--out", "out.csv"], 2, "needed: --questions"),
        (["in.jsonl", "--overwrite"], 2, "--overwrite"),
        (["in.jsonl", "--questions", "q.json", "--state", "a", "--id", "a"], 2, "--id: found a"),
        (["in.csv", "--questions", "q.json", "--out", "in.csv"], 2, "found the input file"),
        (
            ["in.csv", "--questions", "q.json", "--state", "body"],
            1,
            "no column 'body', allowed: number",
        ),
        (["empty.csv", "--questions", "q.json"], 1, "empty.csv: found no line"),
        (["twice.csv", "--questions", "q.json"], 1, "the column 'a' twice"),
        (["no.csv", "--questions", "q.json"], 1, "no.csv: cannot be opened"),
        (["in.csv", "--questions", "[]"], 1, "[]: cannot be opened"),
        (["in.csv", "--questions", '{"a": {"type": "riddle"}}'], 1, "a.type"),
        (["in.csv", "--questions", "{}"], 1, "at least 1 question"),
        (["in.csv", "--questions", "@list.json"], 1, "JSON of another kind"),
        (
            ["in.csv", "--questions", "same.json", "--out", "out.csv"],
            1,
            "a CSV would be 'a.p.x'",
        ),
    ],
)
def test_what_would_spoil_every_row_is_refused_before_the_first(
    score: Score, argv: list[str], code: int, said: str
) -> None:
    Path("empty.csv").touch()
    Path("list.json").write_text("[]")
    Path("twice.csv").write_text("a,b,a\n1,2,3\n")
    same = {"a": {"type": "choice", "criteria": {"x": None}}, "a.p.x": {"type": "noul", "instructions": "?"}}
    Path("same.json").write_text(json.dumps(same))
    before = Path("in.csv").read_bytes()
    result = score(*argv)
    assert (result.code, result.out) == (code, "")
    assert said in result.err and result.err.count("\n") == 1
    assert Path("in.csv").read_bytes() == before and not Path("out.csv").exists()


def test_standard_input_takes_a_format_and_an_output_of_its_own(score: Score) -> None:
    data = Path("in.csv").read_bytes()
    argv = ("-", "--format", "csv", "--questions", "@q.json", "--state", "text")
    piped = score(*argv, stdin=data)
    assert piped.code == 0
    assert score(*argv, "--out", "out.jsonl", stdin=data).code == 0
    assert Path("out.jsonl").read_text(encoding="utf-8") == piped.out
    again = score(*argv, "--out", "out.jsonl", stdin=data)
    assert again.code == 1 and "--overwrite" in again.err
    assert score(*argv, "--out", "out.jsonl", "--overwrite", stdin=data).code == 0


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_cut_off_at_any_byte_is_taken_up_to_the_same_bytes(
    score: Score, out: str, data: st.DataObject
) -> None:
    rows = ['{"n": "x\\ny\\"", "t": "a"}', "{", '{"t": "ü"}', "", '{"n": ",", "t": 3}', '{"t": "last"}']
    Path("cut.jsonl").write_text("\n".join(rows), encoding="utf-8")
    argv = ("cut.jsonl", "--questions", "q.json", "--state", "t", "--id", "n", "--batch-tokens", "1")
    whole = Path("whole-" + out)
    if not whole.exists():
        assert score(*argv, "--out", str(whole)).code == 1
    target, size = Path(out), whole.stat().st_size
    target.write_bytes(whole.read_bytes()[: data.draw(st.integers(0, size))])
    Path(out + ".run.json").write_bytes(Path(f"{whole}.run.json").read_bytes())
    result = score(*argv, "--out", out)
    assert target.read_bytes() == whole.read_bytes()
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith("openjev: 5 rows")
    assert result.err.splitlines()[-1].endswith('4 bad: see "error" in the output')


def test_a_run_that_dies_is_taken_up_and_answers_no_row_twice(
    score: Score, model: openjev.DecisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("in.csv", "--questions", "q.json", "--state", "text", "--batch-tokens", "1")
    assert score(*argv, "--out", "whole.jsonl").code == 0
    execute, calls = model.execute, 0

    def interrupted(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return execute(batch)

    monkeypatch.setattr(model, "execute", interrupted)
    assert score(*argv, "--out", "out.jsonl").code == 130
    assert len(lines("out.jsonl")) == 3
    result = score(*argv, "--out", "out.jsonl")
    assert result.err == f"openjev: {len(STATES)} rows, 3 of them by an earlier run; none bad\n"
    assert calls == 4 + len(STATES) - 3
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_another_input_question_selection_or_model_is_refused_unless_overwritten(
    score: Score, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv = ["in.jsonl", "--questions", "q.json", "--out", "out.jsonl"]
    assert score(*argv).code == 0
    before, record = Path("out.jsonl").read_bytes(), Path("out.jsonl.run.json").read_bytes()
    again = score(*argv)
    assert again.code == 0 and "5 of them by an earlier run" in again.err
    other = dict(reversed(QUESTIONS.items()))
    Path("other.json").write_text(json.dumps(other), encoding="utf-8")
    Path("longer.jsonl").write_bytes(Path("in.jsonl").read_bytes() + b'{"text": "more"}\n')
    seeded = openjev.load(build_checkpoint(tmp_path / "other", seed=1), device="cpu")
    changes: list[tuple[list[str], str]] = [
        (["in.jsonl", "--questions", "other.json"], "another questions"),
        (["longer.jsonl", "--questions", "q.json"], "another input"),
        (["in.csv", "--questions", "q.json"], "another input"),
        (["in.jsonl", "--questions", "q.json", "--state", "text"], "another state"),
        (["in.jsonl", "--questions", "q.json", "--id", "number"], "another id"),
    ]
    for changed, said in changes:
        result = score(*changed, "--out", "out.jsonl")
        assert result.code == 1 and said in result.err and "--overwrite" in result.err
    monkeypatch.setattr(cli_score_module(), "load_model", lambda settings: seeded)
    result = score(*argv)
    assert result.code == 1 and "another model" in result.err
    assert (Path("out.jsonl").read_bytes(), Path("out.jsonl.run.json").read_bytes()) == (before, record)
    assert score(*argv, "--overwrite").code == 0
    assert Path("out.jsonl").read_bytes() != before
    assert score(*argv).code == 0


def test_the_same_names_with_other_weights_are_another_model(
    model: openjev.DecisionModel, folder: Path
) -> None:
    weights = build_checkpoint(folder / "same")
    manifest = json.loads((weights / "decision.json").read_text())
    other = build_checkpoint(folder / "other", seed=1)
    (other / "decision.json").write_text(
        json.dumps(
            {
                **json.loads((other / "decision.json").read_text()),
                "base": manifest["base"],
                "checkpoint": manifest["checkpoint"],
            }
        )
    )
    with open("in.jsonl", "rb") as file:
        table = Table(file, "in.jsonl", "jsonl", Selection(QUESTIONS))
        ours = score_output.run_record(table, model, "jsonl")
        again = score_output.run_record(table, openjev.load(weights, device="cpu", threads=1), "jsonl")
        theirs = score_output.run_record(table, openjev.load(other, device="cpu"), "jsonl")
    assert ours == again
    differing = {name for name in ours["model"] if ours["model"][name] != theirs["model"][name]}
    assert differing == {"probe"}


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda rows: rows[1:], "line 1: found something else"),
        (lambda rows: [*rows, rows[-1]], "line 6: found something else"),
        (lambda rows: [rows[0], b"mine\n"], "line 2: found something else"),
    ],
)
def test_an_output_that_was_edited_is_not_taken_up(
    score: Score, spoil: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    argv = ("in.jsonl", "--questions", "q.json", "--out", "out.jsonl")
    assert score(*argv).code == 0
    edited = b"".join(spoil(Path("out.jsonl").read_bytes().splitlines(keepends=True)))
    Path("out.jsonl").write_bytes(edited)
    result = score(*argv)
    assert result.code == 1 and said in result.err
    assert Path("out.jsonl").read_bytes() == edited


@pytest.mark.parametrize("record", [None, b"", b"[]", b'{"format": "other"}'])
def test_a_file_of_something_else_is_not_touched(score: Score, record: bytes | None) -> None:
    Path("out.jsonl").write_text("mine")
    if record is not None:
        Path("out.jsonl.run.json").write_bytes(record)
    result = score("in.jsonl", "--questions", "q.json", "--out", "out.jsonl")
    assert result.code == 1 and "--overwrite" in result.err
    assert Path("out.jsonl").read_text() == "mine"


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from('",\r\n'))


@settings(deadline=None)
@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1))
def test_csv_records_are_those_of_the_csv_module(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    found = list(read_records(io.BytesIO(text.getvalue().encode()), quoted=True))
    assert [next(csv.reader([one.data.decode()])) for one in found] == rows
    assert all(one.complete and not one.error for one in found)
    assert sum(one.nbytes for one in found) == len(text.getvalue().encode())


@pytest.mark.parametrize(
    "line, open_after",
    [
        (b'a,"b', True),
        (b'a,b"c', False),
        (b'"a""', True),
        (b'"a"""', False),
        (b'"a"b",c', False),
        (b'"",""', False),
    ],
)
def test_a_quote_opens_a_field_only_at_its_start(line: bytes, open_after: bool) -> None:
    assert ends_inside_quotes(line) is open_after


def test_a_row_larger_than_the_limit_is_bad_and_the_next_is_not() -> None:
    data = b'{"t": "' + b"x" * MAX_ROW_BYTES + b'"}\nnext\n"' + b"y\n" * 3
    for quoted in (False, True):
        found = list(read_records(io.BytesIO(data), quoted=quoted))
        assert str(MAX_ROW_BYTES) in found[0].error and not found[0].data
        assert (found[1].line, found[1].data) == (2, b"next")
        assert sum(one.nbytes for one in found) == len(data)
    assert [(one.line, one.complete) for one in found] == [(1, True), (2, True), (3, False)]


def test_rows_that_cost_nothing_still_come_in_bounded_batches() -> None:
    assert [len(batch) for batch in scoring.batches(range(2500), lambda _: 0, 10)] == [1024, 1024, 452]
    assert list(scoring.batches([3, 3, 9, 1], lambda cost: cost, 6)) == [[3, 3], [9], [1]]


@settings(deadline=None)
@given(
    identity=st.text(st.characters()) | st.integers() | st.none() | st.lists(st.text()),
    error=st.text(min_size=1),
)
def test_what_is_written_reads_back(identity: Any, error: str) -> None:
    asked = openjev.parse_request({"state": "", "questions": QUESTIONS}).questions
    for layout in (JsonLines(), FlatColumns(asked)):
        row = layout.encode({"line": 7, "id": identity, "error": error})
        records = list(read_records(io.BytesIO(row), quoted=layout.format == "csv"))
        assert len(records) == 1 and records[0].complete
        assert layout.read_back(records[0].data) == (7, True)
