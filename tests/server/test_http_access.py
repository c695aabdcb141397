"""Who may ask: the bearer key and browser origins."""

from __future__ import annotations

import asyncio
import json

import pytest

from openjev.settings import Settings
from openjev_server.auth import BearerAuth, OriginRule
from openjev_server.errors import ApiError
from tests.server.support import THREE, Servers, Service, ask

KEY = "s3cret-key"
EVIL = "http://evil.test"


def test_without_a_key_any_authorization_header_is_ignored(servers: Servers) -> None:
    async def body(service: Service) -> None:
        for value in ("Bearer dummy", "Basic eDp5", "nonsense"):
            assert (await service.post(ask(), Authorization=value)).status == 200

    servers.run(body)


def test_with_a_key_only_the_key_is_let_in(servers: Servers) -> None:
    async def body(service: Service) -> None:
        assert (await service.post(ask(), Authorization=f"Bearer {KEY}")).status == 200
        assert (await service.post(ask(), Authorization=f"bearer  {KEY} ")).status == 200
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {KEY}"},
            {"x_api_key": KEY},
        ):
            answer = await service.post(ask(), **headers)
            assert (answer.status, answer.error["error_type"]) == (401, "authentication_error")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert KEY.encode() not in answer.body
        assert (await service.get("/v1/models")).status == 401
        for path in ("/health", "/openapi.json", "/metrics"):
            assert (await service.get(path)).status == 200

    servers.run(body, Settings(api_key=KEY))


def test_the_key_is_checked_before_the_body_arrives(servers: Servers) -> None:
    async def body(service: Service) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        head = "POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        status_line = await asyncio.wait_for(reader.readline(), 10)
        assert b" 401 " in status_line
        writer.close()

    servers.run(body, Settings(api_key=KEY))


def test_metrics_need_the_key_when_a_proxy_forwards_them(servers: Servers) -> None:
    async def body(service: Service) -> None:
        assert (await service.get("/metrics", X_Forwarded_For="203.0.113.5")).status == 401
        headers = {"X_Forwarded_For": "203.0.113.5", "Authorization": f"Bearer {KEY}"}
        assert (await service.get("/metrics", **headers)).status == 200

    servers.run(body, Settings(api_key=KEY))


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Bearer \udcff", KEY, f"Bearer {KEY}x"])
def test_a_header_without_the_key_is_refused(given: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        BearerAuth(KEY).check(given)
    assert caught.value.status == 401


def test_t12_other_origins_are_refused_and_get_no_cors_headers(servers: Servers) -> None:
    async def body(service: Service) -> None:
        refused = await service.post(ask(), Origin=EVIL)
        assert (refused.status, refused.error["error_type"]) == (403, "origin_not_allowed")
        preflight = await service.call(
            "OPTIONS", "/v1/systemone", None, {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
        )
        assert preflight.status == 403
        bare = await service.call("OPTIONS", "/v1/systemone", None, {"Origin": EVIL})
        for answer in (refused, preflight, bare):
            assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        assert (await service.post(ask(), Origin="null")).status == 403

    servers.run(body)


def test_t12_an_allowed_origin_may_preflight_and_post(servers: Servers) -> None:
    async def body(service: Service) -> None:
        asked = {
            "Origin": EVIL,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Private-Network": "true",
        }
        preflight = await service.call("OPTIONS", "/v1/systemone", None, asked)
        assert (preflight.status, preflight.body) == (204, b"")
        assert preflight.headers["Access-Control-Allow-Origin"] == EVIL
        assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
        assert preflight.headers["Access-Control-Allow-Private-Network"] == "true"
        answer = await service.post(THREE, Origin=EVIL, Authorization=f"Bearer {KEY}")
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, EVIL)
        assert answer.headers["Vary"] == "Origin"
        # An error is readable for the page as well.
        denied = await service.post(THREE, Origin=EVIL)
        assert (denied.status, denied.headers["Access-Control-Allow-Origin"]) == (401, EVIL)
        assert (await service.post(ask(), Origin="http://other.test")).status == 403

    servers.run(body, Settings(cors_origin=(EVIL,), api_key=KEY))


def test_a_page_of_this_server_may_ask(servers: Servers) -> None:
    async def body(service: Service) -> None:
        own = f"http://127.0.0.1:{service.port}"
        assert (await service.post(ask(), Origin=own)).status == 200
        other_port = f"http://127.0.0.1:{service.port + 1}"
        assert (await service.post(ask(), Origin=other_port)).status == 403

    servers.run(body)


def test_a_name_pointed_at_us_by_somebody_elses_dns_is_not_our_page() -> None:
    rule = OriginRule((), "box.lan")
    with pytest.raises(ApiError):
        rule.check("http://rebound.test:8000", "rebound.test:8000")
    assert rule.check("http://box.lan:8000", "box.lan:8000") is None
    assert rule.check("http://localhost:8000", "localhost:8000") is None
    assert rule.check("http://[::1]:8000", "[::1]:8000") is None
    with pytest.raises(ApiError):
        rule.check("http://[broken", "[broken")


def test_the_refusal_quotes_the_origin_safely(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(ask(), Origin='http://"><script>')
        assert json.loads(answer.body)["detail"]["error_type"] == "origin_not_allowed"
        assert answer.headers["Content-Type"] == "application/json"

    servers.run(body)
