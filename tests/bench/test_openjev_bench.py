"""openjev-bench: what it prints and records, and what it says to a wrong command line. No time is judged."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "openjev-bench"
MODEL = ["--device", "cpu", "--threads", "1", "--shape", "0.8b", "--layers", "4"]
SMALL = [*MODEL, "--vocab", "300"]
FACTS = {
    *("device", "clocks_before", "clocks_after", "graph_mode", "matmul_mode"),
    *("shape", "layers", "vocabulary", "seed", "version", "commit"),
}
# Columns that may be 0: operators that this model has only in its last layer, and the number of a request.
MAY_BE_ZERO = {"launches", "ms_per_pass", "request"}

Run = Callable[..., subprocess.CompletedProcess[str]]
Row = dict[str, Any]


def find_binary() -> Path | None:
    """OPENJEV_BENCH, else beside the installed native library, else in a build tree."""
    chosen = os.environ.get("OPENJEV_BENCH")
    if chosen:
        return Path(chosen)
    spec = importlib.util.find_spec("openjev._runtime")
    places = [Path(spec.origin).parent / NAME] if spec is not None and spec.origin else []
    places += sorted(ROOT.glob(f"build/*/bench/{NAME}"))
    return next((place for place in places if place.is_file()), None)


@pytest.fixture(scope="module")
def run() -> Run:
    binary = find_binary()
    if binary is None:
        pytest.skip(f"{NAME} was not built")

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(binary), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    return run


@pytest.fixture
def record(run: Run, tmp_path: Path) -> Callable[..., tuple[str, list[dict[str, Any]]]]:
    """Runs a command and returns its Markdown and the tables of its record."""

    def record(*words: str | Path) -> tuple[str, list[dict[str, Any]]]:
        file = tmp_path / "record.json"
        done = run(*words, "--json", file)
        assert done.returncode == 0, done.stderr
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["format"] == "openjev-bench/1"
        return done.stdout, content["tables"]

    return record


def headings(markdown: str) -> list[list[str]]:
    lines = markdown.splitlines()
    tables = [lines[i - 1] for i, line in enumerate(lines) if line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in tables]


def assert_sound(row: Row) -> None:
    for name, value in row.items():
        if isinstance(value, int | float):
            assert math.isfinite(value), (name, row)
            assert value > 0 or (value == 0 and name in MAY_BE_ZERO), (name, row)


def test_forward_compares_each_length_with_the_matrix_products_alone(record: Callable[..., Any]) -> None:
    markdown, tables = record("forward", *SMALL, "--tokens", "7", "3", "--repeats", "2", "--seed", "5")
    assert headings(markdown) == [
        ["tokens", "n", "median ms", "min ms", "stack ms", "ratio", "TFLOP/s", "stack TFLOP/s"]
    ]
    (table,) = tables
    assert set(table["facts"]) >= FACTS | {"pace", "loading", "warm_up"}
    assert table["facts"]["seed"] == "5"
    assert [row["tokens"] for row in table["rows"]] == [7, 3]
    for row in table["rows"]:
        assert_sound(row)
        assert row["n"] == 2
        assert row["min_ms"] <= row["median_ms"]
        assert row["ratio"] == pytest.approx(row["median_ms"] / row["stack_ms"])


def test_forward_runs_lengths_it_never_saw(record: Callable[..., Any]) -> None:
    markdown, tables = record("forward", *SMALL, "--tokens", "4", "--repeats", "1", "--unseen")
    assert len(headings(markdown)) == 2
    (row,) = tables[1]["rows"]  # no buckets on the CPU: lengths below 4 are buckets of their own
    assert (row["bucket"], row["lengths"], row["n"]) == ("not prepared", "1 to 3", 3)
    assert_sound(row)


@pytest.mark.parametrize("text", ['{"tokens": [5, 3, 5]}', "[5, 3, 5]", "5 3\n5\n"])
def test_forward_takes_lengths_in_order(record: Callable[..., Any], tmp_path: Path, text: str) -> None:
    lengths = tmp_path / "lengths"
    lengths.write_text(text, encoding="utf-8")
    markdown, (passes, requests) = record(
        "forward", *SMALL, "--lengths", lengths, "--mode", "gaps", "--repeats", "3"
    )
    assert headings(markdown) == [
        ["pass", "n", "mean ms", "p50 ms", "p95 ms", "stack mean ms", "ratio", "TFLOP/s"]
    ]
    assert passes["facts"]["pace"] == "gaps of 40 ms"
    assert [row["pass"] for row in passes["rows"]] == [1, 2, 3]
    assert [row["tokens"] for row in requests["rows"]] == [5, 3, 5]
    for row in passes["rows"] + requests["rows"]:
        assert_sound(row)
        assert row["n"] == 3


def test_kernels_time_every_operator_of_a_pass(record: Callable[..., Any]) -> None:
    markdown, (table,) = record("kernels", *SMALL, "--tokens", "5", "--repeats", "2", "--cold-mb", "0")
    assert headings(markdown)[0][:7] == ["op", "tokens", "rows", "n", "calls", "us", "min us"]
    launches = {row["op"]: row["launches"] for row in table["rows"]}
    assert launches == {
        "embed": 1,
        "rms_norm": 1,
        "add_rms_norm": 6,
        "gather_rows": 2,
        "readout": 1,
        "silu_mul": 3,
        "delta_inputs": 3,
        "delta_rule": 3,
        "gated_rms_norm": 3,
        "norm_rope": 0,
        "attention": 0,
        "all": None,
    }
    for row in table["rows"]:
        assert_sound(row)
        assert (row["tflop_s"] is not None) == (row["op"] in {"delta_rule", "attention"})
    *operators, total = table["rows"]
    assert total["ms_per_pass"] == pytest.approx(sum(row["ms_per_pass"] for row in operators))


def test_matmul_sums_the_weight_shapes_of_a_pass(record: Callable[..., Any]) -> None:
    markdown, (shapes, sums) = record("matmul", *MODEL, "--tokens", "2", "--repeats", "1", "--cold-mb", "0")
    assert len(headings(markdown)) == 2
    assert {row["weight"]: (row["n_x_k"], row["launches"]) for row in shapes["rows"]} == {
        "in_proj": ("8224 x 1024", 3),
        "qkv": ("5120 x 1024", 1),
        "out": ("1024 x 2048", 3),
        "o": ("1024 x 2048", 1),
        "gate_up": ("7168 x 1024", 4),
        "down": ("1024 x 3584", 4),
    }
    (row,) = sums["rows"]
    for each in [*shapes["rows"], row]:
        assert_sound(each)
    for mode in ("invariant", "fast"):
        total_us = sum(each["launches"] * each[f"{mode}_us"] for each in shapes["rows"])
        assert row[f"{mode}_ms"] == pytest.approx(total_us / 1e3)
    assert row["price_of_invariance"] == pytest.approx(row["invariant_ms"] / row["fast_ms"])


def test_memory_says_what_is_taken_when(record: Callable[..., Any]) -> None:
    _, (plan, measured) = record("memory", *SMALL, "--tokens", "6")
    resident = {row["what"]: row["gib"] for row in plan["rows"]}["weights, resident"]
    assert resident > 0
    assert [row["when"] for row in measured["rows"]] == [
        "before loading",
        "after loading",
        "after warm-up",
        "after a pass of 6 tokens",
    ]
    assert set(measured["rows"][0]) == {"when", "free_gib", "taken_gib", "graphs", "graph_mib"}


def test_help_names_every_command_and_ends_well(run: Run) -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("forward", "kernels", "matmul", "memory"):
        assert f"openjev-bench {command} --shape" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "command: found none, allowed are forward, kernels, matmul, memory"),
        (["train"], "command: found train, allowed are forward, kernels, matmul, memory"),
        (["forward", "--speed"], "found --speed, allowed are --shape, --layers"),
        (["memory", "--unseen"], "found --unseen, allowed are --shape"),
        (["forward", "--tokens", "0"], "--tokens: found 0, allowed are integers from 1 to"),
        (["forward", "--tokens", "7x"], "--tokens: found 7x, allowed are integers from 1 to"),
        (["forward", "--tokens"], "--tokens: found no value"),
        (["forward", "--seed", "1", "2"], "--seed: found 2 values, allowed is one"),
        (["forward", "--mode", "fast"], "--mode: found fast, allowed are sustained, gaps"),
        (["kernels", "--shape", "3b"], "--shape: found 3b, allowed are 0.8b, 2b, 4b, 9b, 27b"),
        (["forward", "--unseen", "--lengths", "x"], "--unseen: not together with --lengths"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["forward", *MODEL, "--layers", "25"], "layers 25: allowed are 0 (all) to 24"),
        (["forward", *SMALL, "--tokens", "5000"], "allowed are 1 to 4096"),
        (["forward", *SMALL, "--lengths", "no-such-file"], "no-such-file"),
        (["memory", *SMALL, "--json", "no-such-folder/record.json"], "cannot be written"),
    ],
)
def test_what_the_library_refuses_is_one_line_and_status_1(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["", "12 x", '{"tokens": [1, 2.5]}', '{"lengths": [1]}', "[0]"])
def test_lengths_must_be_positive_integers(run: Run, tmp_path: Path, text: str) -> None:
    lengths = tmp_path / "lengths"
    lengths.write_text(text, encoding="utf-8")
    done = run("forward", *SMALL, "--lengths", lengths)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(lengths) in done.stderr
    assert "allowed" in done.stderr
