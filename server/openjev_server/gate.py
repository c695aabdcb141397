"""The gate every request passes: browser origin, key, errors as JSON, counters, open requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware

from openjev_server.auth import BearerAuth, OriginRule
from openjev_server.errors import ApiError, from_http_exception, internal_error
from openjev_server.metrics import Metrics
from openjev_server.reply import REQUEST_ID, reply

_LOG = logging.getLogger(__name__)

_NEEDS_KEY = frozenset({"/v1/systemone", "/v1/inference", "/v1/models"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gate:
    """One middleware for all routes. `draining`: whether connections are closed after their answer."""

    def __init__(
        self, auth: BearerAuth, origins: OriginRule, metrics: Metrics, draining: Callable[[], bool]
    ) -> None:
        self._auth = auth
        self._origins = origins
        self._metrics = metrics
        self._draining = draining
        self._open = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def wait_until_quiet(self) -> None:
        """Returns when no request is inside a handler."""
        await self._quiet.wait()

    def middleware(self) -> Middleware:
        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._open += 1
            self._quiet.clear()
            try:
                return await self._answer(request, handler)
            except asyncio.CancelledError:
                self._metrics.client_left()
                raise
            finally:
                self._open -= 1
                if not self._open:
                    self._quiet.set()

        return gate

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        cors: Mapping[str, str] | None = None
        response: web.StreamResponse
        try:
            headers = request.headers
            if "Origin" in headers:
                cors = self._origins.check(headers["Origin"], headers.get("Host"))
            response = await self._pass(request, handler)
        except ApiError as error:
            response = error.response()
        except web.HTTPException as exc:
            response = from_http_exception(exc, request.method, request.path).response()
        except Exception:
            _LOG.exception("a handler failed")
            response = internal_error().response()
        if cors:
            response.headers.update(cors)
        if self._draining():
            response.force_close()
        self._metrics.answered(_route_name(request), response.status)
        if _LOG.isEnabledFor(logging.DEBUG):
            request_id = response.headers[REQUEST_ID]
            _LOG.debug("%s %s %d %s", request.method, request.path, response.status, request_id)
        return response

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return self._preflight(request)
        if request.path in _NEEDS_KEY:
            self._auth.check(request.headers.get("Authorization"))
        return await handler(request)

    def _preflight(self, request: web.Request) -> web.Response:
        # A preflight without an origin has nobody to allow anything to; "null" is never allowed.
        origin = request.headers.get("Origin", "null")
        private_network = request.headers.get("Access-Control-Request-Private-Network") == "true"
        return reply(b"", 204, self._origins.preflight(origin, request.headers.get("Host"), private_network))


def _route_name(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "other"
