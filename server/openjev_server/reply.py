"""The one way a response is made: JSON bytes and the headers that every answer carries."""

from __future__ import annotations

import os
from collections.abc import Mapping

from aiohttp import web
from multidict import CIMultiDict

REQUEST_ID = "x-typesafe-request-id"
JSON = "application/json"


def reply(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, content_type: str = JSON
) -> web.Response:
    """A response with a fresh request id; `content_type` is written as given."""
    fields = CIMultiDict(
        {
            "Content-Type": content_type,
            REQUEST_ID: "req_" + os.urandom(12).hex(),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Server": "openjev",
        }
    )
    if headers:
        fields.update(headers)
    return web.Response(body=body, status=status, headers=fields)
