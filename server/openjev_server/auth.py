"""Who may ask: the bearer key, and which browser origins."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from openjev_server.errors import ApiError, failure

_EXPOSED = "x-typesafe-request-id, Retry-After, Server-Timing"
_ALLOWED_METHODS = "GET, POST, OPTIONS"
_ALLOWED_HEADERS = (
    "Authorization, Content-Type, Content-Encoding, "
    "X-TypeSafe-SDK, X-TypeSafe-Runtime, X-TypeSafe-Retry-Count"
)
_PREFLIGHT_SECONDS = "600"


class BearerAuth:
    """Compares `Authorization: Bearer <key>` with the key; without a key every header is ignored."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(key) if key else None

    @property
    def enabled(self) -> bool:
        return self._digest is not None

    def check(self, authorization: str | None) -> None:
        """Raises 401 unless the header holds the key."""
        if self._digest is None:
            return
        scheme, _, given = (authorization or "").partition(" ")
        # Digests have one length, so that the comparison takes the same time whatever was sent.
        if hmac.compare_digest(_digest(given.strip()), self._digest) and scheme.lower() == "bearer":
            return
        found = "a key that is not accepted" if authorization else "no key"
        raise failure(
            401,
            "authentication_error",
            f"Found {found}; send the server's API key as 'Authorization: Bearer <key>'.",
            {"WWW-Authenticate": "Bearer"},
        )


class OriginRule:
    """Which pages may call. A request without an Origin header does not come from another site's page.

    A page of this very server counts as same-origin only under a host that a stranger's DNS name cannot take
    over (an address, localhost or the configured host): otherwise a name that is re-pointed at loopback would
    pass as ours.
    """

    def __init__(self, allowed: Iterable[str], host: str) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self._host = host.lower()

    def check(self, origin: str | None, host: str | None) -> Mapping[str, str] | None:
        """CORS headers for an allowed origin, None where none are needed. Raises 403."""
        if origin is None:
            return None
        if origin in self._allowed:
            return {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": _EXPOSED,
                "Vary": "Origin",
            }
        if self._is_ours(origin, host):
            return None
        raise origin_refused(origin)

    def preflight(self, origin: str, host: str | None, private_network: bool) -> Mapping[str, str]:
        """Headers of a 204 to an allowed preflight. Raises 403."""
        headers = dict(self.check(origin, host) or {})
        headers["Access-Control-Allow-Methods"] = _ALLOWED_METHODS
        headers["Access-Control-Allow-Headers"] = _ALLOWED_HEADERS
        headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
        if private_network:
            headers["Access-Control-Allow-Private-Network"] = "true"
        return headers

    def _is_ours(self, origin: str, host: str | None) -> bool:
        if not host:
            return False
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        if parts.netloc.lower() != host.lower():
            return False
        return name in ("localhost", self._host) or is_address(name)


def origin_refused(origin: str) -> ApiError:
    return failure(
        403,
        "origin_not_allowed",
        f"Pages of {origin[:200]!r} may not call this server; start it with --cors-origin to allow them.",
    )


def is_address(name: str) -> bool:
    """Whether `name` is an IPv4 or IPv6 address rather than a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str | None) -> bool:
    """Whether a host setting or a peer's address stays on this machine."""
    if name is None:
        return False
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
