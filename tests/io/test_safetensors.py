"""One safetensors file: what is read, and how every kind of damage is refused."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from openjev._runtime import testing
from openjev.errors import CheckpointError
from tests.io.checkpoint_files import safetensors_bytes, write_tensors

GOOD: dict[str, Any] = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
DATA = bytes(range(24))


def refusal(path: Path, image: bytes) -> str:
    """The message about the part after the file's name, which every message starts with."""
    path.write_bytes(image)
    with pytest.raises(CheckpointError) as caught:
        testing.safetensors_list(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def entry(**changes: Any) -> dict[str, Any]:
    """A header with one tensor "w", changed; a change to None removes the field."""
    return {"w": {name: value for name, value in {**GOOD, **changes}.items() if value is not None}}


def test_lists_tensors_with_their_place_in_the_file(tmp_path: Path) -> None:
    header = {"w": GOOD, "__metadata__": {"format": "pt"}}
    image = safetensors_bytes(header, DATA)
    (tmp_path / "f.safetensors").write_bytes(image)
    begin = len(image) - 24
    assert testing.safetensors_list(tmp_path / "f.safetensors") == {"w": ("F32", (2, 3), begin, begin + 24)}


def test_reads_unaligned_scalar_empty_and_sub_byte_tensors(tmp_path: Path) -> None:
    header = {
        "byte": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "empty": {"dtype": "F32", "shape": [0, 7], "data_offsets": [1, 1]},
        "scalar": {"dtype": "F32", "shape": [], "data_offsets": [1, 5]},
        "half bytes": {"dtype": "F4", "shape": [2, 3], "data_offsets": [5, 8]},
    }
    (tmp_path / "f").write_bytes(safetensors_bytes(header, DATA[:8]))
    file = testing.SafetensorsFile(tmp_path / "f")
    assert {name: file.read(name) for name in header} == {
        "byte": DATA[:1],
        "empty": b"",
        "scalar": DATA[1:5],
        "half bytes": DATA[5:8],
    }


def test_a_file_without_tensors_is_valid(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(safetensors_bytes("{}      "))
    assert testing.safetensors_list(tmp_path / "f") == {}


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "file: found 0 bytes, allowed 8 or more"),
        (b"\x02\0\0\0\0\0\0", "file: found 7 bytes, allowed 8 or more"),
        (
            safetensors_bytes("{}", length=3),
            "header length: found 3, allowed at most 2, the bytes that follow",
        ),
        (safetensors_bytes("{}", length=100_000_001), "header length: found 100000001, allowed 100000000"),
        (safetensors_bytes("{}", length=2**64 - 1), "header length: found 18446744073709551615, allowed"),
        (safetensors_bytes("{}", length=0), 'header: found "", allowed a JSON object'),
        (safetensors_bytes("[]"), 'header: found "[]", allowed a JSON object'),
        (safetensors_bytes(" {}"), 'header: found " {}", allowed a JSON object'),
        (safetensors_bytes("{}\0\0"), "header: found a zero byte at 2, allowed JSON text"),
        (safetensors_bytes('{"w":'), "header: found .*parse error.*, allowed JSON text in UTF-8"),
        (safetensors_bytes(b'{"\xff": 1}'), "header: found .*invalid string.*, allowed JSON text in UTF-8"),
        (safetensors_bytes("{} {}"), "header: found .*, allowed JSON text in UTF-8"),
        (safetensors_bytes("{}", b"\0"), "data: found 1 bytes, allowed 0, where the last tensor ends"),
    ],
)
def test_refuses_a_broken_frame(tmp_path: Path, image: bytes, message: str) -> None:
    assert re.match(message.replace("[]", r"\[\]").replace("{}", r"\{\}"), refusal(tmp_path / "f", image))


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (None, "an object with dtype, shape and data_offsets"),
        (3, "an object with dtype, shape and data_offsets"),
        ("F32", "an object with dtype, shape and data_offsets"),
        ([1], "an object with dtype, shape and data_offsets"),
    ],
)
def test_refuses_an_entry_that_is_no_object(tmp_path: Path, value: object, allowed: str) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes({"w": value}))
    assert message.startswith('tensor "w": found ')
    assert message.endswith(f"allowed {allowed}")


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
def test_refuses_a_missing_field(tmp_path: Path, field: str) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes(entry(**{field: None}), DATA))
    assert message == f'tensor "w": found no field {field}, allowed dtype, shape and data_offsets'


@pytest.mark.parametrize(
    ("changes", "where", "found", "allowed"),
    [
        ({"scale": 1}, "", 'the unknown field "scale"', "dtype, shape and data_offsets"),
        ({"dtype": 32}, " dtype", "32", "a string"),
        ({"dtype": "F33"}, " dtype", '"F33"', "one of BOOL, F4, "),
        ({"dtype": {"a": 1}}, " dtype", "an object", "a string"),
        ({"shape": "2x3"}, " shape", '"2x3"', "a list of integers"),
        ({"shape": [[2, 3]]}, " shape", "a list", "integers from 0 to"),
        ({"shape": [2, -3]}, " shape", "-3", "integers from 0 to 9223372036854775807"),
        ({"shape": [2, 3.0]}, " shape", "3.0", "integers from 0 to"),
        ({"shape": [2, 2**63]}, " shape", "9223372036854775808", "integers from 0 to"),
        ({"shape": [2, 2**64]}, " shape", "18446744073709551616", "integers from 0 to"),
        ({"shape": [2, True]}, " shape", "true", "integers from 0 to"),
        ({"shape": [1] * 65}, " shape", "more than 64 dimensions", "at most 64"),
        ({"shape": [2**62, 2**62]}, " shape", "more bits than 64-bit numbers count", "a tensor that fits"),
        ({"shape": [2**60, 2**60, 0]}, " shape", "more bits than 64-bit numbers count", "a tensor that fits"),
        ({"shape": [2**59, 2]}, " shape", "more bits than 64-bit numbers count", "a tensor that fits"),
        ({"dtype": "F4", "shape": [3]}, " shape", "12 bits", "whole bytes"),
        ({"shape": [2, 4]}, " data_offsets", "[0, 24], 24 bytes", "32 bytes by dtype and shape"),
        ({"dtype": "BF16"}, " data_offsets", "[0, 24], 24 bytes", "12 bytes by dtype and shape"),
        ({"data_offsets": [24, 0]}, " data_offsets", "[24, 0]", "begin <= end"),
        ({"data_offsets": [0, 25]}, " data_offsets", "[0, 25]", "at most 24, the bytes of data in the file"),
        ({"data_offsets": [2**64 - 24, 2**64 - 1]}, " data_offsets", "[1844674407370955", "at most 24, "),
        ({"data_offsets": [-1, 23]}, " data_offsets", "-1", "two integers [begin, end]"),
        ({"data_offsets": [0, 24.5]}, " data_offsets", "24.5", "two integers [begin, end]"),
        ({"data_offsets": [0]}, " data_offsets", "1 elements", "[begin, end]"),
        ({"data_offsets": [0, 24, 24]}, " data_offsets", "24", "two integers [begin, end]"),
        ({"data_offsets": {"begin": 0}}, " data_offsets", "an object", "a list of integers"),
    ],
)
def test_refuses_a_broken_entry(
    tmp_path: Path, changes: dict[str, Any], where: str, found: str, allowed: str
) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes(entry(**changes), DATA))
    assert message.startswith(f'tensor "w"{where}: found {found}')
    assert f", allowed {allowed}" in message


def test_refuses_a_name_twice(tmp_path: Path) -> None:
    good = json.dumps(GOOD)
    twice = "found the name twice, allowed each name once"
    tensor = safetensors_bytes(f'{{"w": {good}, "w": {good}}}', DATA)
    assert refusal(tmp_path / "f", tensor) == f'tensor "w": {twice}'
    field = safetensors_bytes('{"w": {"dtype": "F32", "dtype": "F32"}}', DATA)
    assert refusal(tmp_path / "f", field) == f'tensor "w" dtype: {twice}'
    metadata = safetensors_bytes('{"__metadata__": {"a": "1", "a": "2"}}')
    assert refusal(tmp_path / "f", metadata) == f'__metadata__ "a": {twice}'


@pytest.mark.parametrize("value", [1, ["a"], {"a": "b"}, None])
def test_refuses_metadata_other_than_strings(tmp_path: Path, value: object) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes({"__metadata__": {"key": value}}))
    assert message.startswith('__metadata__ "key": found ')
    assert message.endswith("allowed a string")


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ([20, 28], 'allowed begin 24: it overlaps tensor "w"'),
        ([25, 33], "allowed begin 24: the bytes before it belong to no tensor"),
    ],
)
def test_refuses_overlaps_and_gaps(tmp_path: Path, second: list[int], reason: str) -> None:
    header = {"w": GOOD, "x": {"dtype": "F32", "shape": [2], "data_offsets": second}}
    message = refusal(tmp_path / "f", safetensors_bytes(header, bytes(second[1])))
    assert message == f'tensor "x" data_offsets: found {second}, {reason}'


def test_refuses_two_tensors_in_the_same_place(tmp_path: Path) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes({"w": GOOD, "x": GOOD}, DATA))
    assert message == 'tensor "x" data_offsets: found [0, 24], allowed begin 24: it overlaps tensor "w"'


def test_deep_nesting_is_refused_at_its_first_level(tmp_path: Path) -> None:
    depth = 1_000_000
    message = refusal(
        tmp_path / "f", safetensors_bytes('{"w": {"shape": ' + "[" * depth + "]" * depth + "}}")
    )
    assert message.startswith('tensor "w" shape: found a list, allowed integers')


def test_a_long_or_unprintable_name_is_shown_short_and_escaped(tmp_path: Path) -> None:
    message = refusal(tmp_path / "f", safetensors_bytes({"\n\u2028" + "x" * 1_000_000: 1}))
    assert message.startswith('tensor "\\n\\u2028xxx')
    assert len(message) < 300


def test_a_path_that_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match="missing: file: found No such file or directory, allowed a readable"
    ):
        testing.safetensors_list(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="file: found no regular file, allowed a readable regular file"):
        testing.safetensors_list(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(CheckpointError, match="pipe: file: found no regular file"):
        testing.safetensors_list(tmp_path / "pipe")


def resident_kib(path: Path) -> int:
    """Memory of this process that holds pages of `path`."""
    lines = iter(Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(field.split()[1]) for field in lines if field.startswith("Rss:"))
    raise AssertionError(f"{path} is not mapped")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/self/smaps of Linux")
def test_release_gives_memory_back_and_keeps_the_values(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    write_tensors(path, {"small": ("U8", [100]), "large": ("F32", [1 << 20]), "last": ("U8", [100])}, fill=7)
    file = testing.SafetensorsFile(path)
    before = [file.read(name) for name in ("small", "large", "last")]
    assert resident_kib(path) >= 4096
    file.release("large")
    assert resident_kib(path) <= 64
    file.release("small")  # smaller than a page: nothing to give back
    assert [file.read(name) for name in ("small", "large", "last")] == before


TENSORS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__"),
    st.sampled_from([np.float32, np.int64, np.uint8, ml_dtypes.bfloat16]).flatmap(
        lambda dtype: hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5).map(
            lambda shape: np.zeros(shape, dtype)
        )
    ),
    max_size=6,
)
NAMES = {"float32": "F32", "int64": "I64", "uint8": "U8", "bfloat16": "BF16"}


@settings(deadline=None, max_examples=150)
@given(tensors=TENSORS, seed=st.integers(0, 2**32 - 1), metadata=st.booleans())
def test_reads_what_the_safetensors_package_writes(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Any], seed: int, metadata: bool
) -> None:
    rng = np.random.default_rng(seed)
    for name, zeros in tensors.items():
        tensors[name] = np.frombuffer(rng.bytes(zeros.nbytes), zeros.dtype).reshape(zeros.shape)
    path = tmp_path_factory.mktemp("written") / "f.safetensors"
    save_file(tensors, path, {"format": "np"} if metadata else None)
    file = testing.SafetensorsFile(path)
    found = {name: (dtype, shape, file.read(name)) for name, (dtype, shape, _, _) in file.tensors().items()}
    assert found == {
        name: (NAMES[array.dtype.name], array.shape, array.tobytes()) for name, array in tensors.items()
    }
