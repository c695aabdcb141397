"""Every row of the error table: status, shape of `detail`, headers."""

from __future__ import annotations

import gzip
import json
import sys
from typing import Any

import pytest

from openjev.errors import DeviceUnavailableError
from openjev.settings import Settings
from tests.server.support import MAX_LENGTH, THREE, Servers, Service, ask, choice, nested, noul, score

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def test_t3_a_body_that_is_not_json(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(b'{"model": "jev-latest", "state"')
        assert answer.issues[0]["type"] == "json_invalid"
        assert answer.issues[0]["loc"] == ["body", 31]

    servers.run(body)


@pytest.mark.parametrize(
    ("request_body", "kind", "named"),
    [
        ({"questions": {"q1": noul()}}, "missing", "state"),
        ({"state": "Hi"}, "missing", "questions"),
        ({"state": None, "questions": {"q1": noul()}}, "text_type", "state"),
        ({"state": "Hi", "questions": {}}, "too_short", "questions"),
        ({"state": "Hi", "questions": {"": noul()}}, "question_id", "questions"),
        ({"state": "Hi", "questions": {"q1": {}}}, "union_tag_not_found", "q1"),
        ({"state": "Hi", "questions": {"q1": {"type": "boolean"}}}, "union_tag_invalid", "q1"),
        ({"state": "Hi", "questions": {"q1": {"type": "noul"}}}, "missing", "q1"),
        (ask(q1=choice()), "too_short", "q1"),
        (ask(q1=choice(*map(str, range(256)))), "too_long", "q1"),
        (ask(q1=score(*map(str, range(11)))), "too_long", "q1"),
        (ask(q1=score("low", None)), "text_type", "q1"),
        (ask(q1={"type": "score", "criteria": {"0": "low"}}), "list_type", "q1"),
        ([], "dict_type", "body"),
    ],
)
def test_a_wrong_field_is_a_422_list_that_names_it(
    servers: Servers, request_body: Any, kind: str, named: str
) -> None:
    async def body(service: Service) -> None:
        (entry,) = (await service.post(request_body)).issues
        assert entry["type"] == kind
        assert named in entry["loc"]

    servers.run(body)


def test_t8_too_many_options_say_how_many_there_may_be(servers: Servers) -> None:
    async def body(service: Service) -> None:
        (entry,) = (await service.post(ask(q=choice(*map(str, range(256)))))).issues
        assert entry["ctx"] == {"max_length": 255, "actual_length": 256}
        assert "255" in entry["msg"] and "256" in entry["msg"]

    servers.run(body)


def test_t19_a_prompt_over_the_limit_is_refused_with_its_counts(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(ask("word " * MAX_LENGTH, q1=choice("a", "b")))
        entry = answer.issues[0]
        assert entry["type"] == "max_tokens_exceeded"
        assert entry["ctx"]["limit"] == MAX_LENGTH < entry["ctx"]["tokens"]
        assert "q1" in entry["loc"]

    servers.run(body)


@pytest.mark.parametrize(
    "fragment",
    [b'"a": 1, "a": 2', b'"a": NaN', b'"a": -Infinity', b'"a": 1e999', rb'"a": "\ud800"', b'"a": "\xff"'],
)
def test_what_strict_json_does_not_hold_is_a_422_list(servers: Servers, fragment: bytes) -> None:
    async def body(service: Service) -> None:
        sent = b'{"questions": {"q": {"type": "noul", "instructions": "x"}}, "state": {%s}}' % fragment
        assert (await service.post(sent)).issues

    servers.run(body)


def test_t27_deep_nesting_is_refused_and_the_server_lives_on(servers: Servers) -> None:
    async def body(service: Service) -> None:
        for depth in (1_000, 100_000):
            (entry,) = (await service.post(nested(depth))).issues
            assert entry["type"] == "too_deep"
        assert (await service.post(nested(100))).status == 200

    servers.run(body)


def test_an_unknown_model_is_a_400_object_unless_any_is_accepted(servers: Servers) -> None:
    async def refused(service: Service) -> None:
        answer = await service.post(ask() | {"model": "no-such-model"})
        assert answer.status == 400
        assert answer.error["error_type"] == "api_usage_error"
        assert "no-such-model" in answer.error["message"]

    async def accepted(service: Service) -> None:
        answer = await service.post(ask() | {"model": "no-such-model"})
        assert (answer.status, answer.json["model"]) == (200, "fake-1b")

    servers.run(refused)
    servers.run(accepted, Settings(accept_any_model=True))


@pytest.mark.parametrize(
    "extra",
    [{"assets": {"a": {"type": "image"}}}, {"questions": {"b": {"type": "box", "instructions": "where"}}}],
)
def test_images_and_boxes_are_a_400_object(servers: Servers, extra: dict[str, Any]) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(ask() | extra)
        assert (answer.status, answer.error["error_type"]) == (400, "api_usage_error")

    servers.run(body)


def test_multipart_is_a_400_object_and_other_types_a_415(servers: Servers) -> None:
    async def body(service: Service) -> None:
        multipart = await service.call(
            "POST", "/v1/systemone", b"x", {"Content-Type": "multipart/form-data; boundary=x"}
        )
        assert (multipart.status, multipart.error["error_type"]) == (400, "api_usage_error")
        for other in ("text/plain", "application/x-www-form-urlencoded", "application/octet-stream"):
            answer = await service.call("POST", "/v1/systemone", b"{}", {"Content-Type": other})
            assert (answer.status, answer.error["error_type"]) == (415, "unsupported_media_type")
            assert "application/json" in answer.error["message"]
        charset = await service.call(
            "POST",
            "/v1/systemone",
            json.dumps(ask()).encode(),
            {"Content-Type": "Application/JSON; charset=utf-8"},
        )
        assert charset.status == 200

    servers.run(body)


def test_t28_a_packed_body_is_unpacked_within_the_limit(servers: Servers) -> None:
    async def body(service: Service) -> None:
        plain = json.dumps(ask("word " * 400)).encode()
        assert len(plain) > 2000
        right = await service.post(plain)
        assert right.status == 200
        for encoding, pack in (("zstd", zstd.compress), ("gzip", gzip.compress)):
            answer = await service.post(pack(plain), Content_Encoding=encoding)
            assert (answer.status, answer.body) == (200, right.body)
            corrupt = await service.post(pack(plain)[:-5], Content_Encoding=encoding)
            assert (corrupt.status, corrupt.error["error_type"]) == (400, "bad_request")
            bomb = await service.post(pack(bytes(10 << 20)), Content_Encoding=encoding)
            assert (bomb.status, bomb.error["error_type"]) == (413, "request_too_large")
        unknown = await service.post(plain, Content_Encoding="br")
        assert (unknown.status, unknown.error["error_type"]) == (415, "unsupported_media_type")

    servers.run(body)


def test_a_body_over_the_limit_is_a_413_with_and_without_a_length(servers: Servers) -> None:
    async def body(service: Service) -> None:
        at_limit = json.dumps(ask()).encode().ljust(2048)
        assert (await service.post(at_limit)).status == 200
        assert (await service.post(at_limit + b" ")).error["error_type"] == "request_too_large"

        async def pieces() -> Any:
            for _ in range(5):
                yield b" " * 500

        chunked = await service.call("POST", "/v1/systemone", pieces(), {"Content-Type": "application/json"})
        assert (chunked.status, chunked.error["error_type"]) == (413, "request_too_large")

    servers.run(body, Settings(max_body_bytes=2048))


def test_unknown_paths_and_methods_are_json(servers: Servers) -> None:
    async def body(service: Service) -> None:
        for method, path in (
            ("GET", "/"),
            ("POST", "/v1/nothing"),
            ("GET", "/v1/systemone/"),
            ("GET", "/%2F%00"),
        ):
            answer = await service.call(method, path, None, {})
            assert (answer.status, answer.error["error_type"]) == (404, "not_found")
        for path, allowed in (("/v1/systemone", "POST"), ("/v1/inference", "POST"), ("/health", "GET,HEAD")):
            answer = await service.call("PUT", path, None, {})
            assert (answer.status, answer.error["error_type"]) == (405, "method_not_allowed")
            assert answer.headers["Allow"].replace(" ", "") == allowed
        assert (await service.get("/v1/systemone")).status == 405

    servers.run(body)


def test_a_failed_model_is_a_500_object_without_text_of_the_request(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(ask("a poisoned secret"))
        assert (answer.status, answer.error["error_type"]) == (500, "internal_error")
        assert b"secret" not in answer.body
        assert (await service.post(ask("fine"))).status == 200

    servers.run(body, engine=servers.engine(poison="poisoned"))


def test_a_lost_device_turns_readiness_off(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(ask("poisoned"))
        assert (answer.status, answer.error["error_type"]) == (503, "unavailable")
        health = await service.get("/health")
        assert (health.status, health.json["status"]) == (503, "failed")
        assert "gone" in health.json["reason"]
        assert (await service.post(ask("fine"))).status == 503

    lost = servers.engine(poison="poisoned", error=DeviceUnavailableError("cuda:0 is gone"))
    servers.run(body, engine=lost)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_malformed_http_is_answered_in_json(servers: Servers, sent: bytes) -> None:
    async def body(service: Service) -> None:
        head, _, content = (await service.raw(sent)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.")
        assert head.split(b" ")[1] == b"400"
        assert b"Content-Type: application/json\r\n" in head + b"\r\n"
        assert b"x-typesafe-request-id" in head
        assert json.loads(content)["detail"]["error_type"] == "bad_request"
        assert (await service.post(THREE)).status == 200

    servers.run(body)


def test_a_failed_expectation_is_json(servers: Servers) -> None:
    async def body(service: Service) -> None:
        sent = b"GET /health HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\nConnection: close\r\n\r\n"
        head, _, content = (await service.raw(sent)).partition(b"\r\n\r\n")
        assert head.split(b" ")[1] == b"417"
        assert json.loads(content)["detail"]["error_type"] == "expectation_failed"

    servers.run(body)
