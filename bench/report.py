"""Turns ledgers into Markdown tables and figures.

    python -m bench.report LEDGER.json ...                              prints the tables
    python -m bench.report LEDGER.json ... --figures DIR                also draws SVG and PNG files
    python -m bench.report LEDGER.json ... --docs docs/benchmarks.md    puts the tables between their markers

A ledger that is not valid is refused: exit status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.harness import figures, ledger, tables, validation


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ledgers", nargs="+", type=Path, metavar="LEDGER.json")
    parser.add_argument("--figures", type=Path, metavar="DIR")
    parser.add_argument("--docs", type=Path, metavar="FILE.md")
    args = parser.parse_args(argv)
    text = args.docs.read_text(encoding="utf-8") if args.docs else ""
    for path in args.ledgers:
        try:
            record = ledger.read(path)
            found = validation.faults(record)
        except (OSError, ValueError) as error:
            found = [str(error)]
        if found:
            print(f"{path.name}: not valid: {found[0]}", file=sys.stderr)
            return 1
        block = tables.markdown(record, os.path.relpath(path, args.docs.parent) if args.docs else path.name)
        if args.figures:
            drawn = figures.draw(record, args.figures, path.stem)
            if args.docs:
                block += _links(drawn, args.docs)
        if args.docs:
            text = tables.replace_block(text, path.stem, block)
        else:
            print(block)
    if args.docs:
        args.docs.write_text(text, encoding="utf-8")
    return 0


def _links(drawn: Sequence[Path], docs: Path) -> str:
    """Markdown links of figures as seen from the page."""
    links = [f"[{path.stem}]({os.path.relpath(path, docs.parent)})" for path in drawn]
    return f"\nFigures: {', '.join(links)}.\n" if links else ""


if __name__ == "__main__":
    sys.exit(main())
