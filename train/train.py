"""Trains the demonstration checkpoint: `python -m train.train OUT --seconds 400`.

1. A base from scratch on decision data: the loss of the decision over all candidates of a question, and some
   next-token loss; words of states are replaced and layers drop out, against learning sentences by heart.
2. The base in bfloat16 and frozen, a LoRA adapter and a new scalar head. 3. A temperature on the validation
   rows. Decisions are trained by negative log-likelihood plus Brier score.

OUT gets base/, package/ and record.json; base/ is rewritten at every better validation, so an interrupted
run leaves its best.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from openjev.calibration import fit_temperature, negative_log_likelihood
from openjev.small_tokenizer import train_tokenizer
from train.batches import Batch, Batches, decision_loss, with_noise
from train.data.generate import SEED, SIZES, examples
from train.delta import batched_rules
from train.encode import Encoded, encode_split, prompt_parts
from train.evaluate import figures, load_unmerged, question_logits
from train.model import add_dropout, build, new_head
from train.package import BASE_ID, file_sha256, write_base, write_json, write_package

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj"]


@dataclass
class Run:
    """Settings of a run, its clock and its record."""

    args: argparse.Namespace
    device: torch.device
    begun: float = field(default_factory=time.monotonic)
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def note(self, stage: str, **values: Any) -> None:
        """Adds a point to the curve of a stage, prints it and writes the record."""
        point = {"seconds": round(self.elapsed, 1), **values}
        self.record.setdefault("curves", {}).setdefault(stage, []).append(point)
        print(stage, point, flush=True)
        write_json(self.args.out / "record.json", self.record)


def prepare(run: Run) -> tuple[dict[str, Encoded], Path]:
    """Tokenizer and encoded splits; "adapter" are further training rows."""
    args = run.args
    tokenizer_file = args.out / "base" / "tokenizer.json"
    tokenizer_file.parent.mkdir(parents=True, exist_ok=True)
    rows = min(args.tokenizer_rows, args.rows)
    texts = (
        head + rest
        for parts in prompt_parts(examples("train", 0, rows, args.seed))
        for head, rest in parts[:1]
    )
    train_tokenizer(texts, args.vocabulary).save(str(tokenizer_file), pretty=False)
    run.note("data", tokenizer_sha256=file_sha256(tokenizer_file))
    data, hashes = {}, {}
    parts: dict[str, tuple[Any, int, int]] = {
        "train": ("train", 0, args.rows),
        "adapter": ("train", args.rows, args.rows + args.rows // 4),
        "validation": ("validation", 0, min(SIZES["validation"], args.held_out)),
        "test": ("test", 0, min(SIZES["test"], args.held_out)),
    }
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(args.workers, os.cpu_count() or 1), mp_context=context) as pool:
        for name, (split, start, stop) in parts.items():
            data[name], hashes[name] = encode_split(pool, split, start, stop, args.seed, tokenizer_file)
            sizes = {"questions": data[name].questions, "tokens": len(data[name].tokens)}
            run.note("data", part=name, sha256=hashes[name], **sizes)
    return data, tokenizer_file


def _autocast(device: torch.device) -> Any:
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def _forever(batches: Batches, tokens: int, rng: np.random.Generator) -> Iterator[Batch]:
    while True:
        yield from batches.epoch(tokens, rng)


def _rate(done: float, warm: float = 0.03) -> float:
    """The learning rate's share of its peak when `done` of the stage has passed: up, then down to zero."""
    return done / warm if done < warm else max(0.0, (1 - done) / (1 - warm))


def optimise(
    run: Run,
    stage: str,
    until: float,
    batches: Iterator[Batch],
    groups: list[dict[str, Any]],
    loss_of: Callable[[Batch], torch.Tensor],
    check: Callable[[int], None],
) -> None:
    """Steps until `until` seconds of the run; the learning rate follows the clock. `check` is called now and
    then and at the end."""
    device, start, steps, checked = run.device, run.elapsed, 0, run.elapsed
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=device.type == "cuda")
    peaks = [group["lr"] for group in optimizer.param_groups]
    parameters = [value for group in groups for value in group["params"]]
    total = torch.zeros((), device=device)
    for batch in batches:
        done = (run.elapsed - start) / max(1e-6, until - start)
        if done >= 1 or steps >= run.args.steps:
            break
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * _rate(done)
        loss = loss_of(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        total += loss.detach()
        steps += 1
        if steps % 50 == 0:
            run.note(stage, step=steps, loss=round(float(total) / 50, 4))
            total.zero_()
            if run.elapsed - checked > run.args.check_seconds:
                check(steps)
                checked = run.elapsed
    check(steps)


def _groups(model: Any, head: torch.nn.Linear, rate: float, head_rate: float) -> list[dict[str, Any]]:
    trained = [value for value in model.parameters() if value.requires_grad]
    return [
        {"params": [value for value in trained if value.ndim >= 2], "lr": rate, "weight_decay": 0.05},
        {"params": [value for value in trained if value.ndim < 2], "lr": rate, "weight_decay": 0.0},
        {"params": list(head.parameters()), "lr": head_rate, "weight_decay": 0.0},
    ]


def _last(hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
    return hidden[torch.arange(len(batch.last), device=hidden.device), batch.last].float()


def train_base(run: Run, data: dict[str, Encoded], until: float) -> None:
    """Stage 1; base/ is the best on validation by negative log-likelihood at the best temperature."""
    args, device = run.args, run.device
    shape = {name: getattr(args, name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    model = build(args.vocabulary, **shape).to(device)
    add_dropout(model, args.dropout)
    head = new_head(args.hidden_size).to(device)
    rng = np.random.default_rng(args.seed)
    run.record["parameters"] = sum(value.numel() for value in model.parameters())
    best = float("inf")

    def loss_of(batch: Batch) -> torch.Tensor:
        ids = with_noise(batch, args.noise, args.vocabulary)
        with _autocast(device):
            hidden = model(input_ids=ids, use_cache=False).last_hidden_state
            some = torch.randperm(len(ids), device=device)[: max(1, len(ids) // 8)]
            words = hidden[some, :-1] @ model.embed_tokens.weight.T
        columns = torch.arange(1, ids.shape[1], device=device)
        next_ids = torch.where(columns <= batch.last[some, None], batch.ids[some, 1:], -100)
        text = F.cross_entropy(words.float().flatten(0, 1), next_ids.flatten())
        decision = decision_loss(batch.table(head(_last(hidden, batch))[:, 0]), batch.targets, 1.0)
        return decision + args.text_weight * text

    def check(step: int) -> None:
        nonlocal best
        model.eval()
        with _autocast(device):
            loss = _validate(run, "base", step, model, head, data["validation"])
        model.train()
        if loss < best:
            best = loss
            write_base(args.out / "base", model, model.state_dict())

    batches = _forever(Batches(data["train"], device), args.tokens, rng)
    optimise(run, "base", until, batches, _groups(model, head, args.rate, args.rate), loss_of, check)


def _validate(run: Run, stage: str, step: int, model: Any, head: torch.nn.Linear, data: Encoded) -> float:
    logits = question_logits(model, head, data, run.device, run.args.tokens)
    targets = data.targets.tolist()
    temperature = fit_temperature(logits, targets)
    loss = negative_log_likelihood(logits, targets, temperature)
    found = figures(logits, data, temperature)
    kept = {name: found[name] for name in ("accuracy", "noul_and_choice", "ece", "score_mae")}
    domains = {name: round(part["accuracy"], 3) for name, part in found["by_domain"].items()}
    shown = {"temperature": round(temperature, 3), "domains": domains, **kept}
    run.note(stage, step=step, validation_loss=round(loss, 4), **shown)
    return loss


def train_adapter(run: Run, data: dict[str, Encoded], until: float) -> None:
    """Stage 2 and 3 on the written base; package/ is what the last step gives."""
    from peft import LoraConfig, get_peft_model
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    args, device = run.args, run.device
    base: Any = Qwen3_5TextModel.from_pretrained(args.out / "base", dtype=torch.bfloat16).to(device)
    lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, bias="none", target_modules=LORA_TARGETS)
    model: Any = get_peft_model(base, lora)
    head = new_head(base.config.hidden_size).to(device)

    def loss_of(batch: Batch) -> torch.Tensor:
        ids = with_noise(batch, args.noise / 2, args.vocabulary)
        hidden = model(input_ids=ids, use_cache=False).last_hidden_state
        return decision_loss(batch.table(head(_last(hidden, batch))[:, 0]), batch.targets, 1.0)

    def check(step: int) -> None:
        model.eval()
        _validate(run, "adapter", step, model, head, data["validation"])
        model.train()

    batches = _forever(Batches(data["adapter"], device), args.tokens, np.random.default_rng(args.seed + 1))
    optimise(run, "adapter", until, batches, _groups(model, head, args.lora_rate, 1e-2), loss_of, check)
    model.eval()
    logits = question_logits(model, head, data["validation"], device, args.tokens)
    temperature = fit_temperature(logits, data["validation"].targets.tolist())
    facts = {
        "temperature": temperature,
        "split": "validation",
        "n": data["validation"].questions,
        "data_sha256": next(
            p["sha256"] for p in run.record["curves"]["data"] if p.get("part") == "validation"
        ),
    }
    model.peft_config["default"].base_model_name_or_path = BASE_ID
    revision = f"seed-{args.seed}"
    write_package(args.out / "package", model, head, revision, facts)


def test_package(run: Run, data: Encoded) -> None:
    """The written files read back, by Transformers' own functions and PEFT, on the test."""
    model, head, temperature = load_unmerged(run.args.out, run.device)
    logits = question_logits(model, head, data, run.device, run.args.tokens)
    run.record["test"] = figures(logits, data, temperature)
    kept = {name: value for name, value in run.record["test"].items() if name != "reliability"}
    run.note("test", **kept)
    report = {"temperature": temperature, "logits": [one.tolist() for one in logits]}
    write_json(run.args.out / "test_logits.json", report)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=400, help="for everything; the test takes what is left"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--rows", type=int, default=SIZES["train"], help="training rows; a quarter more for the adapter"
    )
    parser.add_argument("--held-out", type=int, default=4_000, help="most rows of validation and test")
    parser.add_argument("--tokenizer-rows", type=int, default=20_000)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--intermediate-size", type=int, default=512)
    parser.add_argument("--num-hidden-layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32_768, help="padded tokens of a batch")
    parser.add_argument("--steps", type=int, default=1_000_000, help="most steps of a stage")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--lora-rate", type=float, default=1e-3)
    parser.add_argument(
        "--noise", type=float, default=0.1, help="mean share of words of a state replaced in training"
    )
    parser.add_argument("--dropout", type=float, default=0.1, help="of what a layer adds, in the base")
    parser.add_argument("--text-weight", type=float, default=0.1, help="weight of the next-token loss")
    parser.add_argument("--check-seconds", type=float, default=20)
    parser.add_argument("--workers", type=int, default=16)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.manual_seed(args.seed)
    run = Run(args, torch.device("cpu"))
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    settings.pop("out")
    run.record["settings"] = {**settings, "torch": torch.__version__}
    data, tokenizer_file = prepare(run)
    vocabulary = Tokenizer.from_file(str(tokenizer_file)).get_vocab_size()
    if vocabulary > args.vocabulary:
        raise ValueError(
            f"--vocabulary: found {args.vocabulary}, allowed: at least the tokenizer's {vocabulary}"
        )
    # Only now: processes that are forked must not have touched the GPU.
    run.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    reserve = 0.04 * args.seconds
    adapter_seconds = 0.14 * args.seconds
    with batched_rules():
        train_base(run, data, args.seconds - reserve - adapter_seconds)
        train_adapter(run, data, args.seconds - reserve)
    test_package(run, data["test"])


if __name__ == "__main__":
    main()
