"""Forward pass at the 0.8B shapes: this engine against Transformers on torch CPU, dtype by dtype.

    .venv-parity/bin/python bench/cpu_forward.py [--lengths 107 512] [--repeats 5] [--threads N] [--json FILE]

One prompt, token ids in, final-norm vector of the last token out. The weights are seeded and both sides read
the same checkpoint folder. The two sides take turns within one process on the same cores; before each timed
run it sleeps a moment, so that the worker threads of the other side no longer spin. Prints a Markdown table;
needs 8 GB of memory and 3 GB of disk.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

from openjev._runtime import Engine
from openjev.backbone import QWEN_0_8B, BackboneShape
from openjev.seeded import build_checkpoint

DType = Literal["F32", "BF16"]
Rows = npt.NDArray[np.float32]
Forward = Callable[[npt.NDArray[np.int32]], Rows]

TORCH_DTYPE = {"F32": torch.float32, "BF16": torch.bfloat16}
WHAT = {
    "F32": "float32 weights and arithmetic on both sides",
    "BF16": "bfloat16 weights; here float32 arithmetic, in torch bfloat16 arithmetic",
}
PAUSE = 0.1  # seconds
WARM_UP = 2


@dataclass(frozen=True)
class Result:
    """Milliseconds of every timed run; `difference` is the relative L2 between the two results."""

    dtype: DType
    length: int
    ours_ms: list[float]
    transformers_ms: list[float]
    gflop: float
    difference: float

    @property
    def ratio(self) -> float:
        """How many times faster this engine is, by medians."""
        return statistics.median(self.transformers_ms) / statistics.median(self.ours_ms)


def checkpoint(folder: Path, shape: BackboneShape, dtype: DType) -> Path:
    layers = list(shape.layer_types)
    config = {**asdict(shape), "layer_types": layers, "num_hidden_layers": len(layers)}
    print(f"writing a {dtype} checkpoint of {shape.parameters() / 1e6:.0f} M parameters", file=sys.stderr)
    return build_checkpoint(folder, config=config, dtype=dtype)


def matmul_gflop(shape: BackboneShape, length: int) -> float:
    """Of the projections of every layer for every token, whether a side computes all of them or not."""
    matrices = [dims for name, dims in shape.tensors() if len(dims) == 2 and name != "embed_tokens.weight"]
    return 2e-9 * length * sum(map(math.prod, matrices))


def our_forward(folder: Path, threads: int) -> tuple[Forward, dict[str, Any]]:
    engine = Engine(str(folder), device="cpu", threads=threads)

    def forward(ids: npt.NDArray[np.int32]) -> Rows:
        rows: Rows = engine.last_hidden(ids, np.array([0, ids.size], np.int64))
        return rows[0]

    return forward, dict(engine.info)


def their_forward(folder: Path, dtype: DType) -> Forward:
    kind = TORCH_DTYPE[dtype]
    model = Qwen3_5TextModel.from_pretrained(folder, dtype=kind, attn_implementation="sdpa").eval()

    def forward(ids: npt.NDArray[np.int32]) -> Rows:
        tokens = torch.from_numpy(ids.astype(np.int64))[None]
        with torch.inference_mode():
            rows = model(input_ids=tokens, use_cache=False).last_hidden_state
            last: Rows = rows[0, -1].float().numpy()
        return last

    return forward


def timed(forward: Forward, ids: npt.NDArray[np.int32]) -> tuple[float, Rows]:
    time.sleep(PAUSE)
    begin = time.perf_counter()
    rows = forward(ids)
    return (time.perf_counter() - begin) * 1e3, rows


def measure(
    sides: dict[str, Forward], ids: npt.NDArray[np.int32], repeats: int
) -> tuple[dict[str, list[float]], float]:
    """Milliseconds by side, taking turns and changing who is first, and the difference of the results."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    rows: dict[str, Rows] = {}
    for run in range(-WARM_UP, repeats):
        for name in sorted(sides, reverse=run % 2 == 1):
            took, rows[name] = timed(sides[name], ids)
            if run >= 0:
                times[name].append(took)
    ours, theirs = (rows[name].astype(np.float64) for name in ("ours", "transformers"))
    return times, float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def compare(shape: BackboneShape, dtype: DType, options: argparse.Namespace) -> tuple[list[Result], str]:
    results = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = checkpoint(Path(scratch) / dtype, shape, dtype)
        ours, info = our_forward(folder, options.threads)
        sides = {"ours": ours, "transformers": their_forward(folder, dtype)}
        for length in options.lengths:
            ids = np.random.default_rng(length).integers(0, shape.vocab_size, length).astype(np.int32)
            times, difference = measure(sides, ids, options.repeats)
            gflop = matmul_gflop(shape, length)
            results.append(Result(dtype, length, times["ours"], times["transformers"], gflop, difference))
            print(f"{dtype} {length}: {results[-1].ratio:.2f}x", file=sys.stderr)
    gc.collect()
    return results, str(info["device_detail"])


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(options: argparse.Namespace, detail: str) -> dict[str, Any]:
    packages = ("openjev", "torch", "transformers", "numpy")
    return {
        "cpu": cpu_name(),
        "threads": options.threads,
        "engine": detail,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def markdown(results: list[Result], about: dict[str, Any], shape: BackboneShape) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        f"{about['cpu']}, {about['threads']} threads on both sides; here: {about['engine']}; torch: "
        f"{about['torch_cpu_capability']}; Python {about['python']}, {versions}.",
        f"0.8B shapes, {len(shape.layer_types)} layers, vocabulary cut to {shape.vocab_size} rows on "
        "both sides (only gathered). Transformers runs sdpa attention and its torch fallback of the gated "
        "delta rule and of the convolution.",
        "",
        "| weights | tokens | openjev ms: median (min) | Transformers ms: median (min) | tokens/s | GFLOP/s "
        "| times faster | relative L2 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        ours, theirs = (statistics.median(times) for times in (r.ours_ms, r.transformers_ms))
        lines.append(
            f"| {r.dtype} | {r.length} | {ours:.1f} ({min(r.ours_ms):.1f}) "
            f"| {theirs:.1f} ({min(r.transformers_ms):.1f}) "
            f"| {r.length / ours * 1e3:.0f} / {r.length / theirs * 1e3:.0f} "
            f"| {r.gflop / ours * 1e3:.0f} / {r.gflop / theirs * 1e3:.0f} "
            f"| {r.ratio:.2f} | {r.difference:.1e} |"
        )
    count = len(results[0].ours_ms)
    lines += [
        "",
        f"n = {count} runs a side after {WARM_UP} warm-up runs, taking turns. tokens/s, GFLOP/s: openjev / "
        "Transformers. GFLOP/s counts the projections of all tokens in all layers, although openjev skips "
        "those of the last layer that no answer depends on.",
    ]
    lines += [f"{dtype}: {WHAT[dtype]}." for dtype in dict.fromkeys(r.dtype for r in results)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[107, 512])
    parser.add_argument("--dtypes", nargs="+", choices=list(WHAT), default=list(WHAT))
    parser.add_argument("--repeats", type=int, default=5, help="timed runs a side")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vocabulary", type=int, default=8192, help="rows of the embedding, on both sides")
    parser.add_argument(
        "--scratch", type=Path, help="folder for the checkpoints (default: the temporary one)"
    )
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = replace(QWEN_0_8B, vocab_size=options.vocabulary)
    results: list[Result] = []
    detail = ""
    for dtype in options.dtypes:
        part, detail = compare(shape, dtype, options)
        results += part
    about = machine(options, detail)
    print(markdown(results, about, shape))
    if options.json:
        rows = [{**asdict(r), "ratio": r.ratio} for r in results]
        record = {"machine": about, "shape": asdict(shape), "results": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
