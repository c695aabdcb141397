"""Bases and real PEFT adapters for the parity tests, made by Transformers and PEFT in their own layouts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextModel,
)

from openjev.package import Package, read_package
from openjev.small_tokenizer import build_tokenizer
from openjev.sources import AdaptedBase
from tests.adapters import CUA_TARGETS, OPEN_JEV_TARGETS
from tests.parity import tiny_models

TEMPERATURE = 1.9


@dataclasses.dataclass(frozen=True)
class Case:
    """How a base is stored and adapted. `layout`: text, original (with vision and MTP tensors) or causal."""

    name: str
    model: str
    layout: str
    tied: bool
    rank: int
    targets: Sequence[str]


CASES = {
    case.name: case
    for case in (
        Case("2b-like", "tiny", "text", True, 8, OPEN_JEV_TARGETS),
        Case("9b-like", "tiny", "original", False, 8, OPEN_JEV_TARGETS),
        Case("27b-like", "tiny_r3", "original", False, 8, OPEN_JEV_TARGETS),
        Case("published-head-dims", "tiny_hd", "text", True, 8, OPEN_JEV_TARGETS),
        Case("cua-like", "tiny", "causal", True, 16, CUA_TARGETS),
    )
}


@dataclasses.dataclass(frozen=True)
class Adapted:
    """`source` is ours; `folder` is the base's. PEFT opens the same two."""

    case: Case
    seeded: tiny_models.SeededModel
    source: AdaptedBase

    @property
    def base(self) -> Path:
        return self.source.base

    @property
    def package(self) -> Package:
        return self.source.package

    def unmerged(self, dtype: torch.dtype) -> Any:
        """The reference's model: base in `dtype`, adapter beside it in float32."""
        peft = PeftModel.from_pretrained(load_base(self.base, self.case, dtype), self.package.adapter)
        return peft.eval()

    def peft_merged(self) -> dict[str, torch.Tensor]:
        """PEFT's merge of the bfloat16 base; names without prefix."""
        merged = self.unmerged(torch.bfloat16).merge_and_unload(safe_merge=True)
        text = merged.model if self.case.layout == "causal" else merged
        return {name: tensor.detach() for name, tensor in text.state_dict().items()}


def load_base(folder: Path, case: Case, dtype: torch.dtype) -> Any:
    """What the adapter is put on: the text model of Open-Jev's recipe, the causal model of Cua-S1's."""
    if case.layout == "text":
        return Qwen3_5TextModel.from_pretrained(folder, dtype=dtype).eval()
    if case.layout == "causal":
        return Qwen3_5ForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    full = Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    return full.model.language_model.eval()


def write_adapted(root: Path, case: Case) -> Adapted:
    seeded = tiny_models.MODELS[case.model]
    seeded = dataclasses.replace(seeded, config={**seeded.config, "tie_word_embeddings": case.tied})
    base = _write_base(root / "base", case, seeded)
    (base / "tokenizer.json").write_text(build_tokenizer().to_str())
    config = LoraConfig(
        r=case.rank,
        lora_alpha=2 * case.rank,
        lora_dropout=0.0,
        bias="none",
        target_modules=list(case.targets),
    )
    torch.manual_seed(5)
    peft = get_peft_model(load_base(base, case, torch.bfloat16), config)
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.02)
    checkpoint = root / "package" / "checkpoint"
    if case.layout == "causal":
        peft.peft_config["default"].base_model_name_or_path = "Qwen/Qwen3.5-4B"
        peft.save_pretrained(root / "text")
        # It is Cua-S1's in everything but size.
        package = dataclasses.replace(read_package(root), row=None)
    else:
        peft.save_pretrained(checkpoint / "adapter")
        _write_head(checkpoint, seeded, case)
        package = read_package(root)
    return Adapted(case, seeded, AdaptedBase(base, package))


def _write_base(folder: Path, case: Case, seeded: tiny_models.SeededModel) -> Path:
    prefix = "model." if case.layout == "causal" else ""
    tiny_models.write_checkpoint(folder, seeded, prefix=prefix)
    for name in ("decision.json", "readout.safetensors"):
        (folder / name).unlink()
    if case.layout == "original":
        _as_original(folder, case)
    return folder


def _as_original(folder: Path, case: Case) -> None:
    """The text weights inside Transformers' own multimodal model, saved by it, with MTP tensors added."""
    text = json.loads((folder / "config.json").read_text())
    config = transformers.Qwen3_5Config(
        text_config=text,
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": text["hidden_size"],
        },
        tie_word_embeddings=case.tied,
    )
    full = Qwen3_5ForConditionalGeneration(config).to(torch.bfloat16)
    missing = full.model.language_model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    if missing.unexpected_keys or missing.missing_keys:
        raise RuntimeError(f"{folder}: {missing}")
    full.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["mtp.fc.weight"] = torch.zeros(4, 8, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    names = set(tensors)
    if not any(name.startswith("model.visual.") for name in names) or "lm_head.weight" not in names:
        raise RuntimeError(f"{folder}: not the original layout: {sorted(names)[:5]}")


def _write_head(checkpoint: Path, seeded: tiny_models.SeededModel, case: Case) -> None:
    weight, bias = tiny_models.readout(seeded)
    head = torch.nn.Linear(weight.shape[1], 1)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(np.array(weight)))
        head.bias.copy_(torch.from_numpy(np.array(bias)))
    torch.save(head.state_dict(), checkpoint / "head.pt")
    model = {
        "model_id": f"seeded/{case.name}",
        "revision": "0" * 40,
        "max_length": 4096,
        "lora_rank": case.rank,
        "method": "independent_candidate_lora_nll_brier",
    }
    (checkpoint / "model.json").write_text(json.dumps(model))
    temperature = {"temperature": TEMPERATURE, "split": "calibration", "n": 10, "ids_sha256": "0" * 64}
    (checkpoint / "temperature.json").write_text(json.dumps(temperature))
