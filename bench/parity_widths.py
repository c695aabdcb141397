"""True widths against Transformers on one GPU: 8 layers of each published size, seeded weights on disk.

    python bench/parity_widths.py [--shapes 2b 4b 9b 27b] [--lengths 1 63 64 65 107 936 3399] [--json FILE]

Both sides read the same folder. For each length, over some prompts: relative L2 of the last hidden state to
that of Transformers in float32, for ours (bf16) and for Transformers in bf16 (torch fallback), and of the two
to each other; the largest difference of a yes/no probability with a random readout at T = 2.534, of each two.

What must hold (exit 1 otherwise): ours is no farther from float32 than Transformers' own bf16 is, no decision
flips, no probability differs by more than 0.01. The distance of the two bf16 results from each other is only
reported: each has its own rounding errors, so it is up to sqrt(2) times either's. A difference of
probabilities is the largest of so many prompts, and grows with their number.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers_model as reference
from safetensors.torch import load_file, save_file

from openjev._runtime import Engine
from openjev.backbone import PUBLISHED
from openjev.checkpoints import SEEDED_ID
from openjev.package import Identity
from openjev.safetensors_write import TensorSource, write_bytes, write_safetensors
from openjev.seeded import seeded_manifest

TEMPERATURE = 2.5343690298472983
LAYERS = 8
VOCAB = 8192
MOST_TOKENS = 4096
MOST_DIFFERENCE = 0.01


def write_checkpoint(folder: Path, shape: str, seed: int) -> dict[str, Any]:
    """The seeded weights of a dummy engine as a decision checkpoint. Returns its config."""
    config = reference.config(shape, LAYERS, VOCAB)
    reference.write_config(folder, config)
    engine = Engine(str(folder), device="cuda", load_format="dummy", seed=seed)
    tensors = {name: t.clone() for name, t in reference.engine_tensors(engine, config)}
    save_file(tensors, str(folder / "model.safetensors"))
    weight = np.random.default_rng(seed).standard_normal((1, config["hidden_size"])).astype(np.float32)
    weight *= np.float32(2 / math.sqrt(config["hidden_size"]))
    sources = [
        TensorSource("weight", "F32", weight.shape, lambda: [weight.ravel()]),
        TensorSource("bias", "F32", (1,), lambda: [np.zeros(1, np.float32)]),
    ]
    written = write_safetensors(folder / "readout.safetensors", sources)
    identity = Identity(f"{SEEDED_ID}-{shape}", f"seed-{seed}")
    readout = {"kind": "scalar", "temperature": TEMPERATURE}
    manifest = seeded_manifest(identity, readout, [written], MOST_TOKENS)
    write_bytes(folder / "decision.json", json.dumps(manifest).encode())
    return config


def probability(score: float) -> float:
    return 1 / (1 + math.exp(-score / TEMPERATURE))


def compare(shape: str, lengths: list[int], seed: int, folder: Path) -> list[dict[str, Any]]:
    config = write_checkpoint(folder, shape, seed)
    gc.collect()
    engine = Engine(str(folder), device="cuda")
    tensors = load_file(str(folder / "model.safetensors"), device="cuda")
    head = load_file(str(folder / "readout.safetensors"), device="cuda")["weight"][0]
    rounded = reference.build(tensors, config, torch.bfloat16)
    exact = reference.build(tensors, config, torch.float32)
    rows = []
    for length in lengths:
        random = np.random.default_rng([seed, length])
        prompts = [
            random.integers(0, VOCAB, length).astype(np.int32) for _ in range(16 if length <= 128 else 4)
        ]
        offsets = np.array([0, length], np.int64)
        ours = torch.stack([torch.from_numpy(engine.last_hidden(ids, offsets)[0]).cuda() for ids in prompts])
        theirs, want = (
            torch.stack([reference.last_hidden(model, ids) for ids in prompts]) for model in (rounded, exact)
        )
        scores = [float(engine.score(ids, offsets)[0, 0]) for ids in prompts]
        chances = [
            [probability(score) for score in found]
            for found in (scores, (theirs @ head).tolist(), (want @ head).tolist())
        ]
        flipped = [triple for triple in zip(*chances, strict=True) if (triple[0] > 0.5) != (triple[1] > 0.5)]
        rows.append(
            {
                "shape": shape,
                "tokens": length,
                "prompts": len(prompts),
                "ours_to_fp32": reference.relative_l2(ours, want),
                "bf16_to_fp32": reference.relative_l2(theirs, want),
                "ours_to_bf16": reference.relative_l2(ours, theirs),
                "difference": max(abs(a - b) for a, b in zip(chances[0], chances[1], strict=True)),
                "own": max(abs(a - b) for a, b in zip(chances[1], chances[2], strict=True)),
                "exact": max(abs(a - b) for a, b in zip(chances[0], chances[2], strict=True)),
                "flips": len(flipped),
                "flipped": flipped,
            }
        )
    return rows


def sound(row: dict[str, Any]) -> bool:
    return (
        row["ours_to_fp32"] <= row["bf16_to_fp32"]
        and row["difference"] <= MOST_DIFFERENCE
        and row["flips"] == 0
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=list(PUBLISHED), default=["2b", "4b", "9b", "27b"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1, 63, 64, 65, 107, 936, 3399])
    parser.add_argument("--seed", type=int, default=20261202)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reference.assert_rule(fla=False)
    print(f"{reference.versions()}; {LAYERS} layers, seed {args.seed}, torch fallback")
    distances = "ours to fp32 | bf16 to fp32 | ours to bf16"
    columns = f"prompts | {distances} | p: ours, bf16 | p: bf16, fp32 | p: ours, fp32 | flips | within"
    print(f"| shape | tokens | {columns} |\n|---|---:|" + "---:|" * 9)
    record = []
    for shape in args.shapes:
        with tempfile.TemporaryDirectory() as scratch:
            rows = compare(shape, args.lengths, args.seed, Path(scratch))
        for row in rows:
            row["within"] = sound(row)
            names = ("ours_to_fp32", "bf16_to_fp32", "ours_to_bf16")
            figures = " | ".join(f"{row[name]:.2e}" for name in names)
            chances = " | ".join(f"{row[name]:.4f}" for name in ("difference", "own", "exact"))
            verdict = f"{row['flips']} | {row['within']}"
            print(
                f"| {shape} | {row['tokens']} | {row['prompts']} | {figures} | {chances} | {verdict} |",
                flush=True,
            )
        record += rows
        gc.collect()
        torch.cuda.empty_cache()
    for row in record:
        for ours, bf16, exact in row["flipped"]:
            print(
                f"flip: {row['shape']}, {row['tokens']} tokens: {ours:.4f}, bf16 {bf16:.4f}, fp32 {exact:.4f}"
            )
    if args.json:
        args.json.write_text(json.dumps({"versions": reference.versions(), "rows": record}, indent=1))
    return 0 if all(row["within"] for row in record) else 1


if __name__ == "__main__":
    sys.exit(main())
