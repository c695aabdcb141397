"""aiohttp's server with JSON where it would answer with text, and with bodies left packed.

aiohttp answers malformed HTTP, a failed expectation and errors outside of handlers itself, before any
middleware. This is the layer beneath: the same connection handling, other words.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web

from openjev_server.errors import ApiError, failure, from_http_exception, internal_error

_LOG = logging.getLogger(__name__)

LINGER_S = 5.0
"""How long the rest of a refused body is read and dropped, so that its sender gets to see the answer."""


class JsonRequestHandler(web.RequestHandler):
    """One connection."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        error: ApiError
        if status >= 500:
            _LOG.error("answering %d", status, exc_info=exc)
            error = internal_error()
        else:
            # The parser's message quotes what was sent: it stays out of the log and is cut in the answer.
            cause = (message or "no detail").partition("\n")[0][:200].rstrip(":")
            error = failure(status, "bad_request", f"The request is not valid HTTP: {cause}.")
        response = error.response()
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):
            resp = from_http_exception(resp, request.method, request.path).response()
        return await super().finish_response(request, resp, start_time)


class JsonServer(web.Server):
    """Makes a JsonRequestHandler for each connection."""

    def __init__(self, application: web.Server, options: dict[str, Any]) -> None:
        super().__init__(
            application.request_handler,
            request_factory=application.request_factory,
            # A client that leaves cancels its handler: this is what takes its request out of the queue.
            handler_cancellation=True,
        )
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return JsonRequestHandler(self, loop=asyncio.get_running_loop(), **self._options)


class Runner(web.AppRunner):
    """Serves an application made by `build_app`."""

    def __init__(self, app: web.Application, *, shutdown_timeout: float = 5.0) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)

    async def _make_server(self) -> web.Server:
        # auto_decompress: the parser would unpack without our limits and answer a corrupt body with text.
        options = {"auto_decompress": False, "access_log": None, "lingering_time": LINGER_S}
        return JsonServer(await super()._make_server(), options)
