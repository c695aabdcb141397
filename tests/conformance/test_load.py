"""200 clients at once on the real engine, a fifth of whom leave: answers as if each had been alone."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.conformance.service import JSON, Service, choice, noul, score, serving

CLIENTS = 200
LEAVERS = CLIENTS // 5
ROUNDS = 3
MOST_GROWTH = 8 << 20
"""Resident bytes, from the end of the first round to the end of the last."""

QUEUE = 8


@pytest.fixture(scope="module")
def narrow(small_folder: Path) -> Iterator[Service]:
    """A server that lets few wait and runs one at a time."""
    with serving(small_folder, "--queue-requests", str(QUEUE), "--batch-tokens", "64") as service:
        yield service


def body(index: int) -> bytes:
    questions = {"a": noul(f"Is it {index}?"), "b": choice("left", str(index)), "c": score("low", "high")}
    return json.dumps({"state": f"case {index}", "questions": questions}).encode()


def alone(service: Service) -> list[bytes]:
    replies = [service.post(body(index)) for index in range(CLIENTS)]
    assert all(reply.status == 200 for reply in replies)
    return [reply.body for reply in replies]


Answer = tuple[int, bytes, str]


async def post(session: aiohttp.ClientSession, url: str, index: int) -> Answer:
    """Status, body and Retry-After."""
    async with session.post(f"{url}/v1/systemone", data=body(index), headers=JSON) as response:
        return response.status, await response.read(), response.headers.get("Retry-After", "")


async def crowd(url: str, leavers: dict[int, float]) -> list[Answer | None]:
    """Everybody asks at once; `leavers` hang up after so many seconds, and get None if that was early."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(post(session, url, index)) for index in range(CLIENTS)]
        for index, seconds in leavers.items():
            asyncio.get_running_loop().call_later(seconds, tasks[index].cancel)
        await asyncio.wait(tasks)
        return [None if task.cancelled() else task.result() for task in tasks]


def metric(service: Service, name: str) -> float:
    text = service.call("GET", "/metrics").body.decode()
    found = re.search(rf"^{name} ([0-9.e+]+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def wait_until_idle(service: Service) -> None:
    """Nothing of those who left stays in the queue or in the engine."""
    deadline = time.monotonic() + 30
    while service.process.open_requests():
        assert time.monotonic() < deadline, "requests are still open"
        time.sleep(0.02)
    assert metric(service, "openjev_queue_tokens") == 0


def test_a_crowd_with_leavers_gets_the_bytes_of_the_requests_alone(crowded: Service) -> None:
    want = alone(crowded)
    draw = random.Random(200)
    memory = []
    for _ in range(1 + ROUNDS):  # in the first, buffers and connections reach their size
        leavers = {index: draw.uniform(0, 0.4) for index in draw.sample(range(CLIENTS), LEAVERS)}
        answers = asyncio.run(crowd(crowded.url, leavers))
        for index, answer in enumerate(answers):
            if answer is None:
                assert index in leavers
            else:
                assert answer[:2] == (200, want[index])
        wait_until_idle(crowded)
        memory.append(crowded.memory())
    assert metric(crowded, "openjev_clients_left_total") > 0
    assert memory[-1] - memory[0] < MOST_GROWTH, memory


def test_a_crowd_beyond_the_queue_is_refused_and_may_try_again(narrow: Service) -> None:
    want = alone(narrow)
    answers = asyncio.run(crowd(narrow.url, {}))
    refused = []
    for index, answer in enumerate(answers):
        assert answer is not None
        status, text, retry_after = answer
        if status == 200:
            assert text == want[index]
            continue
        assert status == 529
        assert json.loads(text)["detail"]["error_type"] == "overloaded_error"
        assert 1 <= int(retry_after) <= 30
        refused.append(index)
    assert 0 < len(refused) < CLIENTS - QUEUE
    wait_until_idle(narrow)
    assert all(narrow.post(body(index)).body == want[index] for index in refused[:20])
