"""Loading, readiness, stopping: in this process and as a process that gets signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openjev.errors import CheckpointError
from openjev.model import DecisionModel
from tests.server.process import ServerProcess, decide, exchange, fake_server, server_process
from tests.server.support import Servers, Service, ask

OPEN_ROUTES = ("/openapi.json", "/metrics")


def test_t23_health_is_503_until_a_forward_ran_and_then_names_the_device(servers: Servers) -> None:
    proceed = threading.Event()
    engine = servers.engine()

    def load() -> DecisionModel:
        assert proceed.wait(20)
        engine.hold()
        return servers.model(engine)

    async def body(service: Service) -> None:
        for request in (service.get("/health"), service.post(ask()), service.get("/v1/models")):
            answer = await request
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
        assert (await service.get("/health")).json == {"status": "loading"}
        assert (await service.post(ask())).error["error_type"] == "loading"
        for path in OPEN_ROUTES:
            assert (await service.get(path)).status == 200
        proceed.set()
        await engine.entered()  # loaded, and inside the warm-up's forward
        assert (await service.get("/health")).status == 503
        engine.release()
        await asyncio.wait_for(service.host.settled.wait(), 20)
        health = await service.get("/health")
        assert health.status == 200
        assert health.json == {"status": "ready", "model": "fake-1b", "device": "cpu", "demo": False}

    servers.run(body, engine=engine, load=load, ready=False)


@pytest.mark.parametrize("when", ["loading", "warm-up"])
def test_t23_a_failed_load_is_a_503_with_its_reason(servers: Servers, when: str) -> None:
    def load() -> DecisionModel:
        if when == "loading":
            raise CheckpointError("base.revision: found abc, allowed: def")
        failing = servers.engine(poison="Context", error=CheckpointError("found abc, allowed: def"))
        return servers.model(failing)

    async def body(service: Service) -> None:
        await asyncio.wait_for(service.host.settled.wait(), 20)
        health = await service.get("/health")
        assert (health.status, health.json["status"]) == (503, "failed")
        assert "found abc, allowed: def" in health.json["reason"]
        answer = await service.post(ask())
        assert (answer.status, answer.error["error_type"]) == (503, "unavailable")

    servers.run(body, load=load, ready=False)


def test_a_draining_server_finishes_what_it_has_and_refuses_what_is_new(servers: Servers) -> None:
    async def body(service: Service) -> None:
        service.engine.hold()
        running = asyncio.ensure_future(service.post(ask("running")))
        await service.engine.entered()
        waiting = asyncio.ensure_future(service.post(ask("waiting")))
        while service.host.scheduler is None or service.host.scheduler.waiting_requests == 0:
            await asyncio.sleep(0.005)
        service.host.drain()
        refused = await service.post(ask("new"))
        assert (refused.status, refused.error["error_type"]) == (503, "unavailable")
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.headers["Connection"] == "close"
        health = await service.get("/health")
        assert (health.status, health.json["status"]) == (503, "draining")
        service.engine.release()
        assert [(await task).status for task in (running, waiting)] == [200, 200]
        await asyncio.wait_for(service.quiet(), 10)
        assert not service.engine.reached("new")

    servers.run(body)


def ready(server: ServerProcess) -> None:
    server.wait_for("ready: fake-1b on cpu")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish_refuses_new_ones_and_exits_0(
    servers: Servers, number: int
) -> None:
    command = fake_server(servers.folder, engine_seconds=0.7)
    with server_process(command) as server, ThreadPoolExecutor(2) as pool:
        ready(server)
        with contextlib.closing(server.connect()) as kept:
            assert exchange(kept, "GET", "/health")[0] == 200
            answers = [pool.submit(server.decide, ask(state)) for state in ("running", "waiting")]
            wait_until(lambda: server.open_requests() == 2)
            server.stop(number)
            server.wait_for("stopping")
            status, refused = decide(kept, ask("new"))
        assert (status, refused["detail"]["error_type"]) == (503, "unavailable")
        with pytest.raises(ConnectionRefusedError):
            server.connect().connect()
        assert [answer.result()[0] for answer in answers] == [200, 200]
        assert server.exit_code() == 0


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition did not come true within 10 seconds")


def test_an_engine_call_that_outlives_the_drain_time_does_not_keep_the_process(servers: Servers) -> None:
    command = fake_server(servers.folder, engine_seconds=100, settings={"drain_seconds": 0.3})
    with server_process(command) as server, ThreadPoolExecutor(1) as pool:
        ready(server)
        stuck = pool.submit(server.decide, ask("stuck"))
        wait_until(lambda: server.open_requests() == 1)
        server.stop()
        status, answer = stuck.result(30)
        assert (status, answer["detail"]["error_type"]) == (503, "unavailable")
        assert server.exit_code(30) == 0
        assert "giving up" in server.stderr


def test_a_second_signal_ends_the_drain(servers: Servers) -> None:
    with (
        server_process(fake_server(servers.folder, engine_seconds=100)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        ready(server)
        stuck = pool.submit(server.decide, ask("stuck"))
        wait_until(lambda: server.open_requests() == 1)
        server.stop()
        server.wait_for("stopping")
        server.stop()
        assert stuck.result(30)[0] == 503
        assert server.exit_code(30) == 0


def test_a_signal_while_loading_exits_0_at_once(servers: Servers) -> None:
    with server_process(fake_server(servers.folder, load_seconds=100)) as server:
        assert server.health() == (503, {"status": "loading"})
        server.stop()
        assert server.exit_code(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_port_is_open_exits_0(servers: Servers, number: int) -> None:
    # Loading begins before the port opens.
    with server_process(fake_server(servers.folder, load_signal=number, load_seconds=100)) as server:
        assert server.exit_code(30) == 0


def test_a_model_that_does_not_load_ends_the_process_with_the_reason(servers: Servers) -> None:
    command = fake_server(servers.folder, load_error="base.revision: found abc, allowed: def")
    with server_process(command) as server:
        assert server.exit_code() == 1
        assert "base.revision: found abc, allowed: def" in server.stderr


def test_a_port_in_use_ends_the_process_with_its_number(servers: Servers) -> None:
    with server_process(fake_server(servers.folder)) as first:
        settings = {"port": first.port}
        with server_process(fake_server(servers.folder, settings=settings)) as second:
            assert second.exit_code() == 1
            assert f"port {first.port}" in second.stderr


def test_t14_an_open_address_without_a_key_is_warned_about(servers: Servers) -> None:
    cases = [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "api_key": "k"}, False),
        ({"host": "127.0.0.1"}, False),
    ]
    for settings, warned in cases:
        with server_process(fake_server(servers.folder, settings=settings)) as server:
            ready(server)
            server.stop()
            assert server.exit_code() == 0
            assert ("no API key is set and 0.0.0.0 is not a loopback address" in server.stderr) == warned


def openjev_serve(*flags: str) -> list[str]:
    """The real command on the demo checkpoint; any attempt to open a connection ends it with exit code 70."""
    guard = (
        "import os, socket, sys\n"
        "def refuse(*_):\n"
        "    sys.stderr.write('outgoing connection\\n'); os._exit(70)\n"
        "socket.socket.connect = socket.socket.connect_ex = refuse\n"
        "from openjev.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    return [sys.executable, "-c", guard, "serve", "--port", "0", *flags]


def test_t18_the_demo_checkpoint_serves_without_a_network_and_says_what_it_is() -> None:
    with server_process(openjev_serve(), {"HF_HUB_OFFLINE": "1"}) as server:
        server.wait_for("ready: openjev-demo on cpu", 120)
        assert "not for real decisions" in server.wait_for(".*demonstration.*")[0]
        status, health = server.health()
        assert (status, health["status"], health["device"]) == (200, "ready", "cpu")
        status, answer = server.decide(ask("The parcel is late."))
        assert status == 200
        assert 0 <= answer["answers"]["q"]["noul"] <= 1
        server.stop()
        assert server.exit_code() == 0


def test_t23_a_folder_made_from_another_revision_ends_the_process_with_both(tmp_path: Any) -> None:
    from openjev.checkpoints import CHECKPOINTS
    from openjev.seeded import build_checkpoint

    known = CHECKPOINTS[0]
    folder = build_checkpoint(tmp_path / "checkpoint")
    manifest = json.loads((folder / "decision.json").read_text())
    manifest["base"] = {"id": known.base_id, "revision": "0" * 40}
    manifest["checkpoint"] = {"id": known.checkpoint_id, "revision": known.checkpoint_revision}
    (folder / "decision.json").write_text(json.dumps(manifest))
    with server_process(openjev_serve("--model", str(folder))) as server:
        assert server.exit_code(120) == 1
        assert "0" * 40 in server.stderr
        assert known.base_revision in server.stderr
