"""What is done with one arm, in this order, and nothing else:

    start (loading and warm-up) -> first request, excluded -> for each workload and concurrency:
    one full feasibility pass, excluded, then exactly two measured passes -> error runs -> stop

A failed request ends the arm; what was measured until then stays in the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import arms, error_runs
from bench.harness.checkpoints import Checkpoint
from bench.harness.client import Connection, Pass, Sample, parse_response, run_pass
from bench.harness.counting import PromptCounter
from bench.harness.environment import TORCH_PACKAGES, gpu_facts, versions_elsewhere
from bench.harness.hashing import digest, without_timings
from bench.harness.latency import figures, ranges
from bench.harness.memory import Nvml, resident_bytes, sampled
from bench.harness.plan import Plan, cells
from bench.harness.workloads import Workload

MEASURED_PASSES = 2


class RequestFailedError(RuntimeError):
    """A request had no answer with status 200."""


@dataclass
class Recorder:
    """The rows of one arm as they come, and every distinct response, by hash, for the whole experiment."""

    responses: dict[str, Any]
    row: dict[str, Any] = field(default_factory=dict)

    def keep(self, sample: Sample) -> dict[str, Any]:
        """One request's row. Raises RequestFailedError, ValueError for a body that is not JSON."""
        if sample.reply.status != 200:
            what = f"{sample.request.id}: status {sample.reply.status}: {sample.reply.text[:300]}"
            raise RequestFailedError(what)
        response = without_timings(parse_response(sample.reply.text))
        sha256 = digest(response)
        self.responses.setdefault(sha256, response)
        return {
            "id": sample.request.id,
            "ms": round(sample.reply.ms, 4),
            "model_ms": sample.reply.model_ms,
            "response": sha256,
        }


def new_row(arm: Mapping[str, Any], checkpoint: Checkpoint, torch_python: str) -> dict[str, Any]:
    """The row of an arm that has not run yet."""
    return {
        "name": arm["name"],
        "status": "failed",
        "reason": "interrupted",
        "command": arms.shown_command(arm, checkpoint),
        "versions": _versions_of(arm, torch_python),
        "gpu_before": gpu_facts(),
        "measurements": [],
        "errors": [],
    }


def run_arm(
    plan: Plan,
    arm: Mapping[str, Any],
    checkpoint: Checkpoint,
    workloads: Mapping[str, Workload],
    counter: PromptCounter,
    recorder: Recorder,
    log: Path,
    torch_python: str,
    say: Callable[[str], None],
) -> None:
    """Fills `recorder.row`, a new_row; its status becomes "completed" or "failed", and it says why."""
    row = recorder.row
    try:
        with arms.running(arm, checkpoint, log, torch_python) as server:
            row["start_s"] = round(server.start_s, 3)
            what, read = _memory_of(arm, server)
            interval = plan["protocol"]["memory_interval_s"]
            with sampled(what, read, interval) as series:
                _measure(plan, arm, workloads, server, recorder, say)
                if plan["error_runs"]:
                    _run_errors(plan, arm, counter, server, row)
            row["memory"] = series.to_dict()
            row["gpu_after"] = gpu_facts()
        row.update(status="completed", reason="")
    except (arms.ArmError, RequestFailedError, OSError, ValueError) as error:
        row["reason"] = f"{type(error).__name__}: {error}"
        say(f"  {arm['name']}: failed: {row['reason']}")


def _versions_of(arm: Mapping[str, Any], torch_python: str) -> dict[str, str | None]:
    """Of what an arm has beside the environment of the harness."""
    if not arm["kind"].startswith("transformers"):
        return {}
    return versions_elsewhere(torch_python, TORCH_PACKAGES)


def _memory_of(arm: Mapping[str, Any], server: arms.Server) -> tuple[str, Callable[[], int] | None]:
    if str(arm.get("device", "cpu")).startswith("cuda"):
        try:
            return "device", Nvml().used_bytes
        except OSError:
            return "none", None
    if server.pid is None:
        return "none", None
    pid = server.pid
    return "process", lambda: resident_bytes(pid)


def _measure(
    plan: Plan,
    arm: Mapping[str, Any],
    workloads: Mapping[str, Workload],
    server: arms.Server,
    recorder: Recorder,
    say: Callable[[str], None],
) -> None:
    timeout = plan["protocol"]["request_timeout_s"]

    def connect() -> Connection:
        return server.connect(timeout)

    todo = cells(plan, arm)
    first = run_pass(connect, workloads[todo[0][0]].requests[:1], 1)
    recorder.row["first_request"] = recorder.keep(first.samples[0])
    for name, concurrency in todo:
        requests = workloads[name].requests
        measurement: dict[str, Any] = {"workload": name, "concurrency": concurrency, "passes": []}
        recorder.row["measurements"].append(measurement)
        feasibility = _one_pass(recorder, run_pass(connect, requests, concurrency))
        measurement["feasibility_wall_s"] = feasibility["wall_s"]
        for number in range(1, MEASURED_PASSES + 1):
            before = arms.counters(server)
            ran = run_pass(connect, requests, concurrency)
            after = arms.counters(server)
            rows = _one_pass(recorder, ran)
            rows["pass"] = number
            rows["graphs"] = {key: after[key] - before.get(key, 0.0) for key in after}
            measurement["passes"].append(rows)
        measurement["relative_range"] = ranges([one["figures"] for one in measurement["passes"]])
        say(f"  {arm['name']}: {name}, concurrency {concurrency}: {_line(measurement)}")


def _one_pass(recorder: Recorder, ran: Pass) -> dict[str, Any]:
    for sample in ran.failed:
        recorder.keep(sample)  # raises, and names the request
    rows = [recorder.keep(sample) for sample in ran.samples]
    wall = round(ran.wall_s, 6)
    questions = [sample.request.questions for sample in ran.samples]
    return {
        "wall_s": wall,
        "failures": 0,
        "requests": rows,
        "figures": figures([row["ms"] for row in rows], questions, wall),
    }


def _line(measurement: Mapping[str, Any]) -> str:
    means = " / ".join(f"{one['figures']['mean_ms']:.2f}" for one in measurement["passes"])
    return f"mean {means} ms"


def _run_errors(
    plan: Plan, arm: Mapping[str, Any], counter: PromptCounter, server: arms.Server, row: dict[str, Any]
) -> None:
    connection = server.connect(plan["protocol"]["request_timeout_s"])
    try:
        letters = plan["checkpoint"].get("readout") == "letters"
        # Every arm but a stranger's server has our own HTTP front.
        cases = error_runs.cases(counter, letters=letters, exact=arm["kind"] != "url")
        row["errors"] = error_runs.run(connection, cases)
    finally:
        connection.close()


def now() -> str:
    """UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
