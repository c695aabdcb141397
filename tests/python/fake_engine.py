"""An engine without a model: its logits are a fixed function of each prompt's own ids."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjev.native import GRAPH_COUNTERS

SCALAR = {
    "readout": "scalar",
    "outputs": 1,
    "temperature": 1.5,
    "token_ids": [],
    "prompt_prefix": "<|im_start|>user\n",
    "prompt_suffix": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "max_length": 4096,
}
LETTERS = {
    "readout": "letters",
    "outputs": 26,
    "temperature": 1.0,
    "token_ids": list(range(32, 58)),
    "prompt_prefix": "",
    "prompt_suffix": "",
    "max_length": 16384,
}


class FakeEngine:
    """Logits in -4 to 4 from a checksum of the ids, or `logits`. `calls` records (prompts, share)."""

    def __init__(self, readout: Mapping[str, Any] = SCALAR, *, logits: Any = None, **overrides: Any) -> None:
        self.calls: list[tuple[int, bool]] = []
        self._logits = logits
        self.info: dict[str, Any] = {
            "device": "fake",
            "device_detail": "checksums",
            "threads": 1,
            "weight_dtype": "F32",
            "weight_bytes": 0,
            "parameters": 0,
            "layers": 4,
            "hidden_size": 8,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "format": "qwen35-decision/1",
            "base": {"id": "Qwen/Qwen3.5-2B", "revision": "b" * 40},
            "checkpoint": {"id": "someone/else", "revision": "c" * 40},
            "strip": True,
            **readout,
            **overrides,
        }

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        assert tokens.dtype == np.int32 and offsets.dtype == np.int64
        assert offsets[0] == 0 and offsets[-1] == len(tokens)
        rows, k = len(offsets) - 1, self.info["outputs"]
        self.calls.append((rows, share))
        if self._logits is not None:
            return np.asarray(self._logits, np.float32).reshape(rows, k)
        seeds = [zlib.crc32(tokens[a:b].tobytes()) for a, b in pairwise(offsets)]
        columns = np.arange(k, dtype=np.uint32) * np.uint32(2654435761)
        mixed = (np.array(seeds, np.uint32)[:, None] + columns) % np.uint32(8000)
        return (mixed.astype(np.float32) / np.float32(1000)) - np.float32(4)

    def stats(self) -> dict[str, int]:
        return {"calls": len(self.calls)}

    def warm_up(
        self, lengths: Sequence[int] = (), progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        pass

    def record_missed(self) -> bool:
        return False

    def graph_stats(self) -> Mapping[str, int]:
        return dict.fromkeys(GRAPH_COUNTERS, 0)

    def memory(self) -> Mapping[str, int]:
        return dict.fromkeys(("free", "total"), 0)
