"""The handlers. Each raises ApiError for whatever is not a 200; the gate makes the answer."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from openjev.contract import DEFAULT_LIMITS
from openjev.errors import (
    BadRequestError,
    DeviceUnavailableError,
    LimitError,
    RequestError,
    UnsupportedRequestError,
)
from openjev.model import DecisionModel, Prepared
from openjev.model_info import ModelInfo
from openjev.settings import Settings
from openjev_server import metrics as metrics_module
from openjev_server import openapi, wire
from openjev_server.auth import BearerAuth, is_loopback
from openjev_server.body import read_body
from openjev_server.errors import (
    RETRY_SOON,
    ApiError,
    failure,
    internal_error,
    invalid,
    usage_error,
)
from openjev_server.lifecycle import EngineScheduler, Logits, ModelHost
from openjev_server.metrics import Metrics
from openjev_server.reply import reply
from openjev_server.scheduler import Outcome, QueueFullError, StoppedError

_LOG = logging.getLogger(__name__)

INLINE_BYTES = 8192
"""Bodies up to this size are prepared on the event loop: handing them to a thread would take longer."""

RELEASE_DATE = "2026-12-02"
"""Of this server. `GET /v1/models` must name a day, and export folders do not record the checkpoint's."""

_LOADING_RETRY_S = 2
_FORWARDED = ("Forwarded", "X-Forwarded-For")


class Routes:
    """The handlers of one application."""

    def __init__(
        self, settings: Settings, host: ModelHost, auth: BearerAuth, metrics: Metrics, version: str
    ) -> None:
        self._settings = settings
        self._host = host
        self._metrics = metrics
        self._auth = auth
        # Two: a long text must not hold up the next one, and tokenization competes with the engine for cores.
        self._pool = ThreadPoolExecutor(2, "openjev-prepare")
        limit = settings.max_body_bytes
        self._openapi = wire.encode(
            openapi.describe(version, DEFAULT_LIMITS, max_body_bytes=limit, authenticated=auth.enabled)
        )

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/v1/systemone", self.decide)
        app.router.add_post("/v1/inference", self.decide)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        app.router.add_get("/openapi.json", self.describe)
        app.router.add_get("/metrics", self.metrics)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def decide(self, request: web.Request) -> web.Response:
        """POST /v1/systemone: prepare, admit, execute, finish."""
        started = time.perf_counter()
        model, scheduler = self._ready()
        body = await read_body(request, self._settings.max_body_bytes)
        read = time.perf_counter()
        try:
            scheduler.check_room()
            long = len(body) > INLINE_BYTES
            prepared = await self._off_loop_if(long, self._prepare, model, body)
            prepared_at = time.perf_counter()
            outcome = await self._run(scheduler, prepared)
            answer = await self._off_loop_if(long, self._finish, model, prepared, outcome)
        except Exception as exc:
            raise self._as_api_error(exc) from exc
        total = time.perf_counter() - started
        self._metrics.decided(len(prepared.request.questions), total, outcome.queue_seconds)
        timing = (
            f"body;dur={1e3 * (read - started):.3f}, prepare;dur={1e3 * (prepared_at - read):.3f}, "
            f"queue;dur={1e3 * outcome.queue_seconds:.3f}, model;dur={1e3 * outcome.engine_seconds:.3f}, "
            f"total;dur={1e3 * total:.3f}"
        )
        return reply(answer, headers={"Server-Timing": timing})

    def _ready(self) -> tuple[DecisionModel, EngineScheduler]:
        host = self._host
        if host.phase == "ready" and host.model is not None and host.scheduler is not None:
            return host.model, host.scheduler
        if host.phase == "draining":
            raise failure(503, "unavailable", "The server is stopping.", retry_after=RETRY_SOON)
        if host.phase == "failed":
            message = f"The model is not available: {host.reason}"
            raise failure(503, "unavailable", message, retry_after=_LOADING_RETRY_S)
        raise failure(503, "loading", "The model is still loading.", retry_after=_LOADING_RETRY_S)

    async def _off_loop_if(self, long: bool, work: Callable[..., Any], *args: Any) -> Any:
        if not long:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(work, *args))

    def _prepare(self, model: DecisionModel, body: bytes) -> Prepared:
        return model.prepare(wire.parse(body, model.limits.depth))

    async def _run(self, scheduler: EngineScheduler, prepared: Prepared) -> Outcome[Logits]:
        settings = self._settings
        cost = prepared.rows if settings.share_prefixes else prepared.input_tokens
        waiting = scheduler.submit(prepared, cost)
        return await (
            asyncio.wait_for(waiting, settings.request_timeout) if settings.request_timeout else waiting
        )

    def _finish(self, model: DecisionModel, prepared: Prepared, outcome: Outcome[Logits]) -> bytes:
        answer = model.finish(prepared, outcome.result).to_dict()
        if self._settings.upstream_metadata:
            answer["metadata"] = _upstream_metadata(model.info, prepared, outcome.engine_seconds)
        return wire.encode(answer)

    def _as_api_error(self, exc: Exception) -> ApiError:
        """The answer to whatever a stage raised."""
        if isinstance(exc, ApiError):
            return exc
        if isinstance(exc, RequestError):
            return invalid(exc.issues)
        if isinstance(exc, UnsupportedRequestError):
            return usage_error(str(exc))
        if isinstance(exc, QueueFullError):
            return failure(529, "overloaded_error", f"The queue is full: {exc}.", retry_after=exc.retry_after)
        if isinstance(exc, asyncio.TimeoutError):
            seconds = self._settings.request_timeout
            return failure(504, "timeout_error", f"No answer within the allowed {seconds:g} seconds.")
        if isinstance(exc, StoppedError):
            return failure(503, "unavailable", "The server is stopping.", retry_after=RETRY_SOON)
        if isinstance(exc, (LimitError, BadRequestError)):
            return usage_error(str(exc))
        if isinstance(exc, DeviceUnavailableError):
            self._host.fail(f"{type(exc).__name__}: {exc}")
            _LOG.error("the device is gone; decisions are refused from now on", exc_info=exc)
            return failure(503, "unavailable", "The model's device is gone.", retry_after=_LOADING_RETRY_S)
        _LOG.error("the model failed on a request", exc_info=exc)
        return internal_error()

    async def models(self, request: web.Request) -> web.Response:
        """GET /v1/models: one entry for each name that `model` may have."""
        info = self._ready()[0].info
        names = dict.fromkeys((info.name, *info.aliases))
        entries = [_model_entry(name, info) for name in names]
        return reply(wire.encode({"models": entries}))

    async def health(self, request: web.Request) -> web.Response:
        """GET /health: 200 only while decisions are answered."""
        host = self._host
        state: dict[str, Any] = {"status": host.phase}
        if host.model is not None:
            info = host.model.info
            state |= {"model": info.name, "device": info.device, "demo": info.demo}
        if host.phase == "ready":
            return reply(wire.encode(state))
        if host.reason:
            state["reason"] = host.reason
        return reply(wire.encode(state), 503, {"Retry-After": str(_LOADING_RETRY_S)})

    async def describe(self, request: web.Request) -> web.Response:
        """GET /openapi.json."""
        return reply(self._openapi)

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics: free for callers on this machine, which a proxy's callers are not."""
        forwarded = any(name in request.headers for name in _FORWARDED)
        if forwarded or not is_loopback(request.remote):
            self._auth.check(request.headers.get("Authorization"))
        return reply(self._metrics.text(), content_type=metrics_module.CONTENT_TYPE)


def _model_entry(name: str, info: ModelInfo) -> dict[str, str]:
    what = info.checkpoint.get("id") or info.base.get("id") or info.family
    description = f"{what} on {info.device}" if name == info.name else f"another name of {info.name}"
    return {"id": name, "name": name, "description": description, "release_date": RELEASE_DATE}


def _upstream_metadata(info: ModelInfo, prepared: Prepared, engine_seconds: float) -> dict[str, Any]:
    """The top-level object that Open-Jev's own harness reads its identity fields from."""
    return {
        "method": info.family,
        "temperature": info.temperature,
        "candidate_sequences": prepared.prompts,
        "inference_seconds": engine_seconds,
        "base_revision": info.base.get("revision"),
        "checkpoint_revision": info.checkpoint.get("revision"),
        "max_length": info.max_length,
        "backbone_parameter_dtypes": [info.weight_dtype],
        **info.extensions(),
    }
