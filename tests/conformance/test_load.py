"""Many clients at once on the real engine, some of whom leave: answers as if each had been alone."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import aiohttp

from tests.conformance.service import Service, choice, noul, score

CLIENTS = 200
LEAVERS = 0.2
ROUNDS = 3
MOST_GROWTH = 24 * 2**20  # bytes of resident memory between the first round and the last


def request(number: int) -> dict[str, Any]:
    return {
        "state": f"Parcel {number % 40} is {number % 7} days late.",
        "questions": {"late": noul(), "who": choice("billing", "shipping"), "mood": score("calm", "angry")},
    }


def core(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in json.loads(body).items() if not name.startswith("x_")}


async def ask(session: aiohttp.ClientSession, service: Service, number: int, stays: bool) -> bytes | None:
    """The body of the answer, or None for a client that hung up before it came."""
    call = session.post(f"{service.url}/v1/systemone", json=request(number))
    if stays:
        async with call as response:
            assert response.status == 200, await response.text()
            return await response.read()
    task = asyncio.ensure_future(call.__aenter__())
    done, _ = await asyncio.wait({task}, timeout=random.Random(number).uniform(0.001, 0.05))
    if done:
        task.result().close()
    else:
        task.cancel()
    return None


async def crowd(service: Service, alone: dict[int, dict[str, Any]]) -> int:
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector) as session:
        stays = [number % round(1 / LEAVERS) != 0 for number in range(CLIENTS)]
        bodies = await asyncio.gather(*(ask(session, service, i, stay) for i, stay in enumerate(stays)))
    answered = 0
    for number, body in enumerate(bodies):
        if stays[number]:
            assert body is not None
            assert core(body) == alone[number]
            answered += 1
    return answered


def test_a_crowd_with_leavers_gets_the_answers_of_the_requests_alone(crowded: Service) -> None:
    alone = {i: core(crowded.post(request(i)).body) for i in range(CLIENTS)}
    memory = []
    for _ in range(ROUNDS):
        assert asyncio.run(crowd(crowded, alone)) == CLIENTS * (1 - LEAVERS)
        memory.append(crowded.memory())
    assert memory[-1] - memory[0] < MOST_GROWTH, memory
    assert crowded.process.open_requests() == 0
