"""Checks ledgers: schema, hashes, figures and verdicts computed again.

    python -m bench.validate LEDGER.json ...
    python -m bench.validate --agree FIRST.json SECOND.json     two runs of one plan, within its `agreement`

Prints each fault; exit status 1 when there is one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import ledger, validation
from bench.harness.hashing import digest


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.validate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ledgers", nargs="+", type=Path, metavar="LEDGER.json")
    parser.add_argument("--agree", action="store_true", help="the two ledgers are runs of one plan")
    args = parser.parse_args(argv)
    if args.agree and len(args.ledgers) != 2:
        parser.error(f"--agree: found {len(args.ledgers)} ledgers, allowed: 2")
    found = []
    loaded = []
    for path in args.ledgers:
        try:
            loaded.append(ledger.read(path))
        except (OSError, ValueError) as error:
            found.append(f"{path.name}: {error}")
            continue
        faults = validation.faults(loaded[-1])
        found += [f"{path.name}: {fault}" for fault in faults or _plan(path, loaded[-1])]
    if args.agree and not found:
        try:
            found += validation.disagreements(*loaded)
        except ValueError as error:
            found.append(str(error))
    for fault in found:
        print(fault)
    if not found:
        print(f"{len(loaded)} valid" + (", in agreement" if args.agree else ""))
    return 1 if found else 0


def _plan(path: Path, record: Any) -> list[str]:
    """A fault when the plan written before the run lies beside the ledger and is not the ledger's."""
    written = path.with_name(f"{path.stem}.plan.json")
    if not written.is_file() or digest(ledger.read(written)) == digest(record.get("plan")):
        return []
    return [f"plan: not the one in {written.name}"]


if __name__ == "__main__":
    sys.exit(main())
