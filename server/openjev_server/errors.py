"""Every error the server answers with: status, `detail` shape and headers in one place.

`detail` has two shapes: a list of `{loc, msg, type, input?, ctx?}` when the request's content is at fault
(422), and an object `{error_type, message}` for everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from openjev.errors import Issue
from openjev_server.reply import reply

RETRY_SOON = 1
"""Seconds sent in Retry-After where nothing better is known."""

_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode

_REASON_TYPES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    417: "expectation_failed",
}


class ApiError(Exception):
    """An answer other than 200. `detail` is JSON; `close` also ends the connection."""

    def __init__(
        self,
        status: int,
        detail: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        headers: Mapping[str, str] | None = None,
        *,
        close: bool = False,
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.close = close

    def response(self) -> web.Response:
        # ASCII escapes: a message may quote text that has no UTF-8 form, such as a lone surrogate.
        answer = reply(_ENCODE({"detail": self.detail}).encode("ascii"), self.status, self.headers)
        if self.close:
            answer.force_close()
        return answer


def failure(
    status: int,
    error_type: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    *,
    retry_after: int | None = None,
    close: bool = False,
) -> ApiError:
    """An error of the object shape. `retry_after` is whole seconds: clients parse the header as a number."""
    if retry_after is not None:
        headers = {**(headers or {}), "Retry-After": str(retry_after)}
    return ApiError(status, {"error_type": error_type, "message": message}, headers, close=close)


def invalid(issues: Sequence[Issue]) -> ApiError:
    """422 for a request whose content is at fault, one entry an issue."""
    return ApiError(422, [issue.to_dict() for issue in issues])


def usage_error(message: str) -> ApiError:
    """400 for a request this server will never answer in that form."""
    return failure(400, "api_usage_error", message)


def internal_error() -> ApiError:
    """500. The cause is in the log; the answer never repeats text of the request."""
    message = "The model failed on this request. The server's log names the cause."
    return failure(500, "internal_error", message)


def from_http_exception(exc: web.HTTPException, method: str, path: str) -> ApiError:
    """The JSON form of an answer aiohttp's router or parser would give as text."""
    kind = _REASON_TYPES.get(exc.status, "bad_request" if exc.status < 500 else "internal_error")
    headers: dict[str, str] = {}
    message = exc.reason
    if isinstance(exc, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(exc.allowed_methods))
        message = f"{path} does not take {method}; allowed: {headers['Allow']}."
    elif exc.status == 404:
        message = f"There is nothing at {path}."
    return failure(exc.status, kind, message, headers)
