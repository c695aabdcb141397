"""All 64 layers of the 27B shapes against Transformers holding the very same weights, on one GPU.

    python bench/parity_27b.py [--shape 27b] [--prompts 20] [--fla] [--json FILE]

The engine makes seeded weights on the device; Transformers' parameters are views of them. Prompts of
different lengths, one yes/no question each with a random readout at T = 2.534: decisions that flip, and the
largest difference of a probability. With --fla Transformers runs the flash-linear-attention kernels instead
of its torch fallback; one run each gives the reference's own spread. Exit 1 on a flip.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers_model as reference

from openjev._runtime import Engine
from openjev.backbone import PUBLISHED

TEMPERATURE = 2.5343690298472983


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(PUBLISHED), default="27b")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20261202)
    parser.add_argument("--fla", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reference.assert_rule(args.fla)
    config = reference.config(args.shape)
    with tempfile.TemporaryDirectory() as scratch:
        folder = reference.write_config(Path(scratch), config)
        engine = Engine(str(folder), device="cuda", load_format="dummy", seed=args.seed)
    model = reference.build(dict(reference.engine_tensors(engine, config)), config, torch.bfloat16)
    random = np.random.default_rng(args.seed)
    head = random.standard_normal(config["hidden_size"]).astype(np.float32) * (
        2 / math.sqrt(config["hidden_size"])
    )
    lengths = np.unique(np.geomspace(8, 1500, args.prompts).astype(int))
    print(
        f"{reference.versions()}; {args.shape}, {'FLA' if args.fla else 'torch fallback'}, seed {args.seed}"
    )
    print("| tokens | relative L2 | p ours | p Transformers | difference |\n|---:|---:|---:|---:|---:|")
    rows = []
    for length in lengths.tolist():
        ids = random.integers(0, config["vocab_size"], length).astype(np.int32)
        ours = engine.last_hidden(ids, np.array([0, length], np.int64))[0]
        theirs = reference.last_hidden(model, ids).cpu().numpy()
        chances = [1 / (1 + math.exp(-float(np.dot(h, head)) / TEMPERATURE)) for h in (ours, theirs)]
        distance = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        rows.append({"tokens": length, "relative_l2": distance, "ours": chances[0], "theirs": chances[1]})
        figures = (*chances, abs(chances[0] - chances[1]))
        print(f"| {length} | {distance:.2e} | " + " | ".join(f"{x:.4f}" for x in figures) + " |", flush=True)
    flips = sum((row["ours"] > 0.5) != (row["theirs"] > 0.5) for row in rows)
    most = max(abs(row["ours"] - row["theirs"]) for row in rows)
    print(f"{len(rows)} prompts: {flips} flips, largest difference {most:.4f}")
    if args.json:
        record = {"versions": reference.versions(), "fla": args.fla, "shape": args.shape, "seed": args.seed}
        args.json.write_text(json.dumps({**record, "flips": flips, "largest": most, "rows": rows}, indent=1))
    return 1 if flips else 0


if __name__ == "__main__":
    sys.exit(main())
