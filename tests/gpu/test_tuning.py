"""The choice of matmul algorithms without a GPU: row buckets, the cost of a choice, the file of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native import build_program

MOST_MEASURED = 4096
FORMAT = "openjev-matmul-tuning 4"
KEYS = {
    mode: f"key Some GPU | driver 1 2.3 | cublasLt 4 | {mode} | workspace 5" for mode in ("invariant", "fast")
}


class Program:
    def __init__(self, path: Path) -> None:
        self.path = path

    def said(self, *words: object) -> str:
        command = [self.path, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def buckets(self, rows: list[int]) -> list[tuple[int, int]]:
        lines = self.said("buckets", *rows).splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def cost(
        self, times: dict[int, float], rows: list[int], *, parts: int = 1, most: int = MOST_MEASURED
    ) -> float:
        words = [word for pair in times.items() for word in pair]
        return float(self.said("cost", parts, most, *words, "of", *rows))

    def copy(self, text: bytes, folder: Path, mode: str = "invariant") -> tuple[str, bytes | None]:
        """Why the file was ignored or "", and what was written of it or None."""
        source, target = folder / "from", folder / "to"
        source.write_bytes(text)
        target.unlink(missing_ok=True)
        reason = self.said("copy", mode, source, target)
        return reason, target.read_bytes() if target.exists() else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuning")


@pytest.fixture(scope="module")
def program(folder: Path) -> Program:
    sources = ["tests/gpu/tuning_test.cc", "cuda/tuning_file.cc", "cuda/matmul_workload.cc"]
    return Program(build_program(folder / "tuning_test", sources, ["-Wall", "-Wextra", "-Werror"]))


def test_a_bucket_holds_its_rows_and_is_little_more(program: Program) -> None:
    rows = list(range(1, 6000))
    buckets = program.buckets(rows)
    assert all(bucket >= count for (bucket, _), count in zip(buckets, rows, strict=True))
    assert all(bucket - count < max(16, count / 4) for (bucket, _), count in zip(buckets, rows, strict=True))
    assert [bucket for bucket, _ in buckets] == sorted(bucket for bucket, _ in buckets)


def test_the_bucket_of_a_bucket_is_itself(program: Program) -> None:
    names = sorted({bucket for bucket, _ in program.buckets(list(range(1, 6000)))})
    assert [bucket for bucket, _ in program.buckets(names)] == names


def test_measurements_end_with_the_last_measured_bucket(program: Program) -> None:
    for bucket, measured in program.buckets([1, 256, 4095, 4096, 4097, 100_000]):
        assert measured == min(bucket, MOST_MEASURED)


def test_the_cost_is_time_and_reading_back(program: Program) -> None:
    # 16 rows of 1000 bfloat16, read at 8 TB/s: 0.004 us.
    assert program.cost({16: 10.0}, [16]) == pytest.approx(10.004)


def test_parts_cost_their_reading_in_float32(program: Program) -> None:
    assert program.cost({16: 10.0}, [16], parts=2) == pytest.approx(10.016)


def test_rows_beyond_the_last_bucket_are_worked_off_in_slabs_of_it(program: Program) -> None:
    alone = program.cost({16: 10.0, 32: 15.0}, [70])
    assert alone == pytest.approx(15 + 15 + 10 + 70 * 2000 / 8e6)


def test_rows_beyond_the_limit_do_not_count(program: Program) -> None:
    times = {16: 10.0, 4096: 900.0}
    assert program.cost(times, [16, 4096], most=256) == program.cost(times, [16])


def test_few_rows_count_most(program: Program) -> None:
    times = {128: 10.0, 2048: 100.0}
    assert program.cost(times, [128, 2048]) < 20


def times() -> st.SearchStrategy[float]:
    return st.floats(0, 1e6, allow_nan=False)


@st.composite
def tuning_files(draw: st.DrawFn, mode: str) -> bytes:
    """As we write them: shapes with ascending buckets."""
    sizes = st.integers(1, 1 << 31)
    lines = [FORMAT, KEYS[mode]]
    shapes = draw(st.lists(st.tuples(sizes, sizes), max_size=4, unique=True))
    for n, k in shapes:
        parts = draw(st.integers(1, 1024)) if mode == "invariant" else 0
        alignment = " ".join(str(draw(st.sampled_from([2, 4, 8, 16]))) for _ in range(3))
        rows = draw(st.lists(sizes, min_size=1, max_size=4, unique=True))
        lines.append(f"shape {n} {k} {parts} {draw(st.integers(0, 1))} {max(rows)} {alignment}")
        for count in sorted(rows):
            words = draw(st.lists(st.integers(0, (1 << 64) - 1), min_size=8, max_size=8))
            lines.append(f"bucket {count} {draw(times()):.17g} " + " ".join(f"{word:x}" for word in words))
    lines.append(f"end {len(shapes)}")
    return ("\n".join(lines) + "\n").encode()


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(["invariant", "fast"]))
def test_what_was_written_is_read(program: Program, folder: Path, data: st.DataObject, mode: str) -> None:
    text = data.draw(tuning_files(mode))
    reason, once = program.copy(text, folder, mode)
    assert reason == "" and once is not None
    assert program.copy(once, folder, mode) == ("", once)
    assert values(once) == values(text)


def values(text: bytes) -> list[list[object]]:
    return [fields(line) for line in text.splitlines()]


def fields(line: bytes) -> list[object]:
    """By value: a number may be written in several ways."""
    first, *rest = line.split()
    if first == b"bucket":
        return [first, int(rest[0]), float(rest[1]), *(int(word, 16) for word in rest[2:])]
    return [first, *(int(word) if first in (b"shape", b"end") else word for word in rest)]


@settings(max_examples=150, deadline=None)
@given(tuning_files("invariant"), st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_off_is_ignored(program: Program, folder: Path, text: bytes, where: float) -> None:
    reason, written = program.copy(text[: int(len(text) * where)], folder)
    assert reason and written is None


@settings(max_examples=150, deadline=None)
@given(tuning_files("invariant"), st.data())
def test_a_damaged_file_is_ignored_or_read_as_it_stands(
    program: Program, folder: Path, text: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[at + 1 :]
    reason, written = program.copy(damaged, folder)
    assert (written is None) == bool(reason)
    if written is not None:
        assert values(written) == values(damaged)


SHAPE = "shape 32 64 1 1 16 16 16 16"
BUCKET = "bucket 16 1.5 1 2 3 4 5 6 7 8"


def text_of(*lines: str, format_line: str = FORMAT, key: str = KEYS["invariant"]) -> bytes:
    return ("\n".join([format_line, key, *lines]) + "\n").encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "its first line is not"),
        (text_of(SHAPE, BUCKET, "end 1", format_line="openjev-matmul-tuning 3"), "its first line is not"),
        (text_of(SHAPE, BUCKET, "end 1", key=KEYS["fast"]), "it was written for"),
        (text_of(SHAPE, BUCKET, "end 1", key=KEYS["invariant"].replace("2.3", "2.4")), "it was written for"),
        (text_of(SHAPE, BUCKET), "it is cut off"),
        (text_of(SHAPE, "end 1"), "the end does not fit"),
        (text_of(SHAPE, BUCKET, "end 2"), "the end does not fit"),
        (text_of(SHAPE, BUCKET, "end 1", "more"), "the end does not fit"),
        (text_of(BUCKET, "end 0"), "a bucket before any shape"),
        (text_of(SHAPE, BUCKET, BUCKET, "end 1"), "buckets do not ascend"),
        (text_of(SHAPE, BUCKET, SHAPE, BUCKET, "end 2"), "a shape that was there before"),
        (text_of(SHAPE, SHAPE.replace("32", "33"), BUCKET, "end 2"), "the shape before has no bucket"),
        (text_of(SHAPE.replace(" 1 1 16", " 0 1 16"), BUCKET, "end 1"), "a number of parts"),
        (text_of(SHAPE.replace("16 16 16", "16 3 16"), BUCKET, "end 1"), "not a shape"),
        (text_of(SHAPE, BUCKET.replace("1.5", "nan"), "end 1"), "neither a shape nor a bucket"),
        (text_of(SHAPE, BUCKET.replace("1.5", "-1"), "end 1"), "neither a shape nor a bucket"),
        (text_of(SHAPE, BUCKET + " 9", "end 1"), "neither a shape nor a bucket"),
        (text_of(SHAPE, BUCKET.replace("8", "10000000000000000"), "end 1"), "neither a shape nor a bucket"),
        (text_of("x" * (5 << 20)), "bytes; at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_of_an_ignored_file_is_said(
    program: Program, folder: Path, text: bytes, reason: str
) -> None:
    said, written = program.copy(text, folder)
    assert reason in said and str(folder / "from") in said
    assert written is None


def test_a_missing_file_is_no_reason(program: Program, folder: Path) -> None:
    target = folder / "nothing"
    assert program.said("copy", "invariant", folder / "missing", target) == ""
    assert target.read_text() == f"{FORMAT}\n{KEYS['invariant']}\nend 0\n"


def test_a_folder_that_cannot_be_made_is_a_reason_and_no_error(program: Program, folder: Path) -> None:
    (folder / "file").write_text("")
    said = program.said("copy", "invariant", folder / "missing", folder / "file" / "tuning.txt")
    assert "cannot be" in said
