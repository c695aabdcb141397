"""A known checkpoint of a small size, with the files that a hub would have of it.

As a program it is the `openjev` command with that one checkpoint in its table:
`python -m tests.known ROW.json COMMAND ...`
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from openjev import checkpoints
from openjev.backbone import BackboneShape
from openjev.checkpoints import OPEN_JEV_LORA, KnownCheckpoint
from openjev.package import sha256_of
from tests import adapters
from tests.hub import Hub

BASE_ID = "Qwen/Qwen3.5-Tiny"
CHECKPOINT_ID = "ZefanCai/Open-Jev-Tiny"
BASE_REVISION = "1" * 40
CHECKPOINT_REVISION = "2" * 40
NAME = "open-jev-tiny"


def publish(hub: Hub, folder: Path) -> KnownCheckpoint:
    """Writes base and package below `folder`, puts them on the hub, and returns the row for the table."""
    base = adapters.write_base(folder / "base", layout="original", shards=3, tied=False)
    config = adapters.config_of(base)
    adapters.write_package(folder / "repo", config, base=(BASE_ID, BASE_REVISION), name=CHECKPOINT_ID)
    (folder / "repo" / "README.md").write_text("not needed")
    hub.add_folder(BASE_ID, BASE_REVISION, base)
    hub.add_folder(CHECKPOINT_ID, CHECKPOINT_REVISION, folder / "repo")
    checkpoint = folder / "repo" / "package" / "checkpoint"
    return KnownCheckpoint(
        name=NAME,
        aliases=(),
        checkpoint_id=CHECKPOINT_ID,
        checkpoint_revision=CHECKPOINT_REVISION,
        base_id=BASE_ID,
        base_revision=BASE_REVISION,
        family="open-jev",
        max_length=1024,
        temperature=adapters.TEMPERATURE,
        shape=BackboneShape.from_config(config),
        lora=OPEN_JEV_LORA,
        hashes={
            "adapter_model.safetensors": sha256_of(checkpoint / "adapter" / "adapter_model.safetensors"),
            "head.pt": sha256_of(checkpoint / "head.pt"),
        },
    )


def to_json(row: KnownCheckpoint) -> str:
    return json.dumps(dataclasses.asdict(row))


def from_json(text: str) -> KnownCheckpoint:
    fields: dict[str, Any] = json.loads(text)
    fields["shape"] = BackboneShape(
        **{**fields["shape"], "layer_types": tuple(fields["shape"]["layer_types"])}
    )
    fields["lora"] = OPEN_JEV_LORA
    fields["aliases"] = tuple(fields["aliases"])
    return KnownCheckpoint(**fields)


def main() -> int:
    from openjev import cli

    checkpoints.CHECKPOINTS = (from_json(Path(sys.argv[1]).read_text()),)
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
