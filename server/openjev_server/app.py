"""The application and its life: build, listen, load, drain, exit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.metadata
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from aiohttp import web

import openjev
from openjev.model import DecisionModel
from openjev.settings import Settings
from openjev_server.auth import BearerAuth, OriginRule, is_loopback
from openjev_server.gate import Gate
from openjev_server.lifecycle import ModelHost
from openjev_server.metrics import Metrics
from openjev_server.protocol import Runner
from openjev_server.routes import Routes

_LOG = logging.getLogger(__name__)

HOST_KEY = web.AppKey("openjev.host", ModelHost)
GATE_KEY = web.AppKey("openjev.gate", Gate)

_LAST_WRITES_S = 2.0
"""After the drain, how long answers that are being written may take."""


def build_app(settings: Settings, load_model: Callable[[], DecisionModel]) -> web.Application:
    """The application: when it starts it begins to load the model in a thread, and answers meanwhile.

    Serve it through `openjev_server.protocol.Runner`: aiohttp's own runner unpacks bodies without our limits
    and answers malformed HTTP with text.
    """
    metrics = Metrics(ready=lambda: host.phase == "ready")
    host = ModelHost(settings, load_model, metrics)
    auth = BearerAuth(settings.api_key)
    origins = OriginRule(settings.cors_origin, settings.host)
    gate = Gate(auth, origins, metrics, draining=lambda: host.phase == "draining")
    routes = Routes(settings, host, auth, metrics, _version())

    async def model_and_threads(_: web.Application) -> AsyncIterator[None]:
        host.start()
        yield
        routes.close()

    async def give_up_waiting(_: web.Application) -> None:
        # Before connections are closed, so that whoever still waits is told.
        host.close()

    # client_max_size 0 switches aiohttp's own body limit off; body.py has ours.
    app = web.Application(middlewares=[gate.middleware()], client_max_size=0)
    app[HOST_KEY] = host
    app[GATE_KEY] = gate
    app.cleanup_ctx.append(model_and_threads)
    app.on_shutdown.append(give_up_waiting)
    routes.add_to(app)
    return app


def run(settings: Settings, load_model: Callable[[], DecisionModel] | None = None) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit code: 0 stopped, 1 it could not listen or load.

    `load_model` replaces the loading of `settings.model`.
    """
    _set_up_logging(settings.log_level)
    load_model = load_model or functools.partial(_load, settings)
    loop = _new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        code, clean = loop.run_until_complete(serve(settings, load_model))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    if not clean:
        # A thread is still inside native code, and the interpreter's own exit would unwind it there.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _load(settings: Settings) -> DecisionModel:
    return openjev.load(
        settings.model,
        device=settings.device,
        threads=settings.threads,
        graph_mode=settings.graph_mode,
        graph_entries=settings.graph_entries,
        matmul_mode=settings.matmul_mode,
        load_format=settings.load_format,
        max_length=settings.max_length,
        accept_any_model=settings.accept_any_model,
        literal_special_tokens=settings.literal_special_tokens,
        share_prefixes=settings.share_prefixes,
    )


async def serve(settings: Settings, load_model: Callable[[], DecisionModel]) -> tuple[int, bool]:
    """Listens, loads and serves until told to stop.

    Returns the exit code and whether all threads of the model are idle.
    """
    stop = asyncio.Event()
    with _stop_on_signals(stop):  # from before the port opens until the last write is out
        return await _serve_until(stop, settings, load_model)


async def _serve_until(
    stop: asyncio.Event, settings: Settings, load_model: Callable[[], DecisionModel]
) -> tuple[int, bool]:
    app = build_app(settings, load_model)
    host = app[HOST_KEY]
    runner = Runner(app, shutdown_timeout=_LAST_WRITES_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        try:
            await site.start()
        except OSError as exc:
            _LOG.error("cannot listen on %s port %d: %s", settings.host, settings.port, exc.strerror or exc)
            return 1, host.idle
        _announce(settings, site.port)
        await _first_of(stop.wait(), host.load_failed.wait())
        code = 0 if stop.is_set() else 1
        await site.stop()
        if code == 0:
            stop.clear()
            await _drain(app, settings.drain_seconds, stop)
    finally:
        await runner.cleanup()
    return code, host.idle


async def _drain(app: web.Application, seconds: float, hurry: asyncio.Event) -> None:
    """Finishes what has been taken in, refuses what is new on open connections; a second signal hurries."""
    app[HOST_KEY].drain()
    _LOG.info("stopping: finishing open requests, at most %g seconds", seconds)
    if not await _first_of(app[GATE_KEY].wait_until_quiet(), hurry.wait(), timeout=seconds):
        _LOG.warning("stopping: giving up requests that are still open after %g seconds", seconds)


async def _first_of(*waits: Coroutine[Any, Any, Any], timeout: float | None = None) -> bool:
    """Waits for any of `waits` and cancels the others; False when `timeout` seconds pass first."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return bool(done)


@contextlib.contextmanager
def _stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C then ends the loop directly
            loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _announce(settings: Settings, port: int) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    _LOG.info("listening on http://%s:%d, loading %s", host, port, settings.model)
    if not settings.api_key and not is_loopback(settings.host):
        _LOG.warning(
            "no API key is set and %s is not a loopback address: everybody who can reach port %d can use "
            "this model; set OPENJEV_API_KEY or listen on 127.0.0.1",
            settings.host,
            port,
        )


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _set_up_logging(level: str) -> None:
    pattern = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=level.upper(), format=pattern, stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _version() -> str:
    try:
        return importlib.metadata.version("openjev")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
