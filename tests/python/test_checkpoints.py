"""Known checkpoints: what a name means, which names the wire accepts, and which folders are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjev import backbone
from openjev.checkpoints import (
    CHECKPOINTS,
    KnownCheckpoint,
    caveat,
    check_identity,
    find,
    resolve,
    served_names,
)
from openjev.demo import demo_folder
from openjev.errors import CheckpointError

OPEN_JEV_9B = next(row for row in CHECKPOINTS if row.name == "open-jev-9b")
BY_NAME = pytest.mark.parametrize("row", CHECKPOINTS, ids=lambda row: row.name)


def manifest(row: KnownCheckpoint, **changes: dict[str, str]) -> dict[str, object]:
    return {
        "base": {"id": row.base_id, "revision": row.base_revision},
        "checkpoint": {"id": row.checkpoint_id, "revision": row.checkpoint_revision},
        **changes,
    }


@BY_NAME
def test_a_row_pins_full_revisions_and_its_names_mean_only_it(row: KnownCheckpoint) -> None:
    for revision in (row.base_revision, row.checkpoint_revision):
        assert len(bytes.fromhex(revision)) == 20
    for name in (row.name, row.checkpoint_id, row.name.upper()):
        assert find(name) is row
    assert row.temperature is None or row.temperature > 0


def test_a_name_that_several_rows_share_means_none_of_them() -> None:
    assert find("open-jev") is None
    assert find("gpt") is None


@BY_NAME
def test_the_wire_accepts_name_aliases_hub_ids_and_the_sdk_default(row: KnownCheckpoint) -> None:
    names = served_names(manifest(row))
    assert names[0] == row.name
    assert {row.checkpoint_id, row.base_id, "jev-latest", *row.aliases} < set(names)
    assert len(set(names)) == len(names)


def test_an_unknown_checkpoint_is_served_under_the_last_part_of_its_id() -> None:
    mine = {
        "base": {"id": "Qwen/Qwen3.5-2B", "revision": "x"},
        "checkpoint": {"id": "me/Spam-Judge", "revision": "y"},
    }
    assert served_names(mine) == ("spam-judge", "me/Spam-Judge", "jev-latest")
    assert served_names({}) == ("decision-model", "jev-latest")
    check_identity(mine, "folder")


def test_the_demo_and_seeded_weights_say_what_they_are() -> None:
    demo = {"base": {"id": "openjev/demo-base"}, "checkpoint": {"id": "openjev/demo", "revision": "1"}}
    assert "demonstration" in caveat(demo)
    assert "random" in caveat({"checkpoint": {"id": "openjev/seeded-27b", "revision": "seed-0"}})
    assert caveat(manifest(OPEN_JEV_9B)) == caveat({}) == ""
    assert served_names(demo)[0] == "openjev-demo"
    assert {"demo", "jev-latest"} < set(served_names(demo))


@BY_NAME
@pytest.mark.parametrize("part", ["base", "checkpoint"])
@pytest.mark.parametrize("found", ["f" * 40, ""])
def test_t23_a_known_checkpoint_with_another_revision_is_refused_with_both(
    row: KnownCheckpoint, part: str, found: str
) -> None:
    identity = {"base": row.base_id, "checkpoint": row.checkpoint_id}[part]
    pinned = {"base": row.base_revision, "checkpoint": row.checkpoint_revision}[part]
    with pytest.raises(CheckpointError) as caught:
        check_identity(manifest(row, **{part: {"id": identity, "revision": found}}), "models/x")
    for fact in ("models/x", f"{part}.revision", found or "none", pinned, row.name):
        assert fact in str(caught.value)


def test_t23_a_known_checkpoint_on_another_base_is_refused() -> None:
    other = manifest(OPEN_JEV_9B, base={"id": "Qwen/Qwen3.5-9B-Base", "revision": OPEN_JEV_9B.base_revision})
    with pytest.raises(
        CheckpointError, match=r"base\.id: found Qwen/Qwen3\.5-9B-Base, allowed .*Qwen/Qwen3\.5-9B"
    ):
        check_identity(other, "folder")


def test_t23_an_older_export_that_names_only_its_base_is_checked_by_it() -> None:
    older = manifest(OPEN_JEV_9B, checkpoint={"id": "", "revision": "anything"})
    check_identity(older, "folder")
    assert served_names(older)[0] == "open-jev-9b"
    older["base"] = {"id": OPEN_JEV_9B.base_id, "revision": "0" * 40}
    with pytest.raises(CheckpointError, match=OPEN_JEV_9B.base_revision):
        check_identity(older, "folder")


@BY_NAME
def test_the_pinned_revisions_are_accepted(row: KnownCheckpoint) -> None:
    check_identity(manifest(row), "folder")


def test_an_existing_folder_wins_over_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "open-jev-9b"):
        (tmp_path / name).mkdir()
        assert resolve(name) == Path(name)
    assert resolve(tmp_path) == tmp_path


def test_a_folder_below_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert resolve("~/model") == tmp_path / "model"


@BY_NAME
def test_a_known_checkpoint_that_is_not_here_says_what_to_give_instead(
    row: KnownCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (row.name, row.checkpoint_id):
        with pytest.raises(CheckpointError) as caught:
            resolve(name)
        for fact in (name, row.checkpoint_id, "decision.json", "tokenizer.json", "readout.safetensors"):
            assert fact in str(caught.value)


@pytest.mark.parametrize("name", ["nothing-like-it", "", "a\0b", "x" * 5000])
def test_what_is_neither_folder_nor_name_lists_the_names(name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve(name)
    assert all(row.name in str(caught.value) for row in CHECKPOINTS)


def test_a_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="found a file, allowed: a folder"):
        resolve(file)


def test_demo_is_the_bundled_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("demo") == demo_folder()


# Totals and tensor counts of the published text backbones, embedding included.
@pytest.mark.parametrize(
    "shape, parameters, tensors",
    [
        (backbone.QWEN_0_8B, 752_393_024, 320),
        (backbone.QWEN_2B, 1_881_825_088, 320),
        (backbone.QWEN_4B, 4_205_751_296, 426),
        (backbone.QWEN_9B, 7_936_684_544, 426),
        (backbone.QWEN_27B, 25_624_600_064, 850),
    ],
    ids=["0.8B", "2B", "4B", "9B", "27B"],
)
def test_the_sizes_are_the_published_ones(
    shape: backbone.BackboneShape, parameters: int, tensors: int
) -> None:
    assert shape.parameters() == parameters
    names = [name for name, _ in shape.tensors()]
    assert len(names) == len(set(names)) == tensors


def test_a_shape_is_read_from_flat_and_nested_configs() -> None:
    flat = {
        name: getattr(backbone.QWEN_9B, name)
        for name in backbone.BackboneShape.__dataclass_fields__
        if name != "layer_types"
    }
    flat["num_hidden_layers"] = 32
    assert backbone.BackboneShape.from_config(flat) == backbone.QWEN_9B
    assert (
        backbone.BackboneShape.from_config({"model_type": "qwen3_5", "text_config": flat}) == backbone.QWEN_9B
    )
