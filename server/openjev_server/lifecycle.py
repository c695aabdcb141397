"""The model behind the server: loading, warm-up, readiness and the end.

    loading -> ready -> draining
            -> failed

The port is open in every phase; only `ready` answers decisions.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from openjev.model import DecisionModel, Prepared
from openjev.progress import load_progress
from openjev.settings import Settings
from openjev_server.metrics import Metrics
from openjev_server.scheduler import Scheduler

_LOG = logging.getLogger(__name__)

Phase = Literal["loading", "ready", "failed", "draining"]
Logits: TypeAlias = NDArray[np.float32]
EngineScheduler = Scheduler[Prepared, Logits]


class ModelHost:
    """Owns the model and its scheduler. All methods are for the event loop unless they say otherwise."""

    def __init__(self, settings: Settings, load: Callable[[], DecisionModel], metrics: Metrics) -> None:
        self._settings = settings
        self._load = load
        self._metrics = metrics
        self._thread: threading.Thread | None = None
        self.phase: Phase = "loading"
        self.reason = ""
        self.model: DecisionModel | None = None
        self.scheduler: EngineScheduler | None = None
        self.settled = asyncio.Event()
        """Set when the phase has left `loading`."""
        self.load_failed = asyncio.Event()

    def start(self) -> None:
        """Begins to load in a thread."""
        loop = asyncio.get_running_loop()
        # A daemon: a load cannot be interrupted, and a server told to stop must not wait for it.
        self._thread = threading.Thread(
            target=self._load_in_thread, args=(loop,), name="openjev-load", daemon=True
        )
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no thread of the model is inside native code."""
        loading = self._thread is not None and self._thread.is_alive()
        return not loading and not (self.scheduler is not None and self.scheduler.busy)

    def drain(self) -> None:
        """Refuses new decisions from now on; those already taken in go on."""
        self.phase = "draining"

    def close(self) -> None:
        """Ends the engine thread; whatever still waits fails."""
        self.drain()
        if self.scheduler is not None:
            self.scheduler.close()

    def fail(self, reason: str) -> None:
        """Turns readiness off for good."""
        self.phase, self.reason = "failed", reason
        self.settled.set()

    def _load_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            model = self._load()
            with load_progress("steps") as progress:
                model.warm_up(progress)
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}"
            _LOG.debug("loading failed", exc_info=exc)
            self._call_on(loop, self._loading_failed, reason)
        else:
            self._call_on(loop, self._loaded, model)

    @staticmethod
    def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
        try:
            loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _LOG.debug("loading ended after the server did")

    def _loading_failed(self, reason: str) -> None:
        if self.phase == "loading":
            _LOG.error("the model could not be loaded: %s", reason)
            self.fail(reason)
            self.load_failed.set()

    def _loaded(self, model: DecisionModel) -> None:
        if self.phase != "loading":
            return
        settings = self._settings
        scheduler = EngineScheduler(
            model.execute,
            queue_requests=settings.queue_requests,
            queue_tokens=settings.queue_tokens,
            batch_tokens=settings.batch_tokens,
            on_call=self._metrics.engine_call,
            on_idle=model.idle,
        )
        self._metrics.watch_queue(
            lambda: scheduler.waiting_requests,
            lambda: scheduler.waiting_tokens,
            lambda: scheduler.running_requests,
        )
        self._metrics.watch_device(model.graph_stats, model.memory)
        self.model, self.scheduler, self.phase = model, scheduler, "ready"
        self.settled.set()
        info = model.info
        if memory := model.memory_text():
            _LOG.info("device memory: %s", memory)
        _LOG.info("ready: %s on %s", info.name, info.device)
        if info.caveat:
            _LOG.warning("%s: %s", info.name, info.caveat)
