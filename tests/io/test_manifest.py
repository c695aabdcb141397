"""decision.json and open_jev_export.json: what they give, and how every broken field is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from openjev._runtime import read_manifest, testing
from openjev.errors import CheckpointError
from tests.io.checkpoint_files import CONFIG, write_config

HIDDEN = CONFIG["hidden_size"]
REVISION = "28cf73067d5b337860bbef3c85b8b82ba8730956"
ABSENT = object()

DECISION: dict[str, Any] = {
    "format": "qwen35-decision/1",
    "base": {"id": "Qwen/Qwen3.8-27B", "revision": "1d4bf0f2"},
    "checkpoint": {"id": "ZefanCai/Open-Jev-27B-v1.1", "revision": REVISION},
    "merge": "bf16(W + bf16(scale*B@A))",
    "readout": {"kind": "scalar", "temperature": 2.5343690298472983},
    "prompt": {"prefix": "<|im_start|>user\n", "suffix": "<|im_end|>\n", "strip": False},
    "max_length": 4096,
    "files": {"config.json": {"bytes": 0, "sha256": "0" * 64}},
}
EXPORT: dict[str, Any] = {
    "format": "open-jev-text-merged/1",
    "model_id": "Qwen/Qwen3.5-9B",
    "base_revision": "c2022362",
    "checkpoint_revision": "47e96688",
    "temperature": 1.8969118766347646,
    "max_length": 16384,
    "chat_prefix": "<|im_start|>user\n",
    "chat_suffix": "<|im_end|>\n",
    "head_weight": [i / 7 for i in range(HIDDEN)],
    "head_bias": -0.125,
}
LETTERS: dict[str, Any] = {"readout": {"kind": "letters", "token_ids": list(range(32, 58))}}


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with fields replaced; "a/b" names a field of the object a, ABSENT removes one."""
    out: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in changes.items():
        *parents, name = path.split("/")
        target = out
        for parent in parents:
            target = target[parent]
        if value is ABSENT:
            del target[name]
        else:
            target[name] = value
    return out


Builder = Callable[..., Path]


@pytest.fixture
def decision(tmp_path: Path) -> Builder:
    """Writes a folder with decision.json, which lists the true size of config.json unless that is changed."""

    def build(changes: dict[str, Any] | None = None, **readout: np.ndarray[Any, Any]) -> Path:
        write_config(tmp_path)
        manifest = changed(DECISION, {"files/config.json/bytes": (tmp_path / "config.json").stat().st_size})
        manifest = changed(manifest, changes or {})
        save_file(readout or {"weight": weight()}, tmp_path / "readout.safetensors")
        (tmp_path / "decision.json").write_text(json.dumps(manifest), encoding="utf-8")
        return tmp_path

    return build


@pytest.fixture
def export(tmp_path: Path) -> Builder:
    def build(changes: dict[str, Any] | None = None) -> Path:
        write_config(tmp_path)
        text = json.dumps(changed(EXPORT, changes or {}))
        (tmp_path / "open_jev_export.json").write_text(text, encoding="utf-8")
        return tmp_path

    return build


def weight(outputs: int = 1, hidden: int = HIDDEN) -> np.ndarray[Any, Any]:
    return np.arange(outputs * hidden, dtype=np.float32).reshape(outputs, hidden) / 3


def test_reads_a_scalar_decision_folder(decision: Builder) -> None:
    bias = np.array([0.5], np.float32)
    folder = decision(weight=weight(), bias=bias)
    expected = {
        "format": "qwen35-decision/1",
        "base": {"id": "Qwen/Qwen3.8-27B", "revision": "1d4bf0f2"},
        "checkpoint": {"id": "ZefanCai/Open-Jev-27B-v1.1", "revision": REVISION},
        "readout": "scalar",
        "outputs": 1,
        "temperature": 2.5343690298472983,
        "token_ids": [],
        "prompt_prefix": "<|im_start|>user\n",
        "prompt_suffix": "<|im_end|>\n",
        "strip": False,
        "max_length": 4096,
    }
    assert read_manifest(str(folder)) == expected
    manifest, found_weight, found_bias = testing.manifest_weights(folder, HIDDEN)
    assert manifest == expected
    np.testing.assert_array_equal(np.float32(found_weight), weight()[0])
    assert found_bias == [0.5]


def test_reads_a_letters_decision_folder(decision: Builder) -> None:
    folder = decision(LETTERS, weight=weight(26))
    manifest, found_weight, bias = testing.manifest_weights(folder, HIDDEN)
    assert (manifest["readout"], manifest["outputs"], manifest["temperature"]) == ("letters", 26, 1.0)
    assert manifest["token_ids"] == list(range(32, 58))
    np.testing.assert_array_equal(np.float32(found_weight), weight(26).reshape(-1))
    assert bias == []


def test_identity_and_strip_are_optional(decision: Builder) -> None:
    changes = {"base": ABSENT, "checkpoint/revision": ABSENT, "prompt/strip": ABSENT}
    manifest = read_manifest(str(decision(changes)))
    assert manifest["base"] == {"id": "", "revision": ""}
    assert manifest["checkpoint"] == {"id": "ZefanCai/Open-Jev-27B-v1.1", "revision": ""}
    assert manifest["strip"] is True


def test_reads_the_older_export(export: Builder) -> None:
    manifest, found_weight, bias = testing.manifest_weights(export(), HIDDEN)
    assert manifest == {
        "format": "open-jev-text-merged/1",
        "base": {"id": "Qwen/Qwen3.5-9B", "revision": "c2022362"},
        "checkpoint": {"id": "", "revision": "47e96688"},
        "readout": "scalar",
        "outputs": 1,
        "temperature": 1.8969118766347646,
        "token_ids": [],
        "prompt_prefix": "<|im_start|>user\n",
        "prompt_suffix": "<|im_end|>\n",
        "strip": True,
        "max_length": 16384,
    }
    np.testing.assert_array_equal(np.float32(found_weight), np.float32(EXPORT["head_weight"]))
    assert bias == [-0.125]


def test_decision_json_wins_over_the_older_export(decision: Builder, export: Builder) -> None:
    decision()
    assert read_manifest(str(export()))["format"] == "qwen35-decision/1"


def test_backbone_weights_are_not_opened(decision: Builder) -> None:
    folder = decision()
    (folder / "model.safetensors").write_bytes(b"garbage")
    assert read_manifest(str(folder))["outputs"] == 1


def test_a_base_model_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    write_config(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        read_manifest(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}: decision manifest: found neither decision.json nor open_jev_export.json (a base model, "
        "which has no readout to decide with), allowed an exported decision checkpoint: decision.json "
        "(format qwen35-decision/1) with readout.safetensors, or open_jev_export.json "
        "(format open-jev-text-merged/1)"
    )


TEMPERATURES = [0, -1, "1", None, True, 1e7]
LENGTHS = [0, -1, 262145, 1.5, "4096", None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "qwen35-decision/2"}, 'format: found "qwen35-decision/2", allowed "qwen35-decision/1"'),
        ({"format": ABSENT}, "format: found no such field, allowed a string"),
        ({"base": "Qwen"}, 'base: found "Qwen", allowed an object'),
        ({"base/id": ABSENT}, "base.id: found no such field, allowed a string"),
        ({"checkpoint/revision": 7}, "checkpoint.revision: found 7, allowed a string"),
        ({"readout": ABSENT}, "readout: found no such field, allowed an object"),
        ({"readout/kind": ABSENT}, "readout.kind: found no such field, allowed a string"),
        ({"readout/kind": "vector"}, 'readout.kind: found "vector", allowed "scalar" or "letters"'),
        (
            {"readout/token_ids": [1]},
            'readout.token_ids: found a list of 1 elements, allowed no such field with kind "scalar"',
        ),
        *[({"readout/temperature": value}, "readout.temperature: found ") for value in TEMPERATURES],
        *[({"max_length": value}, "max_length: found ") for value in LENGTHS],
        ({"prompt": ABSENT}, "prompt: found no such field, allowed an object"),
        ({"prompt/prefix": ABSENT}, "prompt.prefix: found no such field, allowed a string"),
        ({"prompt/suffix": 1}, "prompt.suffix: found 1, allowed a string"),
        ({"prompt/strip": 1}, "prompt.strip: found 1, allowed true or false"),
        ({"readout": {"kind": "letters"}}, "readout.token_ids: found no such field, allowed a list"),
        (
            {"readout": {"kind": "letters", "token_ids": []}},
            "readout.token_ids: found a list of 0 elements, allowed 1 to 26 token ids",
        ),
        (
            {"readout": {"kind": "letters", "token_ids": list(range(27))}},
            "readout.token_ids: found a list of 27 elements, allowed 1 to 26 token ids",
        ),
        (
            {"readout": {"kind": "letters", "token_ids": [32, 33, 32]}},
            "readout.token_ids[2]: found token 32 again, allowed each token once",
        ),
        (
            {"readout": {"kind": "letters", "token_ids": [32, -1]}},
            "readout.token_ids[1]: found -1, allowed an integer from 0 to",
        ),
        (
            {"readout": {"kind": "letters", "token_ids": [32.0]}},
            "readout.token_ids[0]: found 32.0, allowed an integer from 0 to",
        ),
        (
            {"readout": {"kind": "letters", "token_ids": [32], "temperature": 2}},
            'readout.temperature: found 2, allowed 1 or no such field with kind "letters"',
        ),
        ({"files": ABSENT}, "files: found no such field, allowed an object: file name -> {bytes, sha256}"),
        ({"files": []}, "files: found a list of 0 elements, allowed an object"),
        ({"files/config.json": 12}, "files.config.json: found 12, allowed an object"),
        (
            {"files/config.json/bytes": ABSENT},
            "files.config.json.bytes: found no such field, allowed an integer",
        ),
        ({"files/config.json/bytes": -1}, "files.config.json.bytes: found -1, allowed an integer from 0"),
        ({"files/config.json/bytes": 2.5}, "files.config.json.bytes: found 2.5, allowed an integer from 0"),
        ({"files/config.json/sha256": "abc"}, 'files.config.json.sha256: found "abc", allowed 64 lower-case'),
        (
            {"files": {"../config.json": {"bytes": 1}}},
            'files."../config.json": found a path, allowed the plain name of a file in this folder',
        ),
    ],
)
def test_a_broken_decision_json_is_refused(decision: Builder, changes: dict[str, Any], message: str) -> None:
    folder = decision(changes)
    with pytest.raises(CheckpointError, match="^" + re.escape(f"{folder}/decision.json: {message}")):
        read_manifest(str(folder))


@pytest.mark.parametrize("listed", [0, 1, 10**12])
def test_a_listed_file_of_another_size_is_refused(decision: Builder, listed: int) -> None:
    folder = decision({"files/config.json/bytes": listed})
    size = (folder / "config.json").stat().st_size
    expected = f"config.json: file: found {size} bytes, allowed {listed} bytes, as decision.json says"
    with pytest.raises(CheckpointError, match=expected):
        read_manifest(str(folder))


def test_a_listed_file_that_is_missing_is_refused(decision: Builder) -> None:
    folder = decision({"files": {"model.safetensors": {"bytes": 0}}})
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors: file: found no such file, allowed 0 bytes"
    ):
        read_manifest(str(folder))


NOT_A_NUMBER = weight()
NOT_A_NUMBER[0, 5] = np.nan
INFINITE = np.array([np.inf], np.float32)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"bias": np.zeros(1, np.float32)}, '"weight": found no such tensor, allowed F32 of shape [1, 128]'),
        (
            {"weight": weight(1, 64)},
            '"weight": found F32 of shape [1, 64], allowed F32 of shape [1, 128]',
        ),
        ({"weight": weight(2)}, '"weight": found F32 of shape [2, 128], allowed F32 of shape [1, 128]'),
        ({"weight": weight()[0]}, '"weight": found F32 of shape [128], allowed F32 of shape [1, 128]'),
        (
            {"weight": weight().astype(np.float16)},
            '"weight": found F16 of shape [1, 128], allowed F32 of shape [1, 128]',
        ),
        (
            {"weight": weight(), "bias": np.zeros(2, np.float32)},
            '"bias": found F32 of shape [2], allowed F32 of shape [1]',
        ),
        ({"weight": NOT_A_NUMBER}, '"weight": found nan at element 5, allowed finite numbers'),
        ({"weight": weight(), "bias": INFINITE}, '"bias": found inf at element 0, allowed finite numbers'),
        (
            {"weight": weight(), "scale": INFINITE},
            '"scale": found an unknown tensor, allowed weight and bias',
        ),
    ],
)
def test_a_broken_readout_is_refused(decision: Builder, tensors: dict[str, Any], message: str) -> None:
    folder = decision(**tensors)
    expected = re.escape(f"{folder}/readout.safetensors: tensor {message}")
    with pytest.raises(CheckpointError, match="^" + expected):
        read_manifest(str(folder))


def test_a_missing_readout_is_refused(decision: Builder) -> None:
    folder = decision()
    (folder / "readout.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"readout\.safetensors: file: found No such file"):
        read_manifest(str(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "open-jev-text-merged/2"},
            'format: found "open-jev-text-merged/2", allowed "open-jev-text',
        ),
        *[({name: ABSENT}, f"{name}: found no such field, allowed ") for name in EXPORT],
        *[({"temperature": value}, "temperature: found ") for value in TEMPERATURES],
        *[({"max_length": value}, "max_length: found ") for value in LENGTHS],
        ({"chat_prefix": 1}, "chat_prefix: found 1, allowed a string"),
        ({"head_weight": 1}, "head_weight: found 1, allowed a list"),
        ({"head_weight": [0.5] * 127}, "head_weight: found a list of 127 elements, allowed 128, the model's"),
        (
            {"head_weight": [[0.5] * HIDDEN]},
            "head_weight: found a list of 1 elements, allowed 128, the model's",
        ),
        ({"head_weight": [0.5] * 127 + ["1"]}, 'head_weight[127]: found "1", allowed a number in the range'),
        ({"head_weight": [1e39] + [0] * 127}, "head_weight[0]: found 1e+39, allowed a number in the range"),
        ({"head_bias": [0.5]}, "head_bias: found a list of 1 elements, allowed a number in the range"),
    ],
)
def test_a_broken_export_is_refused(export: Builder, changes: dict[str, Any], message: str) -> None:
    folder = export(changes)
    with pytest.raises(CheckpointError, match="^" + re.escape(f"{folder}/open_jev_export.json: {message}")):
        read_manifest(str(folder))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_an_export_with_a_number_that_is_not_finite_is_refused(export: Builder, number: str) -> None:
    folder = export()
    text = json.dumps({**EXPORT, "head_bias": 12345.5}).replace("12345.5", number)
    (folder / "open_jev_export.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=r"open_jev_export\.json: JSON: found .*, allowed JSON text in UTF-8"
    ):
        read_manifest(str(folder))


def test_config_json_is_needed(decision: Builder) -> None:
    folder = decision()
    (folder / "config.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"config\.json: file: found .*, allowed a readable regular file"
    ):
        read_manifest(str(folder))
