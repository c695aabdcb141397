"""A checkpoint folder: prefixes, shards, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openjev._runtime import testing
from openjev.errors import CheckpointError
from tests.io.checkpoint_files import safetensors_bytes, write_config, write_index, write_tensors

PREFIXES = ["model.language_model.", "model.", "language_model.", ""]
EMBED = ("BF16", [4, 2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_config(tmp_path)
    return tmp_path


def sharded(folder: Path, **weight_map: str) -> None:
    """one.safetensors holds the embedding, two.safetensors the norm; entries of the map may be changed."""
    write_tensors(folder / "one.safetensors", {"embed_tokens.weight": EMBED}, fill=1)
    write_tensors(folder / "two.safetensors", {"norm.weight": ("F32", [2])}, fill=2)
    names = {"embed_tokens.weight": "one.safetensors", "norm.weight": "two.safetensors"}
    write_index(folder, {**names, **weight_map})


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_is_found_and_put_before_names(folder: Path, prefix: str) -> None:
    names = {f"{prefix}embed_tokens.weight": EMBED, f"{prefix}norm.weight": ("F32", [2])}
    write_tensors(folder / "model.safetensors", {**names, "lm_head.weight": EMBED, "mtp.norm.weight": EMBED})
    assert testing.checkpoint_prefix(folder) == prefix
    assert testing.checkpoint_tensor(folder, "embed_tokens.weight", [4, 2]) == ("BF16", bytes([0]) * 16)
    assert testing.checkpoint_tensor(folder, "norm.weight", [2]) == ("F32", bytes([1]) * 8)


@pytest.mark.parametrize("first", range(4))
def test_the_first_prefix_in_order_wins(folder: Path, first: int) -> None:
    names = [f"{prefix}embed_tokens.weight" for prefix in PREFIXES[first:]]
    write_tensors(folder / "model.safetensors", dict.fromkeys(reversed(names), EMBED))
    assert testing.checkpoint_prefix(folder) == PREFIXES[first]


def test_a_prefix_without_the_embedding_does_not_count(folder: Path) -> None:
    write_tensors(
        folder / "model.safetensors",
        {"model.language_model.norm.weight": ("F32", [2]), "model.embed_tokens.weight": EMBED},
    )
    assert testing.checkpoint_prefix(folder) == "model."


def test_no_embedding_under_any_prefix_is_refused(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", {"visual.embed_tokens.weight": EMBED})
    with pytest.raises(
        CheckpointError, match=r'model\.safetensors: tensor "embed_tokens\.weight": found no such'
    ):
        testing.checkpoint_prefix(folder)


def test_shards_are_read_through_the_index(folder: Path) -> None:
    sharded(folder)
    assert testing.checkpoint_tensor(folder, "embed_tokens.weight", [4, 2]) == ("BF16", bytes([1]) * 16)
    assert testing.checkpoint_tensor(folder, "norm.weight", [2]) == ("F32", bytes([2]) * 8)


@pytest.mark.parametrize("unused", ["missing", "garbage", "folder"])
def test_a_shard_of_unused_tensors_is_never_opened(folder: Path, unused: str) -> None:
    sharded(folder, **{"model.visual.proj.weight": "vision.safetensors"})
    if unused == "garbage":
        (folder / "vision.safetensors").write_bytes(b"\xff" * 64)
    elif unused == "folder":
        (folder / "vision.safetensors").mkdir()
    assert testing.checkpoint_prefix(folder) == ""
    assert testing.checkpoint_tensor(folder, "norm.weight", [2]) == ("F32", bytes([2]) * 8)
    with pytest.raises(CheckpointError, match=r"vision\.safetensors: "):
        testing.checkpoint_tensor(folder, "model.visual.proj.weight", [1])


def test_a_shard_may_be_a_link_out_of_the_folder(tmp_path: Path) -> None:
    """Download caches keep blobs elsewhere and link to them from the snapshot folder."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_config(blobs)
    sharded(blobs)
    for number, file in enumerate(blobs.iterdir()):
        blob = file.rename(blobs / f"blob{number}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    assert testing.checkpoint_tensor(snapshot, "norm.weight", [2]) == ("F32", bytes([2]) * 8)


@pytest.mark.parametrize(
    "name",
    [
        "../two.safetensors",
        "sub/two.safetensors",
        "/two.safetensors",
        "..\\two.safetensors",
        "..",
        ".",
        "",
        "two.safetensors\0",
        "two.safetensors/",
        "two.bin",
    ],
)
def test_a_shard_name_that_is_no_plain_file_name_is_refused(folder: Path, name: str) -> None:
    sharded(folder, **{"norm.weight": name})
    with pytest.raises(CheckpointError) as caught:
        testing.checkpoint_prefix(folder)
    message = str(caught.value)
    assert 'index.json: weight_map tensor "norm.weight": found "' in message
    assert message.endswith("allowed the plain name of a .safetensors file in this folder")


@pytest.mark.parametrize("name", [1, None, ["two.safetensors"], {}])
def test_a_shard_name_that_is_no_string_is_refused(folder: Path, name: object) -> None:
    write_index(folder, {"norm.weight": name})
    with pytest.raises(
        CheckpointError, match=r'weight_map tensor "norm\.weight": found .*, allowed a file name'
    ):
        testing.checkpoint_prefix(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "JSON: found a list of 0 elements, allowed an object"),
        ("{}", "weight_map: found no such field, allowed an object: tensor -> file"),
        ('{"weight_map": []}', "weight_map: found a list of 0 elements, allowed an object: tensor -> file"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', 'field "a": found the name twice'),
        (
            '{"weight_map": ' + "[" * 65 + "]" * 65 + "}",
            "JSON: found nesting deeper than 64, allowed at most 64",
        ),
        ('{"weight_map": {', "JSON: found .*parse error.*, allowed JSON text in UTF-8"),
        ('{"weight_map": {}}\0', "JSON: found a zero byte at 18, allowed JSON text"),
    ],
)
def test_a_broken_index_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json: " + message):
        testing.checkpoint_prefix(folder)


def test_a_tensor_that_is_not_where_the_index_says_is_refused(folder: Path) -> None:
    sharded(folder, **{"norm.weight": "one.safetensors"})
    with pytest.raises(
        CheckpointError,
        match=r'one\.safetensors: tensor "norm\.weight": found no such tensor, though the index puts it here'
        r", allowed F32 or BF16 of shape \[2\]",
    ):
        testing.checkpoint_tensor(folder, "norm.weight", [2])


def test_a_tensor_in_two_shards_is_refused_when_the_second_is_opened(folder: Path) -> None:
    sharded(folder)
    write_tensors(folder / "two.safetensors", {"norm.weight": ("F32", [2]), "embed_tokens.weight": EMBED})
    assert testing.checkpoint_tensor(folder, "embed_tokens.weight", [4, 2])[0] == "BF16"
    with pytest.raises(
        CheckpointError,
        match=r'two\.safetensors: tensor "embed_tokens\.weight": found a second one in this file, '
        r'allowed only the one in "one\.safetensors"',
    ):
        testing.checkpoint_tensor(folder, "norm.weight", [2])


def test_a_single_file_is_preferred_to_an_index(folder: Path) -> None:
    sharded(folder)
    write_tensors(folder / "model.safetensors", {"embed_tokens.weight": EMBED}, fill=9)
    assert testing.checkpoint_tensor(folder, "embed_tokens.weight", [4, 2]) == ("BF16", bytes([9]) * 16)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("norm.weight", [2], r'"norm\.weight": found no such tensor, allowed F32 or BF16 of shape \[2\]'),
        ("embed_tokens.weight", [2, 4], r'"embed_tokens\.weight": found shape \[4, 2\], allowed \[2, 4\]'),
        ("embed_tokens.weight", [8], r'"embed_tokens\.weight": found shape \[4, 2\], allowed \[8\]'),
        ("half", [2], r'"half": found F16 of shape \[2\], allowed F32 or BF16 of shape \[2\]'),
        ("quantized", [2], r'"quantized": found F8_E4M3 of shape \[2\], allowed F32 or BF16 of shape \[2\]'),
    ],
)
def test_a_tensor_of_another_shape_or_type_is_refused(
    folder: Path, name: str, shape: list[int], message: str
) -> None:
    tensors = {"embed_tokens.weight": EMBED, "half": ("F16", [2]), "quantized": ("F8_E4M3", [2])}
    write_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor " + message):
        testing.checkpoint_tensor(folder, name, shape)


def test_an_incomplete_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match="nowhere: checkpoint: found no such folder, allowed a folder with"
    ):
        testing.checkpoint_prefix(tmp_path / "nowhere")
    with pytest.raises(
        CheckpointError, match=r"config\.json: file: found .*, allowed a readable regular file"
    ):
        testing.checkpoint_prefix(tmp_path)
    write_config(tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"weights: found neither file, allowed model\.safetensors or model\.safetensors\.index\.json",
    ):
        testing.checkpoint_prefix(tmp_path)


def test_a_truncated_shard_is_refused(folder: Path) -> None:
    sharded(folder)
    whole = (folder / "two.safetensors").read_bytes()
    for kept in range(len(whole)):
        (folder / "two.safetensors").write_bytes(whole[:kept])
        with pytest.raises(CheckpointError, match=r"two\.safetensors: "):
            testing.checkpoint_tensor(folder, "norm.weight", [2])


def test_an_unused_tensor_may_have_any_type_of_the_format(folder: Path) -> None:
    header = {
        "embed_tokens.weight": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]},
        "mtp.scale": {"dtype": "F8_E8M0", "shape": [3], "data_offsets": [16, 19]},
    }
    (folder / "model.safetensors").write_bytes(safetensors_bytes(header, bytes(19)))
    assert testing.checkpoint_prefix(folder) == ""


def test_a_path_that_is_not_utf8_is_still_a_readable_error(tmp_path: Path) -> None:
    nowhere = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    with pytest.raises(CheckpointError, match=r"caf\\xe9"):
        testing.checkpoint_prefix(nowhere)
