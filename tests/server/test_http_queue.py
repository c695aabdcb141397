"""Requests that wait: refused, abandoned, batched, late; and that none harms another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from openjev.settings import Settings
from tests.server.support import Answer, Servers, Service, ask, noul


async def until(condition: Callable[[], bool]) -> None:
    """Lets the server work until `condition()` holds."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not come true within 10 seconds")


def start(service: Service, state: str) -> asyncio.Task[Answer]:
    return asyncio.ensure_future(service.post(ask(state)))


async def waiting(service: Service, count: int) -> None:
    """Returns when `count` requests wait."""
    scheduler = service.host.scheduler
    assert scheduler is not None
    await until(lambda: scheduler.waiting_requests == count)


async def start_held(service: Service) -> asyncio.Task[Answer]:
    """One request inside the engine, which stays there until `release`."""
    service.engine.hold()
    running = start(service, "running")
    await service.engine.entered()
    return running


def test_a_full_queue_refuses_with_529_and_a_plain_number_to_retry_after(servers: Servers) -> None:
    async def body(service: Service) -> None:
        tasks = [await start_held(service), start(service, "a"), start(service, "b")]
        await waiting(service, 2)
        refused = await service.post(ask("surplus"))
        assert (refused.status, refused.error["error_type"]) == (529, "overloaded_error")
        assert int(refused.headers["Retry-After"]) >= 1
        service.engine.release()
        assert [(await task).status for task in tasks] == [200, 200, 200]
        assert not service.engine.reached("surplus")
        assert (await service.post(ask("surplus"))).status == 200

    servers.run(body, Settings(queue_requests=2))


def test_a_queue_full_by_tokens_refuses_with_529(servers: Servers) -> None:
    async def body(service: Service) -> None:
        tasks = [await start_held(service), start(service, "a" * 300)]
        await waiting(service, 1)
        assert (await service.post(ask("b" * 300))).status == 529
        service.engine.release()
        assert [(await task).status for task in tasks] == [200, 200]

    servers.run(body, Settings(queue_tokens=100))


def test_a_request_whose_client_leaves_while_it_waits_never_runs(servers: Servers) -> None:
    async def body(service: Service) -> None:
        running = await start_held(service)
        leaver, stayer = start(service, "leaver"), start(service, "stayer")
        await waiting(service, 2)
        leaver.cancel()
        await waiting(service, 1)
        service.engine.release()
        assert (await running).status == (await stayer).status == 200
        assert service.engine.reached("stayer")
        assert not service.engine.reached("leaver")
        assert b"openjev_clients_left_total 1.0" in (await service.get("/metrics")).body

    servers.run(body)


def test_a_request_whose_client_leaves_while_it_runs_keeps_its_place(servers: Servers) -> None:
    async def body(service: Service) -> None:
        running = await start_held(service)
        other = start(service, "other")
        await waiting(service, 1)
        running.cancel()
        await asyncio.sleep(0.05)
        scheduler = service.host.scheduler
        assert scheduler is not None
        assert (scheduler.running_requests, scheduler.waiting_requests) == (1, 1)
        service.engine.release()
        assert (await other).body == (await service.post(ask("other"))).body

    servers.run(body)


def test_waiting_requests_share_an_engine_call_and_get_the_answers_they_get_alone(servers: Servers) -> None:
    states = [f"state {i}" for i in range(12)]

    async def body(service: Service) -> None:
        alone = [(await service.post(ask(state))).body for state in states]
        running = await start_held(service)
        tasks = []
        for count, state in enumerate(states, 1):
            tasks.append(start(service, state))
            await waiting(service, count)
        service.engine.release()
        assert [(await task).body for task in tasks] == alone
        assert (await running).status == 200
        assert [len(call) for call in service.engine.prompts] == [1, 12]

    servers.run(body)


def test_an_engine_call_that_fails_harms_only_the_request_at_fault(servers: Servers) -> None:
    async def body(service: Service) -> None:
        right = (await service.post(ask("good"))).body
        running = await start_held(service)
        tasks = []
        for count, state in enumerate(["good", "poisoned", "good"], 1):
            tasks.append(start(service, state))
            await waiting(service, count)
        service.engine.release()
        first, bad, last = [await task for task in tasks]
        assert (first.body, last.body) == (right, right)
        assert (bad.status, bad.error["error_type"]) == (500, "internal_error")
        assert (await running).status == 200

    servers.run(body, engine=servers.engine(poison="poisoned"))


def test_a_request_that_takes_too_long_gets_a_504_and_leaves_the_queue(servers: Servers) -> None:
    async def body(service: Service) -> None:
        running = await start_held(service)
        tardy = await service.post(ask("tardy"))
        assert (tardy.status, tardy.error["error_type"]) == (504, "timeout_error")
        assert (await running).status == 504
        service.engine.release()
        await waiting(service, 0)
        assert (await service.post(ask("next"))).status == 200
        assert not service.engine.reached("tardy")

    servers.run(body, Settings(request_timeout=0.2))


def test_an_invalid_request_never_waits(servers: Servers) -> None:
    async def body(service: Service) -> None:
        running = await start_held(service)
        assert (await service.post(ask(q={"type": "noul"}))).status == 422
        service.engine.release()
        assert (await running).status == 200

    servers.run(body)


def test_a_large_request_fits_into_an_empty_queue(servers: Servers) -> None:
    async def body(service: Service) -> None:
        questions = {f"q{i}": noul(f"Is it {i}?") for i in range(50)}
        assert (await service.post(ask("big", **questions))).status == 200

    servers.run(body, Settings(queue_tokens=10, batch_tokens=10))


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(servers: Servers) -> None:
    async def body(service: Service) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        content = json.dumps(ask("half")).encode()
        writer.write(b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(content) + content[:20])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.wait_for(service.quiet(), 10)
        assert not service.engine.reached("half")
        assert (await service.post(ask())).status == 200

    servers.run(body)
