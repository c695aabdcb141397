"""What the parity scripts ask of Transformers: a text model from a folder, its rows, a continuation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pass:
    """final [T, H] after the final norm; stream [layers + 1, T, H] after embedding and after each layer."""

    final: Rows
    stream: Rows


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def load(folder: Path, dtype: torch.dtype, attention: str = "sdpa") -> Any:
    """By from_pretrained, which keeps the rotary frequencies in float32; `.to(bfloat16)` would round them."""
    model = Qwen3_5TextModel.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
    if model.rotary_emb.inv_freq.dtype != torch.float32 or any(p.dtype != dtype for p in model.parameters()):
        raise RuntimeError(f"{folder}: parameters are not all {dtype} beside float32 rotary frequencies")
    return model


def run(model: Any, ids: npt.ArrayLike, cache: Any = None) -> Pass:
    """One forward pass of one sequence, continuing `cache` where there is one (which it extends)."""
    stream: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        stream.append((output[0] if isinstance(output, tuple) else output).detach()[0].float())

    hooks = [module.register_forward_hook(keep) for module in (model.embed_tokens, *model.layers)]
    try:
        with torch.no_grad():
            out = model(
                input_ids=torch.as_tensor(np.asarray(ids, np.int64))[None],
                cache=cache,
                use_cache=cache is not None,
            )
    finally:
        for hook in hooks:
            hook.remove()
    return Pass(out.last_hidden_state[0].float().numpy(), torch.stack(stream).numpy())


def continued(model: Any, ids: npt.ArrayLike, cut: int) -> Rows:
    """Final-norm rows cut ... T - 1, computed from the cache left by the first `cut` tokens."""
    cache = transformers.DynamicCache(config=model.config)
    tokens = np.asarray(ids)
    run(model, tokens[:cut], cache)
    return run(model, tokens[cut:], cache).final
