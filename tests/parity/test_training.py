"""The arithmetic of training against Transformers and autograd, and what training writes, read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from train import delta
from train.batches import Batches, decision_loss, with_noise
from train.data.generate import examples
from train.encode import Encoded, encode, prompt_parts
from train.evaluate import load_unmerged, question_logits
from train.model import build, new_head
from train.package import write_base, write_package
from train.train import LORA_TARGETS
from transformers.models.qwen3_5 import modeling_qwen3_5

from openjev.package import read_package
from openjev.small_tokenizer import train_tokenizer

CPU = torch.device("cpu")
VOCABULARY = 600
SHAPE = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4}

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    parts = prompt_parts(examples("train", 0, 100))
    return train_tokenizer((head + rest for prompts in parts for head, rest in prompts[:1]), VOCABULARY)


@pytest.fixture(scope="module")
def data(tokenizer: Tokenizer) -> Encoded:
    return encode(list(examples("test", 0, 40)), tokenizer)


def seeded_model() -> Any:
    torch.manual_seed(3)
    return build(VOCABULARY, **SHAPE)


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_unit_lower_inverse_is_the_inverse_and_has_its_gradient(size: int) -> None:
    torch.manual_seed(size)
    lower = (0.3 * torch.randn(3, size, size, dtype=torch.float64)).tril(-1).requires_grad_()
    weights = torch.randn(3, size, size, dtype=torch.float64)
    ours = delta.UnitLowerInverse.apply(lower)
    exact = torch.linalg.inv(torch.eye(size, dtype=torch.float64) + lower.tril(-1))
    torch.testing.assert_close(ours, exact)
    got, want = (torch.autograd.grad((x * weights).sum(), lower)[0] for x in (ours, exact))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 150])
def test_batched_delta_rule_equals_transformers_with_all_gradients(length: int) -> None:
    torch.manual_seed(length)
    batch, key_heads, heads, width = 2, 2, 4, 16
    query, key = (torch.randn(batch, length, key_heads, width) for _ in range(2))
    value = torch.randn(batch, length, heads, width)
    g = -torch.rand(batch, length, heads).mul(3).exp().div(20)
    beta = torch.rand(batch, length, heads)
    inputs = [x.requires_grad_() for x in (query, key, value, g, beta)]
    weights = torch.randn(batch, length, heads, width)
    rules = (delta.chunk_gated_delta_rule, modeling_qwen3_5.torch_chunk_gated_delta_rule)
    ours, theirs = (
        rule(query, key, value, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0] for rule in rules
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (ours, theirs)]
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_a_recurrent_state_or_a_bias_is_refused() -> None:
    x = torch.zeros(1, 1, 1, 4)
    with pytest.raises(ValueError, match="found a recurrent state"):
        delta.chunk_gated_delta_rule(x, x, x, x[..., 0], x[..., 0], output_final_state=True)
    with pytest.raises(ValueError, match="found a bias"):
        delta.causal_conv1d(torch.zeros(1, 2, 3), torch.zeros(2, 4), torch.zeros(2))


def test_the_backbone_is_the_same_inside_batched_rules_and_the_rules_are_put_back() -> None:
    model = seeded_model().eval()
    ids = torch.randint(0, VOCABULARY, (2, 70), generator=torch.Generator().manual_seed(1))
    names = ("torch_chunk_gated_delta_rule", "causal_conv1d_fn")
    before = [getattr(modeling_qwen3_5, name) for name in names]
    results = []
    with delta.batched_rules():
        results.append(_hidden_and_gradient(model, ids))
    assert [getattr(modeling_qwen3_5, name) for name in names] == before
    results.append(_hidden_and_gradient(model, ids))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-4)


def _hidden_and_gradient(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = model(input_ids=ids, use_cache=False).last_hidden_state
    (gradient,) = torch.autograd.grad(hidden[:, -1, 0].sum(), model.layers[0].linear_attn.conv1d.weight)
    return hidden.detach(), gradient


@pytest.mark.parametrize("shuffled", [False, True])
def test_an_epoch_has_every_question_once_with_the_tokens_of_its_prompts(
    data: Encoded, shuffled: bool
) -> None:
    rng = np.random.default_rng(0) if shuffled else None
    seen: list[int] = []
    for batch in Batches(data, CPU).epoch(4_096, rng):
        seen += batch.rows.tolist()
        prompts = np.concatenate([np.arange(data.first[row], data.first[row + 1]) for row in batch.rows])
        assert batch.ids.shape[1] % delta.CHUNK == 0
        assert batch.ids.numel() <= 4_096 or len(batch.rows) == 1
        for ids, last, prompt in zip(batch.ids, batch.last, prompts, strict=True):
            want = data.tokens[data.offsets[prompt] : data.offsets[prompt + 1]]
            assert ids[: last + 1].tolist() == want.tolist()
    assert sorted(seen) == list(range(data.questions))


def test_the_table_holds_each_score_once_and_a_noul_as_zero_and_its_score(data: Encoded) -> None:
    for batch in Batches(data, CPU).epoch(4_096):
        scores = torch.arange(1.0, len(batch.ids) + 1)
        table = batch.table(scores)
        finite = table[torch.isfinite(table)]
        assert finite[finite != 0].tolist() == scores.tolist()
        assert (table[batch.nouls, 0] == 0).all()
        assert torch.isfinite(table.gather(1, batch.targets[:, None])).all()


def test_loss_is_the_log_likelihood_plus_the_weighted_brier_score() -> None:
    # p = (1/4, 3/4), right is the second: -ln(3/4) and 1/16 + 1/16.
    logits = torch.tensor([[0.0, float(np.log(3)), float("-inf")]])
    loss = decision_loss(logits, torch.tensor([1]), 2.0)
    assert loss.item() == pytest.approx(-np.log(0.75) + 2 * 0.125)


def test_noise_leaves_questions_and_single_bytes_alone(data: Encoded) -> None:
    torch.manual_seed(0)
    batch = next(iter(Batches(data, CPU).epoch(4_096)))
    changed = with_noise(batch, 1.0, VOCABULARY) != batch.ids
    columns = torch.arange(batch.ids.shape[1])
    assert changed.any()
    assert not changed[(columns >= batch.states[:, None]) | (batch.ids < 256)].any()


def test_written_base_and_package_read_back_to_the_same_logits(
    tmp_path: Path, tokenizer: Tokenizer, data: Encoded
) -> None:
    seeded = seeded_model()
    write_base(tmp_path / "base", seeded, seeded.state_dict())
    base: Any = modeling_qwen3_5.Qwen3_5TextModel.from_pretrained(tmp_path / "base", dtype=torch.bfloat16)
    tokenizer.save(str(tmp_path / "base" / "tokenizer.json"))
    model: Any = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=LORA_TARGETS)).eval()
    head = new_head(SHAPE["hidden_size"])
    with torch.no_grad():
        head.weight.normal_()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.05)
    facts = {"temperature": 1.5, "split": "validation", "n": 4, "data_sha256": "0" * 64}
    write_package(tmp_path / "package", model, head, "seed-3", facts)

    package = read_package(tmp_path / "package")
    assert package.temperature == 1.5
    read, read_head, temperature = load_unmerged(tmp_path, CPU)
    assert temperature == 1.5
    few = encode(list(examples("test", 0, 3)), tokenizer)
    with delta.batched_rules():
        got = question_logits(read, read_head, few, CPU, 1_024)
        want = question_logits(model, head, few, CPU, 1_024)
    assert len(got) == few.questions
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.ptp(one) > 0
