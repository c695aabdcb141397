"""The bundled demonstration model: small, trained on made-up text, in the formats of the published ones.

`demo_checkpoint/` holds base/ and package/ as `openjev serve FOLDER` takes them, and record.json, which the
training wrote: settings, hashes of the data, curves, figures of the test. docs/demo-training.md says more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DEMO_ID = "openjev/demo"
DEMO_CAVEAT = "a small demonstration model, trained on made-up text of eight domains: not for real decisions"

_FOLDER = Path(__file__).parent / "demo_checkpoint"


def demo_folder() -> Path:
    """The folder with base/ and package/."""
    return _FOLDER


def demo_facts() -> dict[str, str]:
    """What the model was trained on and what it reached on rows that it had not seen, for `openjev info`."""
    record: dict[str, Any] = json.loads((_FOLDER / "record.json").read_text(encoding="utf-8"))
    test, settings = record["test"], record["settings"]
    rows = settings["rows"] + settings["rows"] // 4
    accuracy = {name: part["accuracy"] for name, part in test["by_domain"].items()}
    lowest = min(accuracy, key=lambda name: accuracy[name])
    return {
        "trained_on": f"{rows:,} generated rows, seed {settings['seed']}: {', '.join(accuracy)}",
        "test": f"{test['questions']:,} rows of unseen templates and names: "
        f"{test['noul_and_choice']['accuracy']:.1%} of noul and choice right, "
        f"least in {lowest} ({accuracy[lowest]:.1%} of all types), "
        f"expected calibration error {test['ece']['after']:.3f}, "
        f"scores off by {test['score_mae']:.2f} levels",
    }
