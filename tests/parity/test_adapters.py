"""PEFT and ours on the same bases and adapters: merged weights in every bit, scores within a stated bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from openjev._runtime import Engine
from openjev.export import export
from tests.compare import assert_same_bits, relative_l2
from tests.parity import adapted, hf, tiny_models

# Merged bfloat16 weights against the adapter in float32 beside the base, both computed in float32: what
# rounding the merged weights costs. Relative L2 of the final-norm vector.
MERGED_TO_UNMERGED = 0.02

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=list(adapted.CASES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> adapted.Adapted:
    return adapted.write_adapted(tmp_path_factory.mktemp(request.param), adapted.CASES[request.param])


@pytest.fixture(scope="module")
def exported(made: adapted.Adapted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(made.source, tmp_path_factory.mktemp("export") / "out", shard_bytes=300_000)


def ours(made: adapted.Adapted) -> Engine:
    path, arguments = made.source.engine_arguments()
    return Engine(path, threads=1, **arguments)


def batch(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ids, np.array([0, ids.size], np.int64)


def last_hidden(made: adapted.Adapted, model: Any, ids: np.ndarray) -> np.ndarray:
    """Final-norm vector of the last token, float32."""
    text = model.get_base_model()
    text = text.model if made.case.layout == "causal" else text
    with torch.no_grad():
        out = text(input_ids=torch.as_tensor(ids.astype(np.int64))[None], use_cache=False)
    rows: np.ndarray = out.last_hidden_state[0, -1].float().numpy()
    return rows


def test_every_element_of_the_export_has_the_bits_of_pefts_merge(
    made: adapted.Adapted, exported: Path
) -> None:
    want = made.peft_merged()
    seen = 0
    for file in sorted(exported.glob("model*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                got, expected = tensors.get_tensor(name), want[name]
                assert got.dtype == torch.bfloat16 and got.shape == expected.shape, name
                assert torch.equal(got.view(torch.int16), expected.to(torch.bfloat16).view(torch.int16)), name
                seen += 1
    assert seen == len(want)


def test_the_adapter_changes_what_it_names_and_nothing_else(made: adapted.Adapted, exported: Path) -> None:
    plain = adapted.load_base(made.base, made.case, torch.bfloat16)
    text = plain.model if made.case.layout == "causal" else plain
    want = made.peft_merged()
    for name, tensor in text.state_dict().items():
        named = name.removesuffix(".weight").rsplit(".", 1)[-1] in made.case.targets
        assert torch.equal(tensor, want[name]) != named, name


def test_transformers_opens_the_export_and_finds_the_same_weights(
    made: adapted.Adapted, exported: Path
) -> None:
    model = hf.load(exported, torch.bfloat16)
    want = made.peft_merged()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, want[name].to(torch.bfloat16)), name


def test_merging_at_load_and_the_export_score_the_same_bits(made: adapted.Adapted, exported: Path) -> None:
    at_load, merged = ours(made), Engine(str(exported), threads=1)
    for length in tiny_models.LENGTHS:
        tokens = batch(made.seeded.token_ids(length, stream=length))
        assert_same_bits(at_load.score(*tokens), merged.score(*tokens))


def test_unmerged_transformers_and_our_merged_scores(
    made: adapted.Adapted, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours computes merged bfloat16 weights in float32; theirs the same base and adapter unmerged."""
    engine = ours(made)
    exact, rounded = made.unmerged(torch.float32), made.unmerged(torch.bfloat16)
    weight, bias = made.source.readout()
    lines = []
    for length in tiny_models.LENGTHS:
        ids = made.seeded.token_ids(length, stream=length)
        got, scores = engine.last_hidden(*batch(ids))[0], engine.score(*batch(ids))[0]
        want, low = (last_hidden(made, model, ids) for model in (exact, rounded))
        distance, noise = relative_l2(got, want), relative_l2(low, want)
        reference = weight @ want + (bias if bias.size else 0)
        change = float(np.abs(scores - reference).max())
        lines.append(f"  {length:4d} tokens: {distance:.1e} | {noise:.1e} | {change:.1e}")
        assert distance < MERGED_TO_UNMERGED
        assert change <= MERGED_TO_UNMERGED * float(
            np.linalg.norm(want) * np.linalg.norm(weight, axis=1).max()
        )
    with capsys.disabled():
        print(f"\n{made.case.name}: merged to fp32 unmerged | bf16 unmerged to it | change of a score")
        print("\n".join(lines))


def test_without_the_second_rounding_bits_would_differ(made: adapted.Adapted) -> None:
    """PEFT's merge without its safety check rounds once; the stated formula is the one with the check."""
    once = made.unmerged(torch.bfloat16).merge_and_unload(safe_merge=False)
    text = once.model if made.case.layout == "causal" else once
    want = made.peft_merged()
    differing = [name for name, tensor in text.state_dict().items() if not torch.equal(tensor, want[name])]
    assert differing
    assert all(name.removesuffix(".weight").rsplit(".", 1)[-1] in made.case.targets for name in differing)
