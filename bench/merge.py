"""Time and memory of merging an adapter: while a model loads, and in an export.

    python bench/merge.py --shape 9b --folder /big/disk/merge [--layers 4] [--device cuda] [--out /other/disk]

Writes a seeded base of a published shape and an Open-Jev package for it, then measures, in a process each,
a load that merges, an export, and a load of the exported folder. Memory is anonymous resident memory (RssAnon
of /proc/self/status, sampled every 10 ms): mapped file pages, which the system can drop, are not in it. On
the CPU the model's own packed weights are, so they are given apart. Prints Markdown; --json FILE keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import adapters

from openjev.backbone import PUBLISHED, BackboneShape
from openjev.export import export, split_by_bytes
from openjev.native import runtime
from openjev.safetensors_write import TensorSource, write_safetensors
from openjev.small_tokenizer import build_tokenizer
from openjev.sources import AdaptedBase, locate

# The loads in turns: the first of a folder also brings its pages into the cache.
STEPS = (
    "load and merge",
    "export",
    "load of the export",
    "load and merge",
    "load of the export",
    "load and merge",
    "load of the export",
)
SHARD_BYTES = 5_000_000_000
BLOCK = 1 << 25  # values written at a time


def shape_of(name: str, layers: int) -> BackboneShape:
    shape = PUBLISHED[name]
    return replace(shape, layer_types=shape.layer_types[: layers or None])


def write_base(folder: Path, shape: BackboneShape) -> Path:
    """Values of size 2^-7 to 2^-6 of either sign; blocks of them repeat, which no measurement sees."""
    folder.mkdir(parents=True)
    generator = np.random.Generator(np.random.SFC64(1))
    pool = (generator.integers(0, 1 << 16, BLOCK, np.uint16) & np.uint16(0x807F)) | np.uint16(0x3C00)

    def source(name: str, dims: tuple[int, ...]) -> TensorSource:
        def blocks() -> Iterator[np.ndarray]:
            left = int(np.prod(dims))
            while left > 0:
                yield pool[: min(left, BLOCK)]
                left -= BLOCK

        return TensorSource("model.language_model." + name, "BF16", dims, blocks)

    index: dict[str, str] = {}
    for number, shard in enumerate(split_by_bytes([source(*t) for t in shape.tensors()], SHARD_BYTES)):
        path = folder / f"model-{number:05d}.safetensors"
        write_safetensors(path, shard)
        index.update({item.name: path.name for item in shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = shape.to_config()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(build_tokenizer().to_str())
    return folder


class Peak:
    """The largest RssAnon while it is open, in bytes."""

    def __enter__(self) -> Peak:
        self.bytes = self._now()
        self.before = self.bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.bytes = max(self.bytes, self._now())

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("/proc/self/status has no RssAnon")


def measure(step: str, folder: Path, out: Path, device: str) -> dict[str, Any]:
    """One step, in this process."""
    resident = 0
    with Peak() as peak:
        begin = time.perf_counter()
        if step == "export":
            source = locate(folder)
            if not isinstance(source, AdaptedBase):
                raise RuntimeError(f"{folder}: not a base with a package")
            export(source, out)
        else:
            path, arguments = locate(folder if step == "load and merge" else out).engine_arguments()
            engine = runtime().Engine(path, device=device, **arguments)
            if device == "cpu":
                resident = engine.info["weight_bytes"] - _table_bytes(engine.info)
        seconds = time.perf_counter() - begin
    return {
        "step": step,
        "seconds": round(seconds, 2),
        "peak_anonymous_gb": round((peak.bytes - peak.before) / 1e9, 3),
        "of_which_weights_gb": round(resident / 1e9, 3),
    }


def _table_bytes(info: dict[str, Any]) -> int:
    """The embedding is read from the mapped file."""
    return int(info["vocab_size"] * info["hidden_size"] * 2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(PUBLISHED), default="9b")
    parser.add_argument("--layers", type=int, default=0, help="only the first so many")
    parser.add_argument("--folder", type=Path, required=True, help="is made, and removed at the end")
    parser.add_argument("--out", type=Path, help="where the export goes (default: FOLDER/out)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = args.out or args.folder / "out"
    if args.step:
        print(json.dumps(measure(args.step, args.folder, out, args.device)))
        return 0
    shape = shape_of(args.shape, args.layers)
    record: dict[str, Any] = {"shape": args.shape, "layers": len(shape.layer_types), "device": args.device}
    record["weights_gb"] = round(shape.parameters() * 2 / 1e9, 2)
    record["cpus"] = os.cpu_count()
    try:
        adapters.write_package(args.folder, shape.to_config())
        begin = time.perf_counter()
        write_base(args.folder / "base", shape)
        record["write_base_seconds"] = round(time.perf_counter() - begin, 1)
        record["steps"] = []
        print(f"{args.shape}, {record['layers']} layers, {record['weights_gb']} GB, {args.device}\n")
        print("| step | seconds | peak anonymous GB | of which the model's weights |\n|---|---:|---:|---:|")
        for step in STEPS:
            command = [sys.executable, __file__, "--folder", args.folder, "--out", out, "--step", step]
            done = subprocess.run(
                [*map(str, command), "--device", args.device], capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(f"{step}: {done.stderr[-2000:]}")
            row = json.loads(done.stdout)
            record["steps"].append(row)
            print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1))
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
