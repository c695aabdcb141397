"""`openjev pull`, `openjev export` and `openjev verify`: checkpoints brought here, merged, and checked."""

from __future__ import annotations

import argparse
from pathlib import Path

from openjev.checkpoints import CHECKPOINTS, find
from openjev.cli_input import InputError
from openjev.export import export
from openjev.progress import load_progress
from openjev.pull import pull
from openjev.settings import Settings
from openjev.sources import pair
from openjev.verify import verify


def run_pull(args: argparse.Namespace, settings: Settings) -> int:
    """Downloads what a known checkpoint needs and prints where base and package are."""
    row = find(args.name)
    if row is None:
        known = ", ".join(known.name for known in CHECKPOINTS)
        raise InputError(f"{args.name}: found no such name, allowed: one of {known}, or the hub's id of one")
    source = pull(row)
    source.manifest()
    print(f"base     {source.base}")
    print(f"package  {source.package.root}")
    return 0


def run_export(args: argparse.Namespace, settings: Settings) -> int:
    """Writes the merged folder and prints its path."""
    source = pair(args.base, args.adapter)
    with load_progress() as progress:
        out = export(source, Path(args.out), compat=args.compat, threads=settings.threads, progress=progress)
    print(out)
    return 0


def run_verify(args: argparse.Namespace, settings: Settings) -> int:
    """Reads every byte of a checkpoint and prints one line for each thing that was checked."""
    with load_progress() as progress:
        findings = verify(args.checkpoint, progress=progress)
    for line in findings:
        print(line)
    return 0
