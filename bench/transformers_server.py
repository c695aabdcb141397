"""Raw Transformers behind the HTTP front of openjev: the reference arm of the measurement harness.

    python -m bench.transformers_server --model FOLDER --device cuda --seeded --port 0

One forward pass a prompt, as the reference does it; contract, prompts, tokens and answers are openjev's own,
so that two arms differ by their forward passes alone. Which gated delta rule runs is observed during a
forward pass, not assumed: --rule torch requires Transformers' torch fallback, --rule fla the package's
kernels. With --seeded the weights are those that openjev makes with --load-format dummy, shared in place.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from bench import transformers_model
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

from openjev import checkpoints
from openjev.decision_model import DecisionModel
from openjev.native import GRAPH_COUNTERS, runtime
from openjev.settings import Settings
from openjev.tokens import Tokenizer
from openjev_server.app import run

# Open-Jev's adapter; alpha is twice the rank.
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj"]
WARM_UP_TOKENS = (16, 128)
FALLBACK = "torch_chunk_gated_delta_rule"


class TransformersEngine:
    """What openjev asks of an engine, computed by a Transformers model.

    `keep` is held as long as the model: the owner of memory that its parameters are views of.
    """

    def __init__(
        self,
        model: Any,
        folder: Path,
        info: Mapping[str, Any],
        rule: str,
        keep: Any = None,
    ) -> None:
        self._model = model
        self._keep = keep
        self._rule = rule
        self.info = info
        device = info["device"]
        readout = load_file(folder / "readout.safetensors")
        self._device = device
        self._weight = torch.as_tensor(readout["weight"].reshape(info["outputs"], -1), device=device)
        bias = readout.get("bias", np.zeros(info["outputs"], np.float32))
        self._bias = torch.as_tensor(bias, device=device)

    @torch.no_grad()
    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        """float32 [n, k]; prompts one at a time, nothing is shared."""
        rows = []
        for begin, end in pairwise(offsets.tolist()):
            ids = torch.as_tensor(tokens[begin:end].astype(np.int64), device=self._device)[None]
            hidden = self._model(input_ids=ids, use_cache=False).last_hidden_state[0, -1].float()
            rows.append(self._weight @ hidden + self._bias)
        result: NDArray[np.float32] = torch.stack(rows).cpu().numpy()
        return result

    def warm_up(self, lengths: Sequence[int] = (), progress: Any = None) -> None:
        """A pass of each length, in which the gated delta rule is watched. Raises RuntimeError."""
        for count in lengths or WARM_UP_TOKENS:
            ids = np.arange(count, dtype=np.int32) % 100
            names = functions_called(lambda ids=ids, count=count: self.score(ids, np.array([0, count])))
            if (FALLBACK in names) != (self._rule == "torch"):
                found = "its torch fallback" if FALLBACK in names else "other kernels"
                raise RuntimeError(f"gated delta rule: Transformers ran {found}, asked for: {self._rule}")

    def record_missed(self) -> bool:
        return False

    def graph_stats(self) -> Mapping[str, int]:
        return dict.fromkeys(GRAPH_COUNTERS, 0)

    def memory(self) -> Mapping[str, int]:
        names = ("free", "total", "planned_weights", "planned_workspace", "planned_graphs", "free_before")
        return dict.fromkeys(names, 0)

    def stats(self) -> Mapping[str, Any]:
        return {}


def functions_called(work: Any) -> set[str]:
    """Names of the Python functions of Transformers' model that run during `work`."""
    names: set[str] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("modeling_qwen3_5.py"):
            names.add(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


def describe(folder: Path, model: Any, device: str) -> dict[str, Any]:
    """The engine's info: the manifest, and what is known about the model."""
    manifest: dict[str, Any] = dict(runtime().read_manifest(str(folder)))
    parameters = [p for name, p in model.named_parameters() if "lora_" not in name]
    size = {torch.bfloat16: "BF16", torch.float32: "F32"}[parameters[0].dtype]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {
        **manifest,
        "device": device,
        "device_detail": f"Transformers on {device}",
        "threads": torch.get_num_threads(),
        "weight_dtype": size,
        "weight_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "parameters": sum(p.numel() for p in parameters),
        "layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
    }


def load_backbone(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model, and what must live as long as it does."""
    if args.seeded:
        if args.device != "cuda":
            raise ValueError(f"--seeded: found --device {args.device}, allowed: cuda")
        config = json.loads((args.model / "config.json").read_text(encoding="utf-8"))
        engine = runtime().Engine(str(args.model), device="cuda", load_format="dummy")
        tensors = dict(transformers_model.engine_tensors(engine, config))
        return transformers_model.build(tensors, config, torch.bfloat16), engine
    # from_pretrained keeps the rotary frequencies in float32; `.to(bfloat16)` would round them.
    folder = args.base or args.model
    dtype = getattr(torch, args.dtype)
    model = Qwen3_5TextModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
    return model.to(args.device), None


def with_adapter(model: Any, args: argparse.Namespace) -> Any:
    """The model with its LoRA adapter, kept apart ("unmerged") or added to the weights ("merged").

    Without --adapter an unmerged one of zeros is put on: it takes the time of a real one and changes no
    answer. Raises ValueError for a merged adapter that is not there.
    """
    if args.lora == "none":
        return model
    import peft

    if args.adapter:
        adapted = peft.PeftModel.from_pretrained(model, args.adapter)
        return (adapted.merge_and_unload() if args.lora == "merged" else adapted.base_model.model).eval()
    if args.lora == "merged":
        raise ValueError("--lora merged: found no --adapter, allowed: a folder with one")
    settings = peft.LoraConfig(
        r=args.lora_rank, lora_alpha=2 * args.lora_rank, target_modules=LORA_TARGETS, bias="none"
    )
    return peft.get_peft_model(model, settings).base_model.model.eval()


def load(args: argparse.Namespace) -> DecisionModel:
    """The decision model of a folder with Transformers as its engine."""
    if args.threads:
        torch.set_num_threads(args.threads)
    manifest = runtime().read_manifest(str(args.model))
    backbone, keep = load_backbone(args)
    model = with_adapter(backbone, args)
    info = describe(args.model, model, args.device)
    return DecisionModel(
        TransformersEngine(model, args.model, info, args.rule, keep),
        Tokenizer(args.model),
        names=checkpoints.served_names(manifest),
        caveat=checkpoints.caveat(manifest),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="export folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="of torch on the CPU; 0: its default")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rule", choices=("torch", "fla"), default="torch")
    parser.add_argument("--lora", choices=("none", "unmerged", "merged"), default="none")
    parser.add_argument("--lora-rank", type=int, default=8, help="of an adapter of zeros")
    parser.add_argument("--adapter", type=Path, help="PEFT adapter folder")
    parser.add_argument("--base", type=Path, help="unmerged base weights; default: those of --model")
    parser.add_argument("--seeded", action="store_true", help="weights of openjev's --load-format dummy")
    args = parser.parse_args()
    settings = Settings(model=str(args.model), host=args.host, port=args.port, device=args.device)
    return run(settings, lambda: load(args))


if __name__ == "__main__":
    sys.exit(main())
