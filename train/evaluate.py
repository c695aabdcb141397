"""The trained package by Transformers and PEFT, adapter not merged: logits of held-out questions in bfloat16.

`python -m train.evaluate FOLDER OUT` with base/ and package/ in FOLDER writes logits and figures of the test.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from openjev.calibration import summary
from train.batches import Batches
from train.data.generate import DOMAINS, SEED, SIZES, examples
from train.encode import TYPES, Encoded, encode


@torch.no_grad()
def question_logits(
    model: Any, head: torch.nn.Linear, data: Encoded, device: torch.device, tokens: int = 65_536
) -> list[NDArray[np.float64]]:
    """Logits of every question, in the order of the rows; of a noul [0, s]."""
    found: list[NDArray[np.float64]] = [np.empty(0)] * data.questions
    for batch in Batches(data, device).epoch(tokens):
        hidden = model(input_ids=batch.ids, use_cache=False).last_hidden_state
        last = hidden[torch.arange(len(batch.last), device=device), batch.last]
        table = batch.table(head(last.float())[:, 0]).double().cpu().numpy()
        for row, logits in zip(batch.rows, table, strict=True):
            found[row] = logits[np.isfinite(logits)]
    return found


def figures(logits: Sequence[NDArray[np.float64]], data: Encoded, temperature: float) -> dict[str, Any]:
    """openjev.calibration.summary of encoded questions."""
    kinds = [TYPES[kind] for kind in data.kinds]
    domains = [DOMAINS[domain] for domain in data.domains]
    return summary(logits, kinds, domains, data.targets.tolist(), temperature)


def load_unmerged(folder: Path, device: torch.device) -> tuple[Any, torch.nn.Linear, float]:
    """The adapted model, its head and its temperature from base/ and package/ of `folder`."""
    from peft import PeftModel
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    checkpoint = folder / "package" / "checkpoint"
    base: Any = Qwen3_5TextModel.from_pretrained(folder / "base", dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(base, str(checkpoint / "adapter")).to(device).eval()
    head = torch.nn.Linear(base.config.hidden_size, 1)
    head.load_state_dict(torch.load(checkpoint / "head.pt", weights_only=True))
    temperature = json.loads((checkpoint / "temperature.json").read_text(encoding="utf-8"))["temperature"]
    return model, head.to(device), float(temperature)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=SIZES["test"])
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, head, temperature = load_unmerged(args.folder, device)
    tokenizer = Tokenizer.from_file(str(args.folder / "base" / "tokenizer.json"))
    data = encode(list(examples("test", 0, args.rows, args.seed)), tokenizer)
    logits = question_logits(model, head, data, device, 65_536 if device.type == "cuda" else 4_096)
    report = {**figures(logits, data, temperature), "logits": [one.tolist() for one in logits]}
    args.out.write_text(json.dumps(report) + "\n", encoding="utf-8")
    print(
        json.dumps({name: value for name, value in report.items() if name not in ("logits", "reliability")})
    )


if __name__ == "__main__":
    main()
