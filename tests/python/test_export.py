"""Merging at load and exporting: one model, the same bits, by the formula, whole or not at all."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openjev
from openjev import checkpoints
from openjev import export as export_module
from openjev._runtime import Engine
from openjev.backbone import BackboneShape
from openjev.errors import CheckpointError
from openjev.export import export, split_by_bytes
from openjev.package import read_package, sha256_of
from openjev.safetensors_write import TensorSource
from openjev.sources import AdaptedBase, locate
from tests import adapters
from tests.compare import assert_same_bits

SMALL = 400_000
QUESTIONS: dict[str, Any] = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "team": {"type": "choice", "instructions": "Who?", "criteria": {"billing": None, "shipping": "parcels"}},
}


def source_of(folder: Path) -> AdaptedBase:
    found = locate(folder)
    assert isinstance(found, AdaptedBase)
    return found


@pytest.fixture(scope="module", params=["text", "original", "float32", "three-value-heads"])
def local(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "model"
    if request.param == "original":
        return adapters.write_local_model(folder, layout="original", shards=3, tied=False)
    if request.param == "float32":
        return adapters.write_local_model(folder, dtype="F32")
    if request.param == "three-value-heads":
        return adapters.write_local_model(folder, linear_num_value_heads=6, num_attention_heads=6)
    return adapters.write_local_model(folder)


@pytest.fixture(scope="module")
def exported(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(source_of(local), tmp_path_factory.mktemp("out") / "merged", compat=True, shard_bytes=SMALL)


def test_export_has_the_bits_of_the_formula_in_every_element(local: Path, exported: Path) -> None:
    config = adapters.config_of(local / "base")
    update = adapters.adapter_tensors(config)
    modules = adapters.modules_of(config, adapters.OPEN_JEV_TARGETS)
    for name, shape in BackboneShape.from_config(config).tensors():
        _, stored = adapters.base_tensor(local / "base", name)
        _, found = adapters.base_tensor(exported, name)
        module = name.removesuffix(".weight")
        if module in modules:
            a, b = update[f"{module}.lora_A.weight"], update[f"{module}.lora_B.weight"]
            assert not np.array_equal(stored, found)
            stored = adapters.merged(stored, a, b, 2.0)
        assert found.shape == shape
        assert_same_bits(found, stored)


def test_serving_the_export_and_merging_at_load_give_the_same_bits(local: Path, exported: Path) -> None:
    ids = (np.arange(300, dtype=np.int32) * 7919) % 900
    offsets = np.array([0, 1, 64, 190, 300], np.int64)
    path, arguments = source_of(local).engine_arguments()
    at_load = Engine(path, threads=1, **arguments)
    merged = Engine(str(exported), threads=1)
    assert_same_bits(at_load.score(ids, offsets), merged.score(ids, offsets))
    assert_same_bits(at_load.last_hidden(ids, offsets), merged.last_hidden(ids, offsets))


def test_t09_answers_and_temperature_are_those_of_the_package(local: Path, exported: Path) -> None:
    answers = []
    for folder in (local, exported):
        model = openjev.load(folder, device="cpu")
        decision = model.decide("Where is my parcel?", QUESTIONS).to_dict()
        said = decision["x_openjev"]
        assert said["temperature"] == adapters.TEMPERATURE
        assert said["checkpoint"] == {"id": "someone/Judge", "revision": "c" * 40}
        assert said["base"] == {"id": "someone/base", "revision": "b" * 40}
        answers.append(decision["answers"])
    assert answers[0] == answers[1]
    logits = openjev.load(local, device="cpu")
    prepared = logits.prepare({"state": "Hi", "questions": {"late": QUESTIONS["late"]}})
    score = float(logits.execute([prepared])[0][0, 0])
    answer = logits.finish(prepared, logits.execute([prepared])[0])["late"]
    assert isinstance(answer, openjev.NoulAnswer)
    assert answer.noul == pytest.approx(1 / (1 + math.exp(-score / adapters.TEMPERATURE)), abs=1e-12)


def test_the_manifest_lists_every_file_with_its_hash(exported: Path) -> None:
    manifest = json.loads((exported / "decision.json").read_text())
    assert set(manifest["files"]) == {p.name for p in exported.iterdir()} - {"decision.json"}
    for name, entry in manifest["files"].items():
        assert entry == {"bytes": (exported / name).stat().st_size, "sha256": sha256_of(exported / name)}


def test_compat_is_the_same_model_for_older_readers(exported: Path, tmp_path: Path) -> None:
    older = adapters.copy_of(exported, tmp_path / "older")
    for name in ("decision.json", "readout.safetensors"):
        (older / name).unlink()
    ids, offsets = np.arange(70, dtype=np.int32), np.array([0, 70], np.int64)
    new, old = Engine(str(exported), threads=1), Engine(str(older), threads=1)
    assert old.info["format"] == "open-jev-text-merged/1"
    assert_same_bits(old.score(ids, offsets), new.score(ids, offsets))
    assert old.info["temperature"] == new.info["temperature"]


def test_shards_are_runs_below_the_limit(exported: Path) -> None:
    sources = [TensorSource(str(n), "BF16", (n,), list) for n in (1, 2, 50, 3, 4)]
    runs = [[item.name for item in run] for run in split_by_bytes(sources, 10)]
    assert runs == [["1", "2"], ["50"], ["3"], ["4"]]
    index = json.loads((exported / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == len(list(exported.glob("model-*.safetensors"))) > 5


@pytest.fixture
def small(tmp_path: Path) -> AdaptedBase:
    return source_of(adapters.write_local_model(tmp_path / "model"))


def test_an_interrupted_export_is_resumed_and_ends_the_same(
    small: AdaptedBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = export(small, tmp_path / "whole", shard_bytes=SMALL)
    out = tmp_path / "out"
    calls: list[str] = []

    def stop(done: int, total: int, what: str) -> None:
        if len(set(calls)) == 4:
            raise KeyboardInterrupt
        calls.append(what)

    with pytest.raises(KeyboardInterrupt):
        export(small, out, shard_bytes=SMALL, progress=stop)
    assert not out.exists()
    finished = sorted((tmp_path / "out.partial").glob("*.safetensors"))
    assert len(finished) == 3
    finished[1].write_bytes(b"\0" * finished[1].stat().st_size)  # damaged since: written again

    written: list[str] = []
    write = export_module.write_safetensors

    def count(path: Path, *args: Any, **kwargs: Any) -> Any:
        written.append(path.name)
        return write(path, *args, **kwargs)

    monkeypatch.setattr(export_module, "write_safetensors", count)
    export(small, out, shard_bytes=SMALL)
    assert finished[0].with_suffix(".unfinished").name not in written
    assert finished[1].with_suffix(".unfinished").name in written
    assert {p.name: sha256_of(p) for p in out.iterdir()} == {p.name: sha256_of(p) for p in whole.iterdir()}
    assert not (tmp_path / "out.partial").exists()


def test_what_another_export_left_behind_is_not_used(small: AdaptedBase, tmp_path: Path) -> None:
    def stop(done: int, total: int, what: str) -> None:
        if done > SMALL:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(small, tmp_path / "out", shard_bytes=SMALL, progress=stop)
    config = adapters.config_of(small.base)
    other = adapters.write_package(tmp_path / "other", config, seed=9)
    source = AdaptedBase(small.base, read_package(other))
    export(source, tmp_path / "out", shard_bytes=SMALL)
    export(source, tmp_path / "fresh", shard_bytes=SMALL)
    for path in (tmp_path / "fresh").iterdir():
        assert sha256_of(path) == sha256_of(tmp_path / "out" / path.name)


def test_progress_counts_every_byte_once(small: AdaptedBase, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    export(small, tmp_path / "out", progress=lambda done, total, _: seen.append((done, total)))
    dones = [done for done, _ in seen]
    assert dones == sorted(set(dones))
    assert seen[-1][0] == seen[-1][1] > (tmp_path / "out" / "model.safetensors").stat().st_size * 0.99


def test_export_onto_something_is_refused(small: AdaptedBase, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match=r"out: found a file or folder of that name"):
        export(small, tmp_path / "out")


def test_export_says_how_much_disk_is_missing_before_it_writes(
    small: AdaptedBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1_000_000))
    with pytest.raises(CheckpointError, match=r"out: found 0\.0 GB free .* allowed: 0\.1 GB or more"):
        export(small, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("**/*.unfinished"))


def test_letters_of_a_tied_base_are_its_embedding_rows(tmp_path: Path) -> None:
    base = adapters.write_base(tmp_path / "base")
    row = next(known for known in checkpoints.CHECKPOINTS if known.family == "cua-s1")
    config = adapters.config_of(base)
    tensors = adapters.adapter_tensors(config, rank=16, targets=adapters.CUA_TARGETS)
    named = adapters.adapter_config(16, adapters.CUA_TARGETS, base_model_name_or_path=row.base_id)
    package = adapters.write_adapter(tmp_path / "text", tensors, named, prefix="base_model.model.model.")
    source = AdaptedBase(base, read_package(package))
    weight, bias = source.readout()
    _, embedding = adapters.base_tensor(base, "embed_tokens.weight")
    assert bias.size == 0
    assert_same_bits(weight, adapters.from_bf16_bits(embedding[32:58]))
    with pytest.raises(CheckpointError, match=r"hidden_size: found 256, allowed for cua-s1-4b: 2560"):
        source.check()


def test_letters_of_an_untied_base_are_refused(tmp_path: Path) -> None:
    base = adapters.write_base(tmp_path / "base", tied=False)
    named = adapters.adapter_config(16, adapters.CUA_TARGETS, base_model_name_or_path="Qwen/Qwen3.5-4B")
    tensors = adapters.adapter_tensors(adapters.config_of(base), rank=16, targets=adapters.CUA_TARGETS)
    package = adapters.write_adapter(tmp_path / "text", tensors, named)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings: found False"):
        AdaptedBase(base, read_package(package)).readout()
