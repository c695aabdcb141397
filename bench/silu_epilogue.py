"""A trial: SiLU(gate) * up in the epilogue of the gate/up product, against the product and a kernel after it.

    python bench/silu_epilogue.py [--shape 27b] [--rows 112 429 936 3399] [--json FILE]

Both in one run on one GPU, each as a CUDA graph of four layers with weights of their own (no weight stays in
L2), replayed for 50 ms to settle and 300 ms timed. Apart: torch's product (cuBLASLt), then an elementwise
kernel. Fused: a tiled product in Triton that holds a gate tile and an up tile, the best of some tile choices.
Triton's plain product with the same tiles is given too: it says what of a difference is the product's own.
Needs torch and triton on a GPU; with TRITON_INTERPRET=1 `--check` compares values on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from openjev.backbone import PUBLISHED

LAYERS = 4
SETTLE_MS, TIMED_MS = 50, 300


@triton.jit(do_not_specialize=["rows"])
def gate_up_kernel(
    x,
    weight,
    out,
    rows,
    inner,
    hidden: tl.constexpr,
    fused: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_cols: tl.constexpr,
    tile_k: tl.constexpr,
    group: tl.constexpr,
):
    """out [rows, inner] = R(silu(x G^T) * x U^T), or [rows, 2 inner] = R(x [G, U]^T)."""
    program = tl.program_id(0)
    row_tiles, col_tiles = tl.cdiv(rows, tile_rows), tl.cdiv(inner, tile_cols)
    # Row tiles of a group go one after another, so that they meet the same weights in L2.
    first = program // (group * col_tiles) * group
    height = min(row_tiles - first, group)
    row_tile = first + program % (group * col_tiles) % height
    col_tile = program % (group * col_tiles) // height
    at_row = row_tile * tile_rows + tl.arange(0, tile_rows)
    at_col = col_tile * tile_cols + tl.arange(0, tile_cols)
    at_k = tl.arange(0, tile_k)
    held_row, held_col = at_row % rows, at_col % inner  # inside, and never stored
    from_x = x + held_row[:, None] * hidden + at_k[None, :]
    from_gate = weight + held_col[None, :].to(tl.int64) * hidden + at_k[:, None]
    from_up = from_gate + tl.cast(inner, tl.int64) * hidden
    gate = tl.zeros((tile_rows, tile_cols), tl.float32)
    up = tl.zeros((tile_rows, tile_cols), tl.float32)
    for _ in range(0, hidden, tile_k):
        rows_of_x = tl.load(from_x)
        gate = tl.dot(rows_of_x, tl.load(from_gate), gate)
        up = tl.dot(rows_of_x, tl.load(from_up), up)
        from_x += tile_k
        from_gate += tile_k
        from_up += tile_k
    inside = (at_row[:, None] < rows) & (at_col[None, :] < inner)
    if fused:
        to = out + at_row[:, None].to(tl.int64) * inner + at_col[None, :]
        tl.store(to, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), inside)
    else:
        to = out + at_row[:, None].to(tl.int64) * 2 * inner + at_col[None, :]
        tl.store(to, gate.to(tl.bfloat16), inside)
        tl.store(to + inner, up.to(tl.bfloat16), inside)


@triton.jit
def silu_mul_kernel(gate_up, out, rows, inner, block: tl.constexpr):
    """out [rows, inner] = R(silu(g) * u) of gate_up [rows, 2 inner]."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = item < tl.cast(rows, tl.int64) * inner
    source = gate_up + item // inner * 2 * inner + item % inner
    gate = tl.load(source, inside).to(tl.float32)
    up = tl.load(source + inner, inside).to(tl.float32)
    tl.store(out + item, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), inside)


@dataclass(frozen=True)
class Tiles:
    """What one program computes: `rows` x `cols` of gate and of up."""

    rows: int
    cols: int
    k: int
    warps: int
    stages: int


def choices(rows: int) -> Iterator[Tiles]:
    heights = [64, 128] if rows <= 256 else [128]
    for height, cols, k, warps, stages in itertools.product(heights, [64, 128], [64], [4, 8], [3, 4]):
        shared = stages * k * (height + 2 * cols) * 2
        accumulators = height * cols * 2 / (32 * warps)  # registers of a thread
        if shared <= 220_000 and accumulators <= 128:
            yield Tiles(height, cols, k, warps, stages)


def gate_up(x: Tensor, weight: Tensor, out: Tensor, tiles: Tiles, fused: bool) -> None:
    rows, inner = x.shape[0], weight.shape[0] // 2
    grid = (triton.cdiv(rows, tiles.rows) * triton.cdiv(inner, tiles.cols),)
    gate_up_kernel[grid](
        x,
        weight,
        out,
        rows,
        inner,
        hidden=x.shape[1],
        fused=fused,
        tile_rows=tiles.rows,
        tile_cols=tiles.cols,
        tile_k=tiles.k,
        group=8,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )


def silu_mul(both: Tensor, out: Tensor) -> None:
    rows, inner = out.shape
    silu_mul_kernel[(triton.cdiv(rows * inner, 2048),)](both, out, rows, inner, block=2048, num_warps=8)


def per_layer_us(layer: Callable[[int], None], settle_ms: float, timed_ms: float) -> float:
    """Time of one layer in a replayed graph of LAYERS of them, in microseconds."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer(0)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(LAYERS):
            layer(i)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay(times: int) -> float:
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / times

    replay(2)
    once = replay(3)
    replay(max(1, round(settle_ms / once)))
    samples = [replay(max(1, round(timed_ms / 5 / once))) for _ in range(5)]
    return 1000 * statistics.median(samples) / LAYERS


def measure(shape: str, rows: int) -> dict[str, Any]:
    hidden, inner = PUBLISHED[shape].hidden_size, PUBLISHED[shape].intermediate_size
    random = torch.Generator("cuda").manual_seed(rows)
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16, generator=random)
    weights = [
        torch.randn(2 * inner, hidden, device="cuda", dtype=torch.bfloat16, generator=random) / hidden**0.5
        for _ in range(LAYERS)
    ]
    both = torch.empty(rows, 2 * inner, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(rows, inner, device="cuda", dtype=torch.bfloat16)

    def product(i: int) -> None:
        torch.mm(x, weights[i].t(), out=both)

    def apart(i: int) -> None:
        product(i)
        silu_mul(both, out)

    apart(0)
    want = out.float()
    # Short turns choose, a long one measures: the card sinks to the clock of steady use in the latter only.
    short = {
        tiles: per_layer_us(lambda i, tiles=tiles: gate_up(x, weights[i], out, tiles, True), 5, 15)
        for tiles in choices(rows)
    }
    best = min(short, key=lambda tiles: short[tiles])
    gate_up(x, weights[0], out, best, True)
    difference = float((out.float() - want).norm() / want.norm())
    timed = {
        "apart": apart,
        "product": product,
        "fused": lambda i: gate_up(x, weights[i], out, best, True),
        "triton_product": lambda i: gate_up(x, weights[i], both, best, False),
    }
    return {
        "shape": shape,
        "rows": rows,
        **{f"{name}_us": per_layer_us(layer, SETTLE_MS, TIMED_MS) for name, layer in timed.items()},
        "difference": difference,
        "tiles": asdict(best),
    }


def check() -> None:
    """Values of both kernels against float64, ragged sizes. Raises AssertionError."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    # The interpreter multiplies no bfloat16, and truncates results to it where a GPU rounds.
    device, dtype, unit = ("cpu", torch.float16, 2) if interpreted else ("cuda", torch.bfloat16, 1)
    torch.manual_seed(1)
    # One rounding to bfloat16 is off by 2^-8 = 3.9e-3 at most; apart, gate and up are rounded before.
    for rows, inner in ((1, 48), (70, 80), (130, 96)):
        x, weight = torch.randn(rows, 128), torch.randn(2 * inner, 128) / 11
        x, weight = (part.to(device, dtype) for part in (x, weight))
        gate, up = (x.double() @ weight.double().T).chunk(2, -1)
        want = torch.nn.functional.silu(gate) * up
        out = torch.full((rows, inner), torch.nan, device=device, dtype=torch.bfloat16)
        both = torch.full((rows, 2 * inner), torch.nan, device=device, dtype=torch.bfloat16)
        tiles = Tiles(64, 32, 64, 4, 3)
        gate_up(x, weight, out, tiles, True)
        assert (out - want).norm() / want.norm() < 4e-3 * unit, (rows, inner, "fused")
        gate_up(x, weight, both, tiles, False)
        silu_mul(both, out)
        assert (out - want).norm() / want.norm() < 8e-3 * unit, (rows, inner, "apart")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(PUBLISHED), default="27b")
    parser.add_argument("--rows", nargs="+", type=int, default=[112, 429, 936, 3399])
    parser.add_argument("--check", action="store_true", help="compare values only")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    check()
    if args.check:
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}\n")
    print("| shape | rows | apart us | of it product | fused us | fused / apart | Triton's product | tiles |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    record = []
    for rows in args.rows:
        found = measure(args.shape, rows)
        record.append(found)
        print(
            f"| {found['shape']} | {rows} | {found['apart_us']:.1f} | {found['product_us']:.1f} "
            f"| {found['fused_us']:.1f} | {found['fused_us'] / found['apart_us']:.3f} "
            f"| {found['triton_product_us']:.1f} | {' '.join(map(str, found['tiles'].values()))} |",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
