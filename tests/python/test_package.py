"""Adapter packages: what is read from which file, head.pt without pickle's powers, and every refusal."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjev import checkpoints
from openjev.errors import CheckpointError
from openjev.head_file import read_head
from openjev.native import runtime
from openjev.package import find_package, read_package
from openjev.sources import AdaptedBase, locate
from openjev.verify import verify
from tests import adapters

CONFIG: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return adapters.write_package(tmp_path / "judge", CONFIG)


def edit(path: Path, **changes: Any) -> None:
    found = json.loads(path.read_text())
    found.update(changes)
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))


def test_a_package_is_read(package: Path) -> None:
    found = read_package(package)
    assert found.base.to_dict() == {"id": "someone/base", "revision": "b" * 40}
    assert found.checkpoint.to_dict() == {"id": "someone/Judge", "revision": "c" * 40}
    assert (found.family, found.max_length, found.temperature) == ("open-jev", 1024, adapters.TEMPERATURE)
    assert found.head is not None and found.head.weight.shape == (1, 64)
    assert found.head.bias.tolist() == [0.25]
    assert found.row is None


@pytest.mark.parametrize("inner", ["", "package", "package/checkpoint"])
def test_a_package_is_found_from_its_repository_or_inside_it(package: Path, inner: str) -> None:
    assert find_package(package / inner) == package / "package" / "checkpoint"


def test_without_a_manifest_it_is_called_by_its_folder(package: Path) -> None:
    (package / "package" / "manifest.json").unlink()
    assert read_package(package).checkpoint.to_dict() == {"id": "local/judge", "revision": ""}


@pytest.mark.parametrize(
    "file, change, said",
    [
        ("model.json", {"method": "other"}, "method: found 'other'"),
        ("model.json", {"lora_rank": 16}, "lora_rank: found 16, allowed: 8, the r of"),
        ("model.json", {"max_length": 0}, "max_length: found 0"),
        ("model.json", {"max_length": True}, "max_length: found True"),
        ("model.json", {"model_id": ...}, "model_id: found None"),
        ("model.json", {"revision": ""}, "revision: found ''"),
        ("temperature.json", {"temperature": 0}, "temperature: found 0"),
        ("temperature.json", {"temperature": "1.5"}, "temperature: found '1.5'"),
        ("temperature.json", {"temperature": 1e9}, "temperature: found 1000000000.0"),
        ("temperature.json", {"temperature": ...}, "temperature: found None"),
        (
            "temperature.json",
            {"by_type": {"noul": 1.2, "choice": 2.0}},
            "by_type: found 'a table of 2 entries'",
        ),
    ],
)
def test_a_wrong_field_is_named(package: Path, file: str, change: dict[str, Any], said: str) -> None:
    edit(package / "package" / "checkpoint" / file, **change)
    adapters.write_package_manifest(package)
    with pytest.raises(CheckpointError) as caught:
        read_package(package)
    assert file in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize(
    "name", ["model.json", "temperature.json", "head.pt", "adapter/adapter_model.safetensors"]
)
def test_a_file_that_differs_from_the_manifest_is_named(package: Path, name: str) -> None:
    path = package / "package" / "checkpoint" / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError) as caught:
        read_package(package)
    assert name in str(caught.value) and ("SHA-256" in str(caught.value) or "JSON" in str(caught.value))
    path.write_bytes(bytes(data[:-1]))
    with pytest.raises(CheckpointError) as caught:
        read_package(package)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd"])
def test_a_manifest_names_only_files_of_the_package(package: Path, name: str) -> None:
    edit(package / "package" / "manifest.json", files={name: {"bytes": 1, "sha256": "0" * 64}})
    with pytest.raises(CheckpointError, match="a path below the package"):
        read_package(package)


def test_a_folder_without_package_says_what_one_holds(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"found no adapter package, allowed: .*model\.json"):
        read_package(tmp_path)


@pytest.mark.parametrize("part", ["id", "revision"])
def test_t23_a_package_that_claims_a_known_name_must_have_its_files_and_base(
    tmp_path: Path, part: str
) -> None:
    row = checkpoints.CHECKPOINTS[1]
    base = (row.base_id, row.base_revision)
    wrong = ("Qwen/Other", base[1]) if part == "id" else (base[0], "0" * 40)
    claimed = adapters.write_package(tmp_path / "x", CONFIG, base=wrong, name=row.checkpoint_id)
    with pytest.raises(CheckpointError) as caught:
        read_package(claimed)
    assert wrong[part == "revision"] in str(caught.value) and base[part == "revision"] in str(caught.value)
    claimed = adapters.write_package(tmp_path / "y", CONFIG, base=base, name=row.checkpoint_id)
    with pytest.raises(CheckpointError, match=row.hashes["adapter_model.safetensors"]):
        read_package(claimed)


def test_a_cua_s1_adapter_names_its_base_and_the_multimodal_one_is_refused(tmp_path: Path) -> None:
    tensors = adapters.adapter_tensors(CONFIG, rank=16, targets=adapters.CUA_TARGETS)
    config = adapters.adapter_config(16, adapters.CUA_TARGETS, base_model_name_or_path="Qwen/Qwen3.5-4B")
    adapters.write_adapter(tmp_path / "text", tensors, config)
    found = read_package(tmp_path)
    assert (found.family, found.head, found.temperature) == ("cua-s1", None, 1.0)
    assert found.manifest()["token_ids"] == list(range(32, 58))
    adapters.write_adapter(tmp_path / "text", tensors, {**config, "base_model_name_or_path": "other/base"})
    with pytest.raises(CheckpointError, match="base_model_name_or_path: found other/base"):
        read_package(tmp_path)
    multimodal = adapters.adapter_config(
        16, [*adapters.CUA_TARGETS, "linear_fc1"], base_model_name_or_path="Qwen/Qwen3.5-4B"
    )
    base = adapters.write_base(tmp_path / "base")
    adapters.write_adapter(tmp_path / "text", tensors, multimodal)
    with pytest.raises(CheckpointError, match=r'target_modules: found "linear_fc1"'):
        runtime().read_adapter(str(tmp_path / "text"), str(base))


def test_a_head_of_another_size_than_the_base_is_refused(tmp_path: Path) -> None:
    folder = adapters.write_local_model(tmp_path / "model")
    checkpoint = folder / "package" / "checkpoint"
    adapters.write_head(checkpoint / "head.pt", np.ones((1, 128), np.float32), np.zeros(1, np.float32))
    adapters.write_package_manifest(folder)
    with pytest.raises(CheckpointError, match=r"head\.pt: weight: found 128 numbers, allowed: 256"):
        locate(folder).manifest()


def test_a_base_of_another_revision_is_refused_where_its_folder_tells(tmp_path: Path) -> None:
    folder = tmp_path / "models--someone--base" / "snapshots" / ("0" * 40)
    base = adapters.write_base(folder)
    package = read_package(adapters.write_package(tmp_path / "x", adapters.config_of(base)))
    with pytest.raises(CheckpointError) as caught:
        AdaptedBase(base, package).manifest()
    assert "0" * 40 in str(caught.value) and "b" * 40 in str(caught.value)


def test_verify_reads_everything_and_names_what_is_not_finite(tmp_path: Path) -> None:
    folder = adapters.write_local_model(tmp_path / "model")
    lines = verify(folder)
    assert any(line.startswith("adapter   rank 8, alpha 16, 10 modules") for line in lines)
    assert any("finite numbers, in the shapes of config.json" in line for line in lines)
    weights = folder / "base" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2:] = b"\x80\x7f"  # +infinity in bfloat16: the last element of norm.weight
    weights.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=r"tensor norm\.weight: .*not finite at element 255"):
        verify(folder)


# --- head.pt


def head(path: Path, **options: Any) -> Path:
    weight = np.arange(8, dtype=np.float32)[None]
    adapters.write_head(path, weight, np.array([0.5], np.float32), **options)
    return path


def test_a_head_is_read_without_torch(tmp_path: Path) -> None:
    found = read_head(head(tmp_path / "head.pt"))
    assert found.weight.tolist() == [list(range(8))]
    assert found.bias.tolist() == [0.5]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil-was-here",)


@pytest.mark.parametrize(
    "payload",
    [
        pickle.dumps(Evil(), protocol=2),
        adapters.head_pickle(8, storage="cos\nsystem\n"),
        adapters.head_pickle(8, storage="ctorch\nDoubleStorage\n"),
        adapters.head_pickle(8, tail=b"u"),
        adapters.head_pickle(9),
        pickle.dumps({"weight": 1}, protocol=2),
        pickle.dumps([1, 2], protocol=2),
        b"",
        b"\x80\x02}.",
    ],
)
def test_only_the_three_names_of_a_head_are_known_to_its_pickle(
    tmp_path: Path, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "head.pt"
    head(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("head/data.pkl", payload)
        archive.writestr("head/data/0", np.zeros(8, "<f4").tobytes())
        archive.writestr("head/data/1", np.zeros(1, "<f4").tobytes())
    with pytest.raises(CheckpointError, match=r"head\.pt: found .* allowed: what torch\.save makes of"):
        read_head(path)
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize("cut", [0, 1, 10, 100])
def test_a_truncated_head_is_refused(tmp_path: Path, cut: int) -> None:
    path = head(tmp_path / "head.pt")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"head\.pt"):
        read_head(path)


@given(data=st.data())
def test_a_head_with_any_byte_changed_is_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = head(tmp_path_factory.mktemp("head") / "head.pt")
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        assert read_head(path).weight.shape == (1, 8)
    except CheckpointError as error:
        assert "head.pt" in str(error)


def test_a_head_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "head.pt"
    adapters.write_head(path, np.full((1, 4), np.inf, np.float32), np.zeros(1, np.float32))
    with pytest.raises(CheckpointError, match="not finite"):
        read_head(path)
