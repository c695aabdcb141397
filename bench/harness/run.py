"""Runs declared experiments:

    python -m bench.harness.run PLAN.json [PLAN.json ...] --out DIR [--label 2]

For each plan DIR gets NAME.plan.json (written before anything is measured) and the ledger NAME.json, which
grows arm by arm. An experiment whose complete ledger is there already, of the same plan, is not run again;
--label names a repetition: NAME-LABEL.json. Exit status 0: every gate passed, 1: one did not, 2: a plan or
the command line was wrong, 130: interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import checkpoints, environment, gates, ledger, native, plan, protocol, workloads
from bench.harness.counting import PromptCounter

from openjev.errors import OpenJevError


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.harness.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN.json")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where ledgers and logs go")
    parser.add_argument("--label", default="", help="of a repetition; becomes part of the ledger's name")
    parser.add_argument(
        "--torch-python", default=sys.executable, help="interpreter with torch, for the Transformers arms"
    )
    parser.add_argument("--commit", default="", help="of the sources, where there is no repository")
    parser.add_argument("--workloads", type=Path, default=workloads.FOLDER, help="folder of specifications")
    parser.add_argument("--scratch", type=Path, help="folder that keeps seeded checkpoints between runs")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        declared = [plan.read(path) for path in args.plans]
    except (plan.PlanError, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        outcomes = [_experiment(one, args) for one in declared]
    except KeyboardInterrupt:
        _say("interrupted; what was measured is in the ledger")
        return 130
    return 0 if all(outcomes) else 1


def _interrupt(*_: Any) -> None:
    """So that SIGTERM unwinds like Ctrl-C: the server of the arm must not outlive the run."""
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _experiment(declared: plan.Plan, args: argparse.Namespace) -> bool:
    """Whether every gate passed."""
    name = declared["experiment"] + (f"-{args.label}" if args.label else "")
    path: Path = args.out / f"{name}.json"
    known = _complete(path, declared)
    if known is not None:
        _say(f"{name}: complete already")
        return gates.all_passed(known["verdicts"])
    planned = args.out / f"{name}.plan.json"
    planned.write_text(json.dumps(declared, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _say(f"{name}: plan {plan.sha256(declared)[:12]} written")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = args.scratch or Path(temporary)
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            record = _run(declared, args, scratch, path)
        except (OpenJevError, OSError, ImportError, ValueError) as error:
            _say(f"{name}: {type(error).__name__}: {error}")
            return False
    for verdict in record["verdicts"]:
        _say(f"  {verdict['verdict']}: {verdict['gate']} {json.dumps(verdict['found'])}")
    return gates.all_passed(record["verdicts"])


def _complete(path: Path, declared: plan.Plan) -> ledger.Ledger | None:
    """The ledger of a finished run of this very plan."""
    try:
        known = ledger.read(path)
    except (OSError, ValueError):
        return None
    same = known.get("plan_sha256") == plan.sha256(declared)
    return known if same and known.get("status") == "complete" else None


def _run(declared: plan.Plan, args: argparse.Namespace, scratch: Path, path: Path) -> ledger.Ledger:
    checkpoint = checkpoints.provide(declared["checkpoint"], scratch)
    counter = PromptCounter(checkpoint.folder)
    generated = workloads.generate_all(declared["workloads"], counter, args.workloads)
    workloads.check_hashes(generated, checkpoint.tokenizer, args.workloads)
    record = ledger.begin(declared, generated, environment.describe(args.commit))
    record["started"] = protocol.now()
    recorder = protocol.Recorder(record["responses"])
    try:
        for arm in declared["arms"]:
            _say(f"  {arm['name']}: starting")
            recorder.row = protocol.new_row(arm, checkpoint, args.torch_python)
            record["arms"].append(recorder.row)
            log = path.with_name(f"{path.stem}.{arm['name']}.log")
            protocol.run_arm(
                declared, arm, checkpoint, generated, counter, recorder, log, args.torch_python, _say
            )
            ledger.write(ledger.seal(record), path)
        for spec in declared["native"]:
            record["native"].append(native.run(spec, scratch, _say))
            ledger.write(ledger.seal(record), path)
        record["status"] = "complete"
    finally:
        record["finished"] = protocol.now()
        ledger.write(ledger.seal(record), path)
    return record


if __name__ == "__main__":
    sys.exit(main())
