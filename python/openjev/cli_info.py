"""`openjev info`: what a checkpoint is, without loading its weights."""

from __future__ import annotations

import argparse
import json
from typing import Any

from openjev.backbone import FULL_ATTENTION, BackboneShape
from openjev.checkpoints import (
    KnownCheckpoint,
    caveat,
    find,
    identify,
    served_names,
)
from openjev.cli_input import InputError, decode, parse_json, read_file
from openjev.contract import DEFAULT_LIMITS
from openjev.demo import DEMO_ID, demo_facts
from openjev.errors import NotPulledError
from openjev.settings import Settings
from openjev.sources import AdaptedBase, ExportFolder, Source, locate


def run_info(args: argparse.Namespace, settings: Settings) -> int:
    """Describes a folder, or a known checkpoint that is not here."""
    try:
        facts = _facts(locate(args.checkpoint, download=False))
    except NotPulledError:
        row = find(args.checkpoint)
        if row is None:
            raise
        facts = _known_facts(row)
    if args.json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<{width}}  {_text(value)}")
    return 0


def _facts(source: Source) -> dict[str, Any]:
    """From config.json and the manifest. Raises CheckpointError for what a load would refuse."""
    manifest = source.manifest()
    folder = source.folder if isinstance(source, ExportFolder) else source.base
    config_file = folder / "config.json"
    config = parse_json(decode(read_file(str(config_file)), str(config_file)), str(config_file))
    try:
        shape = BackboneShape.from_config(config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{config_file}: found no usable numbers of a text backbone: {error!r}") from None
    row = identify(manifest)
    demo = manifest["checkpoint"]["id"] == DEMO_ID
    letters = manifest["readout"] == "letters"
    text = config.get("text_config", config)
    stored = text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "bfloat16"
    return {
        "folder": str(folder),
        **({"package": str(source.package.root)} if isinstance(source, AdaptedBase) else {}),
        "names": list(served_names(manifest)),
        "family": row.family if row else "cua-s1" if letters else "open-jev",
        "answers": caveat(manifest) or "as trained",
        **(demo_facts() if demo else {}),
        "checkpoint": _revision(manifest["checkpoint"]),
        "base": _revision(manifest["base"]),
        "revisions": "pinned" if row else "not pinned: the checkpoint is not in the table of known ones",
        "format": manifest["format"],
        "readout": "26 option letters" if letters else "one scalar per candidate",
        "temperature": manifest["temperature"],
        **_sizes(shape, item_bytes=4 if stored == "float32" else 2),
        **_limits(manifest["max_length"], letters=letters),
    }


def _known_facts(row: KnownCheckpoint) -> dict[str, Any]:
    letters = row.family == "cua-s1"
    return {
        "folder": f"not here: openjev pull {row.name}, or the path of an export folder",
        "names": list(row.wire_names()),
        "family": row.family,
        "checkpoint": f"{row.checkpoint_id} @ {row.checkpoint_revision}",
        "base": f"{row.base_id} @ {row.base_revision}",
        "readout": "26 option letters" if letters else "one scalar per candidate",
        "temperature": row.temperature if row.temperature is not None else 1.0,
        **_sizes(row.shape, item_bytes=2),
        **_limits(row.max_length, letters=letters),
    }


def _sizes(shape: BackboneShape, item_bytes: int) -> dict[str, Any]:
    full = shape.layer_types.count(FULL_ATTENTION)
    parameters = shape.parameters()
    weights = _bytes(parameters * item_bytes)
    return {
        "layers": f"{len(shape.layer_types)}: {len(shape.layer_types) - full} linear, {full} full attention",
        "hidden_size": shape.hidden_size,
        "vocabulary": shape.vocab_size,
        "parameters": parameters,
        "weights": f"{'BF16' if item_bytes == 2 else 'F32'}, {weights}",
        "memory_cpu": f"{weights} for one copy of the weights, and space that grows with --batch-tokens",
        "memory_gpu": f"{_bytes(2 * parameters)} for the weights (BF16), 1 GiB for graphs, and for a prompt",
    }


def _limits(max_length: int, *, letters: bool) -> dict[str, Any]:
    limits = DEFAULT_LIMITS
    return {
        "tokens_per_prompt": max_length,
        "options_per_choice": 26 if letters else limits.options,
        "levels_per_score": "not offered" if letters else limits.levels,
    }


def _revision(identity: dict[str, str]) -> str:
    return f"{identity['id'] or 'not named'} @ {identity['revision'] or 'not stated'}"


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
