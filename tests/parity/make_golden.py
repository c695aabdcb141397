"""Writes tests/data/golden/*.safetensors: what Transformers computes in float32 for the tiny seeded models.

    .venv-parity/bin/python tests/parity/make_golden.py [--out tests/data/golden]

Per model, float32: L{n}.last [H] for every length; L{n}.stream [layers + 1, H], the residual stream
of the last token, to find the layer where a difference starts; L200.final [200, H]; continued [136, H], rows
64 to 199 from the cache that the first 64 tokens left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from tests.compare import relative_l2
from tests.parity import hf, tiny_models


def golden(model: tiny_models.SeededModel, folder: Path) -> dict[str, np.ndarray]:
    exact = hf.load(folder, torch.float32)
    ids = model.token_ids(max(tiny_models.LENGTHS))
    out: dict[str, np.ndarray] = {}
    for length in tiny_models.LENGTHS:
        rows = hf.run(exact, ids[:length])
        out[f"L{length}.last"] = rows.final[-1].copy()
        out[f"L{length}.stream"] = rows.stream[:, -1].copy()
    out[f"L{ids.size}.final"] = hf.run(exact, ids).final
    out["continued"] = hf.continued(exact, ids, tiny_models.CUT)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "data" / "golden")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # one order of adding, so that a second run writes the same bytes
    for name, model in tiny_models.MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = tiny_models.write_checkpoint(Path(scratch) / name, model)
            tensors = golden(model, folder)
            ids = model.token_ids(max(tiny_models.LENGTHS))
            longest = max(tiny_models.LENGTHS)
            eager = hf.run(hf.load(folder, torch.float32, "eager"), ids).final
            rounded = hf.run(hf.load(folder, torch.bfloat16), ids).final
        path = arguments.out / f"{name}.safetensors"
        metadata = {**hf.versions(), "model": name, "fingerprint": tiny_models.fingerprint(model)}
        tiny_models.write_arrays(path, tensors, metadata)
        whole = tensors[f"L{longest}.final"]
        print(
            f"{path.name}: {path.stat().st_size} bytes; relative L2 to the one-pass rows: continued "
            f"{relative_l2(tensors['continued'], whole[tiny_models.CUT :]):.1e}, eager attention "
            f"{relative_l2(eager, whole):.1e}, bfloat16 {relative_l2(rounded, whole):.1e}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
