"""The protocol as a server sees it: what is sent, in which order, and where it ends."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.harness import protocol, workloads
from bench.harness.checkpoints import Checkpoint
from bench.harness.client import Connection, run_pass
from bench.harness.counting import PromptCounter

from openjev.seeded import build_checkpoint
from tests.bench.ledgers import PLAN, noul
from tests.bench.scripted_server import ScriptedServer, scripted
from tests.conformance.service import SMALL

Json = dict[str, Any]
Run = Callable[[ScriptedServer, list[int]], tuple[Json, Json]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("demo"), config=SMALL, max_length=200)


@pytest.fixture
def made(folder: Path) -> workloads.Workload:
    spec = {"name": "short", "generator": "noul", "seed": "s", "tokens": [70, 75, 80, 71, 72]}
    return workloads.generate(spec, PromptCounter(folder))


@pytest.fixture
def run(folder: Path, made: workloads.Workload, tmp_path: Path) -> Run:
    def run(server: ScriptedServer, concurrency: list[int]) -> tuple[Json, Json]:
        """The arm's row and the responses."""
        plan = copy.deepcopy(PLAN)
        plan["protocol"]["concurrency"] = concurrency
        arm = {"name": "peer", "kind": "url", "url": server.url}
        checkpoint = Checkpoint(folder, "own", seeded=False)
        recorder = protocol.Recorder({}, protocol.new_row(arm, checkpoint, "python"))
        counter = PromptCounter(folder)
        log = tmp_path / "log"
        protocol.run_arm(
            plan, arm, checkpoint, {"short": made}, counter, recorder, log, "python", lambda _: None
        )
        return recorder.row, recorder.responses

    return run


def answers(number: int, body: bytes) -> tuple[int, Any]:
    """A response that depends on the request; what cannot be read, or is too long, is a 422."""
    try:
        request = json.loads(body)
    except ValueError:
        return 422, {"detail": "not JSON"}
    if request["model"] != workloads.MODEL or "ranking" in body.decode() or len(body) > 1200:
        return 422, {"detail": "no"}
    return 200, {**noul(len(body) / 10_000), "timings": {"call": number}}


def test_first_request_feasibility_pass_two_measured_passes_then_errors(
    run: Run, made: workloads.Workload
) -> None:
    with scripted(answers) as server:
        row, responses = run(server, [1])
    bodies = [request.body for request in made.requests]
    assert (row["status"], row["reason"]) == ("completed", "")
    assert server.bodies[:16] == bodies[:1] + 3 * bodies
    assert len(server.bodies) == 16 + 5
    (measurement,) = row["measurements"]
    assert [one["pass"] for one in measurement["passes"]] == [1, 2]
    for one in measurement["passes"]:
        assert [r["id"] for r in one["requests"]] == [f"short/{i:03d}" for i in range(5)]
        assert all(r["ms"] > 0 and r["model_ms"] == 1.25 for r in one["requests"])
        assert sum(r["ms"] for r in one["requests"]) <= 1e3 * one["wall_s"] + 0.01
    assert len(responses) == 5, "timing fields do not make a response another"
    assert [error["case"] for error in row["errors"]] == [
        "near limit",
        "oversize",
        "malformed",
        "unknown model",
        "unknown type",
    ]


def test_each_concurrency_has_a_feasibility_pass_and_two_measured_ones(run: Run) -> None:
    with scripted(answers, pause_s=0.02) as server:
        row, _ = run(server, [1, 3])
    assert [(m["concurrency"], len(m["passes"])) for m in row["measurements"]] == [(1, 2), (3, 2)]
    assert len(server.bodies) == 1 + 2 * 3 * 5 + 5
    assert server.most_open == 3


def test_connections_are_kept_through_a_pass(made: workloads.Workload) -> None:
    with scripted(answers) as server:
        run_pass(lambda: Connection(server.url, 10), made.requests, 2)
    assert len(set(server.peers)) <= 2 < len(server.peers)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, {"detail": "broken"}), 'status 500: {"detail": "broken"}'),
        ((200, b"\xff"), "status 0: UnicodeDecodeError"),
        ((200, b"{"), "JSONDecodeError"),
    ],
)
def test_a_failed_request_ends_the_arm_and_is_named(
    answer: tuple[int, Any], said: str, run: Run, made: workloads.Workload
) -> None:
    bad = made.requests[2].body

    def script(number: int, body: bytes) -> tuple[int, Any]:
        return answer if body == bad and number > 6 else answers(number, body)

    with scripted(script) as server:
        row, _ = run(server, [1])
    assert row["status"] == "failed"
    assert said in row["reason"]
    assert row["measurements"][0]["passes"] == [], "only the feasibility pass was whole"
    assert row["errors"] == []
    if "JSON" not in said:
        assert len(server.bodies) == 1 + 5 + 3, "nothing is sent after the request that failed"


def test_a_server_that_is_not_there_is_a_failed_arm(run: Run) -> None:
    with scripted(answers) as server:
        pass
    row, _ = run(server, [1])
    assert row["status"] == "failed"
    assert "ConnectionRefusedError" in row["reason"]


def test_an_answer_outside_the_allowed_statuses_is_not_as_expected(run: Run) -> None:
    def script(number: int, body: bytes) -> tuple[int, Any]:
        status, answer = answers(number, body)
        return (200, noul(0.1)) if status == 422 else (status, answer)

    with scripted(script) as server:
        row, _ = run(server, [1])
    assert [error["as_expected"] for error in row["errors"]] == [True, False, False, False, False]


def test_one_connection_takes_several_requests() -> None:
    with scripted(lambda number, _: (200, {"number": number})) as server:
        connection = Connection(server.url, 10)
        replies = [connection.post(b"{}") for _ in range(3)]
        connection.close()
    assert [(r.status, json.loads(r.text)["number"]) for r in replies] == [(200, 0), (200, 1), (200, 2)]
    assert len(set(server.peers)) == 1


@pytest.mark.parametrize("url", ["localhost:80", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: http://HOST:PORT"):
        Connection(url, 1)
