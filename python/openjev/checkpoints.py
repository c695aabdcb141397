"""Which checkpoints are known, what they are called, and where a folder for a name is.

A checkpoint of a known family is one row of `CHECKPOINTS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openjev.backbone import QWEN_2B, QWEN_4B, QWEN_9B, QWEN_27B, BackboneShape
from openjev.demo import DEMO_CAVEAT, DEMO_ID, demo_folder
from openjev.errors import CheckpointError

# What every client of the System One API asks for by default.
DEFAULT_ALIAS = "jev-latest"
SEEDED_ID = "openjev/seeded"  # of weights from a seed; a size may follow it
EXPORT_FILES = (
    "config.json, model.safetensors (or shards and model.safetensors.index.json), tokenizer.json, "
    "readout.safetensors and decision.json (or open_jev_export.json instead of the last two)"
)


@dataclass(frozen=True)
class Lora:
    """What an adapter must be: its rank, alpha, and the names of the modules that it adapts, sorted."""

    rank: int
    alpha: float
    targets: tuple[str, ...]


OPEN_JEV_LORA = Lora(8, 16.0, ("in_proj_qkv", "k_proj", "o_proj", "out_proj", "q_proj", "v_proj"))
CUA_S1_LORA = Lora(16, 32.0, ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"))


@dataclass(frozen=True)
class KnownCheckpoint:
    """One published checkpoint.

    `name` is what we serve it as; `aliases` are accepted as well, as are `checkpoint_id` and `base_id`. The
    revisions are pinned: a folder that claims this id with others is refused. `family` names prompts and
    readout, `temperature` is the published one (None: not used), `max_length` counts tokens of one prompt.
    `hashes` are the SHA-256 of published files that are known without asking anybody.
    """

    name: str
    aliases: tuple[str, ...]
    checkpoint_id: str
    checkpoint_revision: str
    base_id: str
    base_revision: str
    family: str
    max_length: int
    temperature: float | None
    shape: BackboneShape
    lora: Lora
    hashes: Mapping[str, str]

    def wire_names(self) -> tuple[str, ...]:
        """The names that a request may ask for, the served name first."""
        return (self.name, *self.aliases, self.checkpoint_id, self.base_id, DEFAULT_ALIAS)


CHECKPOINTS: tuple[KnownCheckpoint, ...] = (
    KnownCheckpoint(
        name="open-jev-2b",
        aliases=("open-jev",),
        checkpoint_id="ZefanCai/Open-Jev-2B",
        checkpoint_revision="0c7aa498b1627be8da4acf34c863ff0ee0a92785",
        base_id="Qwen/Qwen3.5-2B",
        base_revision="15852e8c16360a2fea060d615a32b45270f8a8fc",
        family="open-jev",
        max_length=4096,
        temperature=1.518796342858676,
        shape=QWEN_2B,
        lora=OPEN_JEV_LORA,
        hashes={
            "adapter_model.safetensors": "2d23935b1a7380db444abac572c04646918ba794e59002d1588236182a3ca18f",
            "head.pt": "3532cd576c58d5ad5bf17c3e9f2df4be8c70e08c07fa6bb7fa673dcd7b401f2a",
        },
    ),
    KnownCheckpoint(
        name="open-jev-9b",
        aliases=("open-jev",),
        checkpoint_id="ZefanCai/Open-Jev-9B",
        checkpoint_revision="47e966881e489511c0c7f5633a9e1960a676a551",
        base_id="Qwen/Qwen3.5-9B",
        base_revision="c202236235762e1c871ad0ccb60c8ee5ba337b9a",
        family="open-jev",
        max_length=4096,
        temperature=1.8969118766347646,
        shape=QWEN_9B,
        lora=OPEN_JEV_LORA,
        hashes={
            "adapter_model.safetensors": "f85650a8fb97c6d0ac3e948cdca2f30a0ca6ace8b8a43aebca1c152fe38aeb75",
            "head.pt": "229fe9800384e824135e59d1af59bda7346da031aea61640be5f456b9be6ce70",
        },
    ),
    KnownCheckpoint(
        name="open-jev-27b",
        aliases=("open-jev-27b-v1.1", "open-jev"),
        checkpoint_id="ZefanCai/Open-Jev-27B-v1.1",
        checkpoint_revision="28cf73067d5b337860bbef3c85b8b82ba8730956",
        base_id="Qwen/Qwen3.8-27B",
        base_revision="1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
        family="open-jev",
        max_length=4096,
        temperature=2.5343690298472983,
        shape=QWEN_27B,
        lora=OPEN_JEV_LORA,
        hashes={
            "adapter_model.safetensors": "1c857224bd3609c6a71eacf7f71dd021115fcc0f791936b1fc332e915b548a81",
            "head.pt": "76e382f122abfa4e0c467d860a8d142d2fb6d2a98dc0ef9e19870bfc6eb296b4",
        },
    ),
    KnownCheckpoint(
        name="cua-s1-4b",
        aliases=("cua-s1-4b-0.2",),
        checkpoint_id="cua-ai/cua-s1-4b-0.2",
        checkpoint_revision="16818868b0cc7813808aae4e87b417657046ab79",
        base_id="Qwen/Qwen3.5-4B",
        base_revision="851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a",
        family="cua-s1",
        max_length=16384,
        temperature=None,
        shape=QWEN_4B,
        lora=CUA_S1_LORA,
        hashes={},
    ),
)


def find(name: str) -> KnownCheckpoint | None:
    """The row that `name` means: a name, an alias of one row only, or a hub id; case does not matter."""
    wanted = name.casefold()
    rows = [
        row
        for row in CHECKPOINTS
        if wanted in {known.casefold() for known in (row.name, row.checkpoint_id, *row.aliases)}
    ]
    return rows[0] if len(rows) == 1 else None


def resolve(name_or_path: str | Path) -> Path:
    """The local folder that is meant. An existing folder wins over a name; "demo" is the bundled one.

    Raises CheckpointError for a known checkpoint, whose files `openjev.sources.locate` finds or pulls, and
    for anything that is neither.
    """
    name = os.fspath(name_or_path)
    path = os.path.expanduser(name)
    # The functions of os.path answer False for what cannot be a path at all, where pathlib raises.
    if os.path.isdir(path):
        return Path(path)
    if os.path.exists(path):
        raise CheckpointError(f"{name}: found a file, allowed: a folder with {EXPORT_FILES}")
    if name == "demo":
        return demo_folder()
    row = find(name)
    if row is not None:
        raise CheckpointError(
            f"{name}: known as {row.checkpoint_id}, but found no such folder, allowed: the path of one with "
            f"{EXPORT_FILES}; or its name, after openjev pull {row.name}"
        )
    known = ", ".join(["demo", *(row.name for row in CHECKPOINTS)])
    raise CheckpointError(
        f"{name}: found neither a folder nor a known name, allowed: one of {known}, or a folder with "
        f"{EXPORT_FILES}"
    )


def identify(manifest: Mapping[str, Any]) -> KnownCheckpoint | None:
    """The row of a loaded checkpoint, from the keys `checkpoint` and `base` ({id, revision}) of its manifest.

    A folder that does not name its checkpoint (older exports name the base only) is identified by its base.
    """
    checkpoint, base = _identity(manifest, "checkpoint")[0], _identity(manifest, "base")[0]
    for row in CHECKPOINTS:
        if checkpoint.casefold() == row.checkpoint_id.casefold():
            return row
        if not checkpoint and base.casefold() == row.base_id.casefold():
            return row
    return None


def check_identity(manifest: Mapping[str, Any], folder: str | Path) -> None:
    """Refuses a folder that claims to be a known checkpoint but has other revisions than the pinned ones.

    Weights merged onto another base load and answer, only wrongly; nothing later would notice. Raises
    CheckpointError with both revisions.
    """
    row = identify(manifest)
    if row is None:
        return
    pinned = {"base": (row.base_id, row.base_revision)}
    if _identity(manifest, "checkpoint")[0]:
        pinned["checkpoint"] = (row.checkpoint_id, row.checkpoint_revision)
    for part, (allowed_id, allowed_revision) in pinned.items():
        found_id, found = _identity(manifest, part)
        if found_id.casefold() != allowed_id.casefold():
            raise CheckpointError(
                f"{folder}: {part}.id: found {found_id or 'none'}, allowed for {row.name}: {allowed_id}"
            )
        if found != allowed_revision:
            raise CheckpointError(
                f"{folder}: {part}.revision: found {found or 'none'}, allowed for {row.name}: "
                f"{allowed_revision} of {allowed_id}"
            )


def served_names(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that requests may use for this checkpoint, the one that answers carry first; none twice.

    An unknown checkpoint is called by the last part of its id in lower case.
    """
    row = identify(manifest)
    if row is not None:
        return row.wire_names()
    checkpoint, base = _identity(manifest, "checkpoint")[0], _identity(manifest, "base")[0]
    if checkpoint == DEMO_ID:
        return ("openjev-demo", "demo", DEMO_ID, DEFAULT_ALIAS)
    own = checkpoint or base or "decision-model"
    return tuple(dict.fromkeys((own.rsplit("/", 1)[-1].lower(), own, DEFAULT_ALIAS)))


def caveat(manifest: Mapping[str, Any]) -> str:
    """Why the answers of this checkpoint are not to be relied on; empty for others."""
    checkpoint = _identity(manifest, "checkpoint")[0]
    if checkpoint == DEMO_ID:
        return DEMO_CAVEAT
    if checkpoint.startswith(SEEDED_ID):
        return "its weights are random, its answers arbitrary"
    return ""


def _identity(manifest: Mapping[str, Any], part: str) -> tuple[str, str]:
    found = manifest.get(part) or {}
    return str(found.get("id") or ""), str(found.get("revision") or "")
