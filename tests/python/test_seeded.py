"""Seeded checkpoints: the real export format, the same bytes on every build."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from numpy.typing import NDArray

import openjev
from openjev.backbone import BackboneShape
from openjev.checkpoints import SEEDED_ID
from openjev.seeded import build_checkpoint

# Small enough that a variant is written in milliseconds.
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 64,
    "linear_num_key_heads": 1,
}

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def make(name: str, **options: Any) -> Path:
        options.setdefault("config", SMALL)
        return build_checkpoint(tmp_path / name, **options)

    return make


def hashes(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def read_json(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def read_tensors(*files: Path) -> dict[str, tuple[str, tuple[int, ...], NDArray[np.float32]]]:
    """Name to dtype, shape and values, read with the safetensors library and not with ours."""
    found = {}
    for file in files:
        for name, entry in safetensors.deserialize(file.read_bytes()):
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(entry["data"], "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(entry["data"], "<f4")
            found[name] = (entry["dtype"], tuple(entry["shape"]), values)
    return found


def weights(folder: Path) -> dict[str, tuple[str, tuple[int, ...], NDArray[np.float32]]]:
    return read_tensors(*sorted(folder.glob("model*.safetensors")))


def test_two_builds_have_the_same_bytes_in_every_file(tmp_path: Path) -> None:
    first, second = build_checkpoint(tmp_path / "a"), build_checkpoint(tmp_path / "b")
    assert hashes(first) == hashes(second)
    assert set(hashes(first)) == {
        "config.json",
        "decision.json",
        "model.safetensors",
        "readout.safetensors",
        "tokenizer.json",
    }


def test_another_seed_gives_other_weights(build: Build) -> None:
    one, two = hashes(build("one", seed=1)), hashes(build("two", seed=2))
    assert one["model.safetensors"] != two["model.safetensors"]
    assert one["readout.safetensors"] != two["readout.safetensors"]
    assert one["tokenizer.json"] == two["tokenizer.json"]


@pytest.mark.parametrize(
    "options", [{}, {"shards": 3}, {"kind": "letters"}], ids=["scalar", "sharded", "letters"]
)
def test_the_manifest_lists_every_other_file_with_its_length_and_hash(
    build: Build, options: dict[str, Any]
) -> None:
    folder = build("x", **options)
    listed = read_json(folder / "decision.json")["files"]
    found = hashes(folder)
    found.pop("decision.json")
    assert {name: entry["sha256"] for name, entry in listed.items()} == found
    assert all(entry["bytes"] == (folder / name).stat().st_size for name, entry in listed.items())


def test_the_manifest_of_the_scalar_kind_is_open_jevs(build: Build) -> None:
    manifest = read_json(build("x", seed=7) / "decision.json")
    assert manifest["format"] == "qwen35-decision/1"
    assert manifest["base"]["id"] == manifest["checkpoint"]["id"] == SEEDED_ID
    assert manifest["base"]["revision"].endswith("seed-7")
    assert manifest["readout"] == {"kind": "scalar", "temperature": 1.5}
    assert manifest["max_length"] == 4096
    assert manifest["prompt"] == {
        "prefix": "<|im_start|>user\n",
        "suffix": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "strip": True,
    }


def test_the_letters_kind_reads_its_answer_with_the_embedding_rows_of_a_to_z(build: Build) -> None:
    for dtype in ("BF16", "F32"):
        folder = build(f"letters-{dtype}", kind="letters", dtype=dtype)
        manifest = read_json(folder / "decision.json")
        assert manifest["readout"] == {"kind": "letters", "token_ids": list(range(32, 58))}
        assert manifest["prompt"]["suffix"] == "<|im_end|>\n<|im_start|>assistant\n<think>\n"
        assert manifest["max_length"] == 16384
        stored, shape, embedding = weights(folder)["embed_tokens.weight"]
        assert stored == dtype
        readout = read_tensors(folder / "readout.safetensors")
        assert set(readout) == {"weight"}
        assert readout["weight"][:2] == ("F32", (26, shape[1]))
        np.testing.assert_array_equal(readout["weight"][2], embedding.reshape(shape)[32:58].ravel())


def test_the_scalar_readout_is_one_float32_row_and_a_bias(build: Build) -> None:
    readout = read_tensors(build("x") / "readout.safetensors")
    assert {name: entry[:2] for name, entry in readout.items()} == {
        "weight": ("F32", (1, 64)),
        "bias": ("F32", (1,)),
    }


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_the_weights_are_those_that_config_json_promises(build: Build, dtype: str) -> None:
    folder = build("x", dtype=dtype, config={**SMALL, "num_hidden_layers": 6})
    config = read_json(folder / "config.json")
    assert config["model_type"] == "qwen3_5_text"
    assert config["layer_types"] == ["linear_attention"] * 3 + ["full_attention"] + ["linear_attention"] * 2
    assert config["vocab_size"] % 64 == 0
    shape = BackboneShape.from_config(config)
    found = weights(folder)
    assert {name: entry[1] for name, entry in found.items()} == dict(shape.tensors())
    assert {entry[0] for entry in found.values()} == {dtype}
    assert all(np.isfinite(entry[2]).all() and np.ptp(entry[2]) > 0 for entry in found.values())


def test_layout_does_not_change_values(build: Build) -> None:
    plain = weights(build("plain"))
    sharded = weights(build("sharded", shards=4))
    prefixed = weights(build("prefixed", prefix="model.language_model."))
    full = weights(build("f32", dtype="F32"))
    for name, (_, _, values) in plain.items():
        np.testing.assert_array_equal(sharded[name][2], values)
        np.testing.assert_array_equal(prefixed["model.language_model." + name][2], values)
        # bfloat16 has 8 significant bits: rounding moves a value by at most 1/256 of it.
        assert np.all(np.abs(full[name][2] - values) <= np.abs(full[name][2]) / 256)
    assert any(np.any(full[name][2] != plain[name][2]) for name in plain)


def test_what_readers_round_to_bfloat16_is_stored_rounded_in_float32_too(build: Build) -> None:
    plain, full = weights(build("plain")), weights(build("f32", dtype="F32"))
    for name in plain:
        if name.endswith(("A_log", "linear_attn.norm.weight")):
            np.testing.assert_array_equal(full[name][2], plain[name][2])


def test_shards_are_indexed_and_none_is_empty(build: Build) -> None:
    folder = build("x", shards=5)
    index = read_json(folder / "model.safetensors.index.json")
    files = sorted(folder.glob("model-*.safetensors"))
    assert [file.name for file in files] == [f"model-{i:05d}-of-00005.safetensors" for i in range(1, 6)]
    where = {name: file.name for file in files for name in read_tensors(file)}
    assert index["weight_map"] == where
    assert set(where.values()) == {file.name for file in files}


@pytest.mark.parametrize("shards", [0, 1000])
def test_an_impossible_number_of_shards_is_refused(build: Build, shards: int) -> None:
    with pytest.raises(ValueError, match=f"shards: found {shards}, allowed: 1 to"):
        build("x", shards=shards)


def test_a_vocabulary_below_the_tokenizers_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match="vocab_size: found 512, allowed: at least the tokenizer's 1024"):
        build("x", config={**SMALL, "vocab_size": 512})


STATES = (
    "Hi",
    "The parcel is three days late and nobody answers.",
    "Thank you, everything works well.",
    "I was charged twice for the same month, please send the money back.",
    "How do I change the address of my account? The form only accepts the old postal code.",
    '{"customer": "returning", "priority": "high"}',
)
ASKED = ("Is it urgent?", "Is the customer angry?", "Does this need a reply?", "Late?")


def test_seeded_answers_differ_between_requests_and_are_never_certain(
    tmp_path: Path,
) -> None:
    model = openjev.load(build_checkpoint(tmp_path / "demo"), device="cpu")
    questions = {text: openjev.Noul(text) for text in ASKED}
    requests = [openjev.DecisionRequest(state, questions) for state in STATES]
    logits = np.concatenate(model.execute([model.prepare(request) for request in requests])).ravel()
    assert logits.shape == (24,)
    assert 0.5 < logits.std() < 2.5
    assert abs(logits.mean()) < 1.5
    assert np.abs(logits).max() < 6


def test_the_letters_kind_prefers_different_options_for_different_states(tmp_path: Path) -> None:
    model = openjev.load(build_checkpoint(tmp_path / "demo", kind="letters"), device="cpu")
    question = {"q": openjev.Choice("Which one?", dict.fromkeys("abcdefgh"))}
    answers = [model.decide(state, question)["q"] for state in STATES]
    assert len({answer.to_dict()["choice"] for answer in answers}) > 1
