"""The queue: order, bounds, cancellation, and what a failed engine call does to whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_server.scheduler import CallStats, QueueFullError, Scheduler, StoppedError

Call = list[str]


class GatedEngine:
    """Doubles strings; each call waits until the test lets it go, and names in `bad` make a call fail."""

    def __init__(self, *, held: bool = True, bad: Sequence[str] = ()) -> None:
        self.calls: list[Call] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.held = held
        self.bad = set(bad)

    def __call__(self, batch: Sequence[str]) -> list[str]:
        self.calls.append(list(batch))
        self.entered.release()
        if self.held:
            assert self.gate.acquire(timeout=10)
        if self.bad & set(batch):
            raise ValueError(f"cannot score {sorted(self.bad & set(batch))}")
        return [item * 2 for item in batch]

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, True, 10)


def scenario(
    engine: GatedEngine, body: Callable[[Scheduler[str, str]], Awaitable[Any]], **limits: int
) -> Any:
    """Runs `body` with a scheduler over `engine`."""

    async def main() -> Any:
        bounds: dict[str, Any] = {"queue_requests": 8, "queue_tokens": 100, "batch_tokens": 10, **limits}
        scheduler = Scheduler[str, str](engine, **bounds)
        try:
            return await body(scheduler)
        finally:
            engine.held = False
            engine.gate.release(100)
            scheduler.close()

    return asyncio.run(main())


async def queued(scheduler: Scheduler[str, str], *items: tuple[str, int]) -> list[asyncio.Task[Any]]:
    """Submits in order and lets each reach the queue."""
    tasks = []
    for item, tokens in items:
        tasks.append(asyncio.ensure_future(scheduler.submit(item, tokens)))
        await asyncio.sleep(0)
    return tasks


def test_a_result_comes_with_its_waiting_and_engine_time() -> None:
    outcome = scenario(GatedEngine(held=False), lambda s: s.submit("ab", 3))
    assert outcome.result == "abab"
    assert outcome.queue_seconds >= 0
    assert outcome.engine_seconds > 0


def test_waiting_requests_share_the_next_call_in_order_up_to_the_token_budget() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> list[str]:
        tasks = await queued(scheduler, ("first", 1), ("a", 4), ("b", 6), ("c", 1), ("big", 50), ("d", 2))
        engine.gate.release(10)
        return [outcome.result for outcome in await asyncio.gather(*tasks)]

    results = scenario(engine, body)
    assert results == ["firstfirst", "aa", "bb", "cc", "bigbig", "dd"]
    assert engine.calls == [["first"], ["a", "b"], ["c"], ["big"], ["d"]]


def test_the_queue_refuses_what_exceeds_its_number_of_requests() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> None:
        await queued(scheduler, ("running", 1), ("a", 1), ("b", 1))
        with pytest.raises(QueueFullError, match="2 requests are waiting; allowed: 2") as refused:
            await scheduler.submit("c", 1)
        assert refused.value.retry_after >= 1

    scenario(engine, body, queue_requests=2)


def test_the_queue_refuses_what_exceeds_its_tokens() -> None:
    async def body(scheduler: Scheduler[str, str]) -> None:
        await queued(scheduler, ("running", 1), ("a", 60))
        with pytest.raises(
            QueueFullError, match="60 tokens are waiting and this request has 41; allowed: 100"
        ):
            await scheduler.submit("b", 41)
        await queued(scheduler, ("c", 40))
        assert scheduler.waiting_tokens == 100

    scenario(GatedEngine(), body)


def test_an_empty_queue_takes_a_request_of_any_size() -> None:
    engine = GatedEngine(held=False)
    assert scenario(engine, lambda s: s.submit("huge", 10**6)).result == "hugehuge"


def test_a_cancelled_waiting_request_never_reaches_the_engine_and_frees_its_place() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> None:
        running, leaver, stayer = await queued(scheduler, ("running", 1), ("leaver", 70), ("stayer", 1))
        leaver.cancel()
        await asyncio.sleep(0)
        assert (scheduler.waiting_requests, scheduler.waiting_tokens) == (1, 1)
        engine.gate.release(10)
        assert (await stayer).result == "stayerstayer"
        assert (await running).result == "runningrunning"
        assert leaver.cancelled()

    scenario(engine, body)
    assert engine.calls == [["running"], ["stayer"]]


def test_a_request_cancelled_in_the_step_in_which_its_turn_comes_does_not_run() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> None:
        _, leaver, stayer = await queued(scheduler, ("running", 1), ("leaver", 1), ("stayer", 1))
        await engine.wait_entered()
        engine.gate.release(10)
        # The engine thread finishes while the loop is held here; the cancellation is the loop's next step.
        threading.Event().wait(0.05)
        leaver.cancel()
        assert (await stayer).result == "stayerstayer"

    scenario(engine, body)
    assert engine.calls == [["running"], ["stayer"]]


def test_a_cancelled_running_request_keeps_its_place_and_harms_nobody() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> None:
        running, other = await queued(scheduler, ("running", 1), ("other", 1))
        await engine.wait_entered()
        running.cancel()
        await asyncio.sleep(0)
        assert scheduler.running_requests == 1
        engine.gate.release(10)
        assert (await other).result == "otherother"

    scenario(engine, body)
    assert engine.calls == [["running"], ["other"]]


def test_when_a_call_with_several_fails_only_the_one_at_fault_does() -> None:
    engine = GatedEngine(bad=["bad"])

    async def body(scheduler: Scheduler[str, str]) -> list[Any]:
        tasks = await queued(scheduler, ("first", 1), ("a", 1), ("bad", 1), ("b", 1))
        engine.gate.release(10)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, a, bad, b = scenario(engine, body)
    assert [first.result, a.result, b.result] == ["firstfirst", "aa", "bb"]
    assert isinstance(bad, ValueError)
    assert engine.calls == [["first"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]


def test_a_failed_call_with_one_request_is_not_repeated() -> None:
    engine = GatedEngine(held=False, bad=["bad"])
    with pytest.raises(ValueError, match="cannot score"):
        scenario(engine, lambda s: s.submit("bad", 1))
    assert engine.calls == [["bad"]]


def test_an_engine_that_returns_too_few_results_fails_the_request() -> None:
    async def main() -> None:
        scheduler = Scheduler[str, str](lambda _: [], queue_requests=1, queue_tokens=1, batch_tokens=1)
        try:
            with pytest.raises(RuntimeError, match="0 results for 1 requests"):
                await scheduler.submit("a", 1)
        finally:
            scheduler.close()

    asyncio.run(main())


def test_closing_fails_what_waits_and_what_runs_and_refuses_what_comes() -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> list[Any]:
        tasks = await queued(scheduler, ("running", 1), ("waiting", 1))
        await engine.wait_entered()
        scheduler.close()
        with pytest.raises(StoppedError):
            await scheduler.submit("late", 1)
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(result) for result in scenario(engine, body)] == [StoppedError, StoppedError]
    assert engine.calls == [["running"]]


def test_every_finished_call_is_reported() -> None:
    seen: list[CallStats] = []

    async def main() -> None:
        engine = GatedEngine(held=False, bad=["bad"])
        scheduler = Scheduler[str, str](
            engine, queue_requests=8, queue_tokens=100, batch_tokens=10, on_call=seen.append
        )
        await scheduler.submit("good", 3)
        with pytest.raises(ValueError):
            await scheduler.submit("bad", 2)
        scheduler.close()

    asyncio.run(main())
    assert [(call.requests, call.tokens, call.failed) for call in seen] == [(1, 3, False), (1, 2, True)]


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    leavers=st.sets(st.integers(0, 29)),
    budget=st.integers(1, 20),
)
def test_whatever_leaves_nothing_is_lost_repeated_or_reordered(
    sizes: list[int], leavers: set[int], budget: int
) -> None:
    engine = GatedEngine()

    async def body(scheduler: Scheduler[str, str]) -> None:
        tasks = await queued(scheduler, *((f"{i}.", size) for i, size in enumerate(sizes)))
        for index in leavers:
            if 0 < index < len(tasks):
                tasks[index].cancel()
        engine.gate.release(1000)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for index, result in enumerate(results):
            if index in leavers and index > 0:
                assert isinstance(result, asyncio.CancelledError)
            else:
                assert not isinstance(result, BaseException)
                assert result.result == f"{index}.{index}."
        assert (scheduler.waiting_requests, scheduler.waiting_tokens) == (0, 0)

    scenario(engine, body, queue_requests=100, queue_tokens=10**6, batch_tokens=budget)
    ran = [item for call in engine.calls for item in call]
    assert ran == [f"{i}." for i in range(len(sizes)) if i == 0 or i not in leavers]
    for call in engine.calls:
        assert len(call) == 1 or sum(sizes[int(item[:-1])] for item in call) <= budget
