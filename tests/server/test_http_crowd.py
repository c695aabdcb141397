"""200 clients at once, a fifth of whom leave early: the others get what they get alone, and nothing stays."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc

from openjev.settings import Settings
from tests.server.support import Servers, Service, ask, choice, noul, score

CLIENTS = 200
LEAVERS = CLIENTS // 5
ROUNDS = 3
ALLOWED_GROWTH = CLIENTS * 512  # bytes a round: a leak of nothing but the bodies would exceed it


def request(index: int) -> dict[str, object]:
    return ask(
        f"case {index} " + "and so on " * 20,
        a=noul(f"Is it {index}?"),
        b=choice("left", "right", str(index)),
        c=score("low", "high"),
    )


async def crowd(service: Service, alone: list[bytes], draw: random.Random) -> None:
    """One round: everybody asks, the leavers are gone before the engine has worked through the queue.

    An open connection holds far more than what would be a leak, and how many a round leaves open is chance.
    """
    async with service.own_connections():
        await ask_and_leave(service, alone, draw)
    scheduler = service.host.scheduler
    assert scheduler is not None
    assert (scheduler.waiting_requests, scheduler.waiting_tokens, scheduler.running_requests) == (0, 0, 0)
    service.engine.prompts.clear()


async def ask_and_leave(service: Service, alone: list[bytes], draw: random.Random) -> None:
    service.engine.hold()
    order = draw.sample(range(CLIENTS), CLIENTS)
    tasks = {index: asyncio.ensure_future(service.post(request(index))) for index in order}
    await service.engine.entered()
    leavers = set(draw.sample(order, LEAVERS))
    for index in leavers:
        await asyncio.sleep(0)
        tasks[index].cancel()
    service.engine.release()
    for index, task in tasks.items():
        try:
            answer = await task
        except asyncio.CancelledError:
            assert index in leavers
        else:
            assert (answer.status, answer.body) == (200, alone[index])
            leavers.discard(index)
    assert all(tasks[index].cancelled() for index in leavers)
    await asyncio.wait_for(service.quiet(), 20)


def test_answers_in_a_crowd_are_the_answers_alone_and_memory_stays_flat(servers: Servers) -> None:
    async def body(service: Service) -> None:
        draw = random.Random(200)
        alone = []
        async with service.own_connections():
            for index in range(CLIENTS):
                answer = await service.post(request(index))
                assert answer.status == 200
                alone.append(answer.body)
        for _ in range(2):  # caches and buffers reach their size
            await crowd(service, alone, draw)
        before = traced_bytes()
        for _ in range(ROUNDS):
            await crowd(service, alone, draw)
        assert traced_bytes() - before < ROUNDS * ALLOWED_GROWTH

    # Before the server exists: what is replaced later must have been counted when it was made.
    tracemalloc.start()
    try:
        servers.run(body, Settings(queue_requests=CLIENTS, queue_tokens=10**7))
    finally:
        tracemalloc.stop()


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
