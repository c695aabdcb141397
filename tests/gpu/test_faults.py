"""What cannot be done on a CUDA device is refused in a sentence that names it; the engine stays usable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openjev._runtime import Engine
from openjev.errors import BadRequestError, LimitError, OutOfDeviceMemoryError
from tests.compare import assert_same_bits
from tests.gpu.support import Engines, ids, logits, needs_cuda, packed

pytestmark = needs_cuda


def test_a_model_larger_than_the_device_is_refused_with_figures(engines: Engines, tmp_path: Path) -> None:
    """Two terabytes of weights, made up on the device: nothing of it is allocated before the refusal."""
    config = json.loads((engines.folder / "config.json").read_text())
    config |= {"hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 256}
    config["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * 64
    (tmp_path / "config.json").write_text(json.dumps(config))
    free = engines.cuda().memory()["free"]
    figures = r"[\d.]+ GiB are needed \(weights [\d.]+ GiB.*[\d.]+ GiB of [\d.]+ GiB are free"
    with pytest.raises(OutOfDeviceMemoryError, match=figures):
        Engine(str(tmp_path), device="cuda", load_format="dummy")
    assert engines.cuda().memory()["free"] >= free - (256 << 20), "a context's worth at most"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph_mode": "always"}, "graph_mode always.*eager, exact and bucketed"),
        ({"matmul_mode": "quick"}, "matmul_mode quick.*invariant and fast"),
        ({"load_format": "gguf"}, "load_format gguf.*auto and dummy"),
        ({"graph_entries": -1}, "graph_entries -1"),
        ({"device_index": 999}, "999"),
    ],
)
def test_an_unknown_option_is_refused_with_the_allowed_ones(
    engines: Engines, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message) as refused:
        engines.fresh(**options)
    assert type(refused.value).__module__ == "openjev.errors"


@pytest.mark.parametrize("graph_mode", ["eager", "exact", "bucketed"])
def test_bad_tokens_leave_the_engine_usable(engines: Engines, graph_mode: str) -> None:
    engine, prompt = engines.cuda(graph_mode=graph_mode), [ids(6, 107)]
    want = logits(engine, prompt)
    vocabulary, longest = engine.info["vocab_size"], engine.info["max_length"]
    for bad in (vocabulary, -1):
        tokens = ids(6, 107)
        tokens[50] = bad
        with pytest.raises(BadRequestError, match=str(bad)):
            logits(engine, [tokens])
        assert_same_bits(logits(engine, prompt), want)
    with pytest.raises(LimitError, match=str(longest)):
        logits(engine, [ids(6, longest + 1)])
    with pytest.raises(BadRequestError, match="offsets"):
        engine.score(packed(prompt)[0], np.array([0, 0, 107], np.int64))
    assert_same_bits(logits(engine, prompt), want)


def test_a_prefix_of_another_engine_is_refused(engines: Engines) -> None:
    prefix = engines.cuda(graph_mode="eager").keep_prefix(ids(6, 64))
    with pytest.raises(BadRequestError, match="another engine"):
        logits(engines.cuda(graph_mode="bucketed"), [ids(6, 5)], prefix=prefix)


def test_seeded_weights_are_those_of_the_cpu(engines: Engines, tmp_path: Path) -> None:
    """A model without a checkpoint: a seed gives the same answers on both devices, another seed others."""
    (tmp_path / "config.json").write_bytes((engines.folder / "config.json").read_bytes())
    prompt = packed([ids(6, 107)])

    def score(device: str, seed: int) -> np.ndarray:
        return Engine(str(tmp_path), device=device, load_format="dummy", seed=seed).last_hidden(*prompt)

    one, cpu, other = score("cuda", 1), score("cpu", 1), score("cuda", 2)
    assert np.linalg.norm(one - cpu) <= 5e-2 * np.linalg.norm(cpu)
    assert np.linalg.norm(one - other) >= 0.5 * np.linalg.norm(one)


def test_a_tuning_file_that_cannot_be_used_is_named_and_changes_nothing(
    engines: Engines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "measured.txt"
    file.write_bytes(b"openjev-matmul-tuning 4\nkey \xff\x00\n")
    engine = engines.fresh(tuning_file=str(file))
    said = capfd.readouterr().err
    assert f"openjev: matmul: tuning file ignored: {file}: it was written for 'key ??'" in said
    sequence = [ids(3, 50)]
    assert_same_bits(logits(engine, sequence), logits(engines.fresh(), sequence))
