"""Writes what training makes in the formats of the published checkpoints: a base folder, and a package of
adapter, head and temperature."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

MODEL_ID = "openjev/demo"
BASE_ID = "openjev/demo-base"
MAX_LENGTH = 4096
METHOD = "independent_candidate_lora_nll_brier"


def write_base(folder: Path, model: Any, state: Mapping[str, Tensor]) -> None:
    """config.json and model.safetensors in bfloat16; tokenizer.json is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_dict()
    config.update(architectures=["Qwen3_5TextModel"], dtype="bfloat16")
    for name in ("transformers_version", "_name_or_path"):
        config.pop(name, None)
    write_json(folder / "config.json", config)
    tensors = {name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in state.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def write_package(
    folder: Path, adapted: Any, head: torch.nn.Linear, revision: str, temperature: Mapping[str, Any]
) -> None:
    """manifest.json and checkpoint/: model.json, temperature.json, head.pt, adapter/."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    # Told that embeddings are not trained, PEFT does not look the base up on the hub.
    adapted.save_pretrained(str(checkpoint / "adapter"), save_embedding_layers=False)
    (checkpoint / "adapter" / "README.md").unlink(missing_ok=True)
    torch.save(
        {name: value.detach().cpu() for name, value in head.state_dict().items()}, checkpoint / "head.pt"
    )
    model = {
        "model_id": BASE_ID,
        "revision": revision,
        "max_length": MAX_LENGTH,
        "lora_rank": 8,
        "method": METHOD,
    }
    write_json(checkpoint / "model.json", model)
    write_json(checkpoint / "temperature.json", temperature)
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }
    manifest = {
        "kind": "local_inference_weight_package",
        "model": MODEL_ID,
        "revision": revision,
        "files": files,
    }
    write_json(folder / "manifest.json", manifest)


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
