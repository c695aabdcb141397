"""True widths against Transformers on one GPU: 8 layers of each published size, seeded weights on disk.

    python bench/parity_widths.py [--shapes 2b 4b 9b 27b] [--lengths 1 63 64 65 107 936 3399] [--json FILE]

Both sides read the same folder. For each length: relative L2 of the last hidden state of ours (bf16) and of
Transformers' bf16 (torch fallback), each to Transformers' float32, and to each other; the probability of one
yes/no question with a random readout at T = 2.534. Exit 1 when ours is farther from Transformers' bf16 than
that is from its own float32, a decision flips, or a probability differs by more than 0.01.
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
from openjev.safetensors_write import TensorSource, write_bytes, write_safetensors

TEMPERATURE = 2.5343690298472983
LAYERS = 8
VOCAB = 8192
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
    readout = [
        TensorSource("weight", "F32", weight.shape, lambda: [weight.ravel()]),
        TensorSource("bias", "F32", (1,), lambda: [np.zeros(1, np.float32)]),
    ]
    written = write_safetensors(folder / "readout.safetensors", readout)
    manifest = {
        "format": "qwen35-decision/1",
        "base": {"id": f"seeded/{shape}", "revision": "0" * 40},
        "checkpoint": {"id": f"seeded/{shape}", "revision": "0" * 40},
        "readout": {"kind": "scalar", "temperature": TEMPERATURE},
        "prompt": {"prefix": "", "suffix": "", "strip": True},
        "max_length": 4096,
        "files": {written.name: {"bytes": written.nbytes, "sha256": written.sha256}},
    }
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
        ids = np.random.default_rng([seed, length]).integers(0, VOCAB, length).astype(np.int32)
        offsets = np.array([0, length], np.int64)
        ours = torch.from_numpy(engine.last_hidden(ids, offsets)[0]).cuda()
        ours_score = float(engine.score(ids, offsets)[0, 0])
        theirs, want = (reference.last_hidden(model, ids) for model in (rounded, exact))
        theirs_score, want_score = (float(torch.dot(h, head)) for h in (theirs, want))
        rows.append(
            {
                "shape": shape,
                "tokens": length,
                "ours_to_bf16": reference.relative_l2(ours, theirs),
                "bf16_to_fp32": reference.relative_l2(theirs, want),
                "ours_to_fp32": reference.relative_l2(ours, want),
                "p_ours": probability(ours_score),
                "p_bf16": probability(theirs_score),
                "p_fp32": probability(want_score),
            }
        )
    return rows


def sound(row: dict[str, Any]) -> bool:
    return (
        row["ours_to_bf16"] <= row["bf16_to_fp32"]
        and abs(row["p_ours"] - row["p_bf16"]) <= MOST_DIFFERENCE
        and (row["p_ours"] > 0.5) == (row["p_bf16"] > 0.5)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=list(reference.SHAPES), default=["2b", "4b", "9b", "27b"]
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[1, 63, 64, 65, 107, 936, 3399])
    parser.add_argument("--seed", type=int, default=20261202)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reference.assert_rule(fla=False)
    print(f"{reference.versions()}; {LAYERS} layers, seed {args.seed}, torch fallback")
    columns = "ours to bf16 | bf16 to fp32 | ours to fp32 | p ours | p bf16 | p fp32 | within"
    print(f"| shape | tokens | {columns} |\n|---|---:|" + "---:|" * 7)
    record = []
    for shape in args.shapes:
        with tempfile.TemporaryDirectory() as scratch:
            rows = compare(shape, args.lengths, args.seed, Path(scratch))
        for row in rows:
            row["within"] = sound(row)
            figures = " | ".join(f"{row[k]:.2e}" for k in ("ours_to_bf16", "bf16_to_fp32", "ours_to_fp32"))
            chances = " | ".join(f"{row[k]:.4f}" for k in ("p_ours", "p_bf16", "p_fp32"))
            print(f"| {shape} | {row['tokens']} | {figures} | {chances} | {row['within']} |", flush=True)
        record += rows
        gc.collect()
        torch.cuda.empty_cache()
    if args.json:
        args.json.write_text(json.dumps({"versions": reference.versions(), "rows": record}, indent=1))
    return 0 if all(row["within"] for row in record) else 1


if __name__ == "__main__":
    sys.exit(main())
