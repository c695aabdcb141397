"""From a request to its plain body: content type, content encoding and the size limit.

The limit holds for the bytes on the wire and, counted while they are unpacked, for the unpacked bytes, so
that a small body can never become a large one in memory.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from openjev_server.errors import ApiError, failure, usage_error

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_TIMEOUT_S = 60.0
"""How long a client may take to send its body."""

_MAX_MEMBERS = 256
"""A compressed body may be several frames in a row; many tiny ones would cost time and hold nothing."""

_MIN_ZSTD_WINDOW_LOG = 23
"""RFC 8878 asks decoders to support windows of 8 MiB."""


class _Member(Protocol):
    """One zlib stream or zstd frame; `unused_data` follows its end."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def read_body(request: web.Request, limit: int) -> bytes:
    """The unpacked body, at most `limit` bytes. Raises 400, 408, 413 or 415."""
    _check_content_type(request)
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    decoder = _decoder(request.headers.get("Content-Encoding"), limit)
    if request.content.is_eof():
        return _unpack_all(request.content.read_nowait(-1), decoder, limit)
    try:
        return await asyncio.wait_for(_stream(request, decoder, limit), READ_TIMEOUT_S)
    except asyncio.TimeoutError:
        message = f"The body was not complete after {READ_TIMEOUT_S:g} seconds."
        raise failure(408, "request_timeout", message, close=True) from None


def _check_content_type(request: web.Request) -> None:
    content_type = request.content_type
    if content_type == "application/json":
        return
    if content_type.startswith("multipart/"):
        raise usage_error("Images are not supported: this server reads text, sent as application/json.")
    given = request.headers.get("Content-Type")
    found = "no Content-Type" if given is None else f"Content-Type {given[:200]!r}"
    raise failure(415, "unsupported_media_type", f"Found {found}; allowed: application/json.")


async def _stream(request: web.Request, decoder: _Decoder | None, limit: int) -> bytes:
    pieces: list[bytes] = []
    received = unpacked = 0
    try:
        while chunk := await request.content.readany():
            received += len(chunk)
            if received > limit:
                raise _too_large(limit)
            if decoder is not None:
                chunk = decoder.feed(chunk, limit - unpacked)
                unpacked += len(chunk)
            pieces.append(chunk)
    except (web.RequestPayloadError, HttpProcessingError):
        message = "The body ends early or its chunks are malformed."
        raise failure(400, "bad_request", message, close=True) from None
    if decoder is not None:
        decoder.finish()
    return b"".join(pieces)


def _unpack_all(data: bytes, decoder: _Decoder | None, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    if decoder is None:
        return data
    plain = decoder.feed(data, limit)
    decoder.finish()
    return plain


class _Decoder:
    """Unpacks a body piece by piece and stops at the limit."""

    def __init__(self, encoding: str, limit: int, start: Callable[[bytes], _Member]) -> None:
        self._encoding = encoding
        self._limit = limit
        self._start = start
        self._member: _Member | None = None
        self._members = 0

    def feed(self, data: bytes, room: int) -> bytes:
        """Unpacks `data`; raises 413 for more than `room` bytes and 400 for a corrupt stream."""
        pieces: list[bytes] = []
        while data:
            try:
                member = self._current(data)
                # One byte more than allowed: a full piece is too large, any other has consumed all of `data`.
                piece = member.decompress(data, room + 1)
            except (zlib.error, zstd.ZstdError, EOFError):
                raise self._corrupt("is corrupt") from None
            room -= len(piece)
            if room < 0:
                raise _too_large(self._limit)
            pieces.append(piece)
            data = member.unused_data if member.eof else b""
        return b"".join(pieces)

    def finish(self) -> None:
        """Raises 400 when the stream is cut short."""
        if self._member is None or not self._member.eof:
            raise self._corrupt("ends early")

    def _current(self, data: bytes) -> _Member:
        if self._member is None or self._member.eof:
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise self._corrupt(f"has more than {_MAX_MEMBERS} frames")
            self._member = self._start(data)
        return self._member

    def _corrupt(self, what: str) -> ApiError:
        return failure(400, "bad_request", f"Content-Encoding {self._encoding}: the body {what}.")


def _decoder(encoding: str | None, limit: int) -> _Decoder | None:
    name = (encoding or "identity").strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip"):
        return _Decoder(name, limit, lambda _: zlib.decompressobj(16 + zlib.MAX_WBITS))
    if name == "deflate":
        return _Decoder(name, limit, _start_deflate)
    if name == "zstd":
        window_log = max(_MIN_ZSTD_WINDOW_LOG, (limit - 1).bit_length())
        return _Decoder(name, limit, lambda _: _start_zstd(min(window_log, 31)))
    raise failure(
        415,
        "unsupported_media_type",
        f"Content-Encoding: found {name[:200]!r}, allowed: identity, gzip, deflate, zstd.",
        {"Accept-Encoding": "identity, gzip, deflate, zstd"},
    )


def _start_deflate(data: bytes) -> _Member:
    # "deflate" means a zlib stream, but some clients send it bare; a zlib stream starts with method 8.
    return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)


def _start_zstd(window_log: int) -> _Member:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})


def _too_large(limit: int) -> ApiError:
    message = f"The body has more than {limit} bytes, counted after decompression; split the request."
    return failure(413, "request_too_large", message)
