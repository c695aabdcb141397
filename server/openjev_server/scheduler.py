"""Admission and execution: a bounded first-in-first-out queue in front of the one engine.

    submit -> waiting (bounded by requests and by tokens) -> running (one engine call at a time) -> outcome

Everything but the engine call itself happens on the event loop, so the queue needs no lock. The engine runs
in one thread of its own; a call takes as many waiting requests, in order, as fit its token budget, and always
at least one.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_RETRY_MAX_S = 30
_SMOOTHING = 0.2


class QueueFullError(Exception):
    """The queue holds no more; `retry_after` is a whole number of seconds until it should."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppedError(Exception):
    """The scheduler was closed before this request could finish."""


@dataclass(frozen=True)
class Outcome(Generic[ResultT]):
    """A result and the seconds its request waited and its engine call took."""

    result: ResultT
    queue_seconds: float
    engine_seconds: float


@dataclass(eq=False)
class _Job(Generic[ItemT, ResultT]):
    item: ItemT
    tokens: int
    admitted: float
    future: asyncio.Future[Outcome[ResultT]]


@dataclass(frozen=True)
class _Report(Generic[ResultT]):
    """The engine thread's word on one job; `seconds` is the duration of the call that settled it."""

    result: ResultT | Exception
    started: float
    seconds: float


@dataclass(frozen=True)
class CallStats:
    """One engine call as seen from outside: how many requests and tokens it took, and how long."""

    requests: int
    tokens: int
    seconds: float
    failed: bool


class Scheduler(Generic[ItemT, ResultT]):
    """Runs `execute` on batches of submitted items. Create it, and use it, on the event loop.

    `execute` is called in the engine thread, never twice at once, and returns one result for each item in
    order. When a call with several items raises, each item is called again alone, so that only the one at
    fault fails. `on_call` is told about each finished call, on the event loop. `on_idle` does one piece of
    work that is better done between calls, on the engine's thread, and says whether there was any.
    """

    def __init__(
        self,
        execute: Callable[[Sequence[ItemT]], Sequence[ResultT]],
        *,
        queue_requests: int,
        queue_tokens: int,
        batch_tokens: int,
        on_call: Callable[[CallStats], None] | None = None,
        on_idle: Callable[[], bool] | None = None,
    ) -> None:
        self._execute = execute
        self._queue_requests = queue_requests
        self._queue_tokens = queue_tokens
        self._batch_tokens = batch_tokens
        self._on_call = on_call
        self._on_idle = on_idle
        self._calls: list[CallStats] = []
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job[ItemT, ResultT]] = deque()
        self._waiting_tokens = 0
        self._running: list[_Job[ItemT, ResultT]] = []
        self._seconds_per_token = 0.0
        self._closed = False
        self._inbox: queue.SimpleQueue[list[_Job[ItemT, ResultT]] | None] = queue.SimpleQueue()
        # A daemon: a call that outlives the drain time must not keep the process alive.
        self._thread = threading.Thread(target=self._engine_loop, name="openjev-engine", daemon=True)
        self._thread.start()

    @property
    def waiting_requests(self) -> int:
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        return self._waiting_tokens

    @property
    def running_requests(self) -> int:
        return len(self._running)

    def check_room(self, tokens: int = 0) -> None:
        """Raises QueueFullError when a request of `tokens` tokens could not be admitted now.

        An empty queue takes a request of any size: what a single request may hold is the contract's matter.
        """
        if self._closed:
            raise StoppedError
        count = len(self._waiting)
        if count >= self._queue_requests:
            message = f"{count} requests are waiting; allowed: {self._queue_requests}"
            raise QueueFullError(message, self._retry_after())
        if count and self._waiting_tokens + tokens > self._queue_tokens:
            message = f"{self._waiting_tokens} tokens are waiting and this request has {tokens}"
            raise QueueFullError(f"{message}; allowed: {self._queue_tokens}", self._retry_after())

    async def submit(self, item: ItemT, tokens: int) -> Outcome[ResultT]:
        """Waits for the item's turn and its result; whatever `execute` raised for it is raised here.

        Cancelling the caller removes a waiting item, which then never runs; a running one keeps its place and
        its result is dropped. Raises QueueFullError at once, StoppedError when the scheduler closes first.
        """
        self.check_room(tokens)
        job = _Job(item, tokens, time.perf_counter(), self._loop.create_future())
        self._waiting.append(job)
        self._waiting_tokens += tokens
        self._start_next()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._withdraw(job)
            raise

    def close(self) -> None:
        """Fails what has not finished with StoppedError and ends the engine thread after its current call."""
        self._closed = True
        for job in (*self._waiting, *self._running):
            if not job.future.done():
                job.future.set_exception(StoppedError())
        self._waiting.clear()
        self._waiting_tokens = 0
        self._inbox.put(None)

    @property
    def busy(self) -> bool:
        """Whether an engine call is running, also after `close`."""
        return bool(self._running)

    def _withdraw(self, job: _Job[ItemT, ResultT]) -> None:
        try:
            self._waiting.remove(job)
        except ValueError:
            return  # it runs, or has been taken out already
        self._waiting_tokens -= job.tokens

    def _start_next(self) -> None:
        if self._running or self._closed:
            return
        batch: list[_Job[ItemT, ResultT]] = []
        room = self._batch_tokens
        while self._waiting and (not batch or self._waiting[0].tokens <= room):
            job = self._waiting.popleft()
            self._waiting_tokens -= job.tokens
            # Cancelled, but its caller has not been scheduled yet to withdraw it.
            if not job.future.cancelled():
                batch.append(job)
                room -= job.tokens
        if batch:
            self._running = batch
            self._inbox.put(batch)

    def _engine_loop(self) -> None:
        while (batch := self._next_batch()) is not None:
            reports = self._run(batch)
            calls, self._calls = self._calls, []
            try:
                self._loop.call_soon_threadsafe(self._settle, batch, reports, calls)
            except RuntimeError:
                return  # the loop was closed while the engine ran
            del batch, reports  # nothing of a finished request stays alive while the thread waits

    def _next_batch(self) -> list[_Job[ItemT, ResultT]] | None:
        """Waits for work; until it comes, does what can be done between requests, piece by piece."""
        while self._on_idle is not None:
            try:
                return self._inbox.get_nowait()
            except queue.Empty:
                if not self._on_idle():
                    break
        return self._inbox.get()

    def _run(self, batch: list[_Job[ItemT, ResultT]]) -> list[_Report[ResultT]]:
        try:
            return self._call(batch)
        except Exception as exc:
            if len(batch) == 1:
                return [_Report(exc, batch[0].admitted, 0.0)]
        return [self._call_alone(job) for job in batch]

    def _call_alone(self, job: _Job[ItemT, ResultT]) -> _Report[ResultT]:
        if job.future.cancelled():  # its client left during the call that failed
            return _Report(StoppedError(), job.admitted, 0.0)
        try:
            return self._call([job])[0]
        except Exception as exc:
            return _Report(exc, job.admitted, 0.0)

    def _call(self, batch: list[_Job[ItemT, ResultT]]) -> list[_Report[ResultT]]:
        started = time.perf_counter()
        failed = True
        try:
            results = self._execute([job.item for job in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"the engine returned {len(results)} results for {len(batch)} requests")
            failed = False
        finally:
            seconds = time.perf_counter() - started
            self._calls.append(CallStats(len(batch), sum(job.tokens for job in batch), seconds, failed))
        return [_Report(result, started, seconds) for result in results]

    def _settle(
        self, batch: list[_Job[ItemT, ResultT]], reports: list[_Report[ResultT]], calls: list[CallStats]
    ) -> None:
        self._running = []
        for job, report in zip(batch, reports, strict=True):
            if job.future.done():
                continue
            if isinstance(report.result, Exception):
                job.future.set_exception(report.result)
            else:
                waited = report.started - job.admitted
                job.future.set_result(Outcome(report.result, waited, report.seconds))
        self._start_next()
        # Behind the callers woken above: counting must not delay their answers.
        self._loop.call_soon(self._account, calls)

    def _account(self, calls: list[CallStats]) -> None:
        for call in calls:
            if not call.failed and call.tokens:
                sample = call.seconds / call.tokens
                old = self._seconds_per_token or sample
                self._seconds_per_token = old + _SMOOTHING * (sample - old)
            if self._on_call is not None:
                self._on_call(call)

    def _retry_after(self) -> int:
        pending = self._waiting_tokens + sum(job.tokens for job in self._running)
        return min(_RETRY_MAX_S, max(1, math.ceil(pending * self._seconds_per_token)))
