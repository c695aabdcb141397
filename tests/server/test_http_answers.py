"""What a 200 holds, and the routes around it."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from openjev.settings import Settings
from tests.server.support import NAMES, THREE, Servers, Service, ask, choice, first_argmax, noul, score


def test_t4_the_top_level_holds_the_contracts_keys_and_x_extensions(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answer = await service.post(THREE)
        assert answer.status == 200
        extra = set(answer.json) - {"model", "answers", "usage"}
        assert extra and all(key.startswith("x_") for key in extra)
        assert answer.json["x_openjev"]["base"] == {"id": "test/base", "revision": "b" * 40}
        assert answer.json["x_openjev"]["temperature"] == 2.0

    servers.run(body)


def test_t13_each_answer_has_exactly_its_fields(servers: Servers) -> None:
    async def body(service: Service) -> None:
        answers = (await service.post(THREE)).json["answers"]
        assert list(answers) == ["late", "team", "mood"]
        assert set(answers["late"]) == {"type", "noul"}
        assert set(answers["team"]) == {"type", "choice", "probabilities", "confidence"}
        assert set(answers["mood"]) == {"type", "score", "legend", "probabilities", "confidence"}
        assert list(answers["team"]["probabilities"]) == ["billing", "shipping", "support"]
        assert answers["mood"]["legend"] == {"0": "calm", "1": "annoyed", "2": "angry"}

    servers.run(body)


def test_t15_random_requests_get_proper_distributions(servers: Servers) -> None:
    draw = np.random.default_rng(15)

    def question() -> dict[str, Any]:
        kind, count = draw.integers(3), int(draw.integers(1, 9))
        words = [f"{draw.integers(10**6)}" for _ in range(count + 1)]
        if kind == 0:
            return noul(words[0])
        return choice(*words[1:], text=words[0]) if kind == 1 else score(*words[1:], text=words[0])

    async def body(service: Service) -> None:
        for _ in range(200):
            questions = {f"q{i}": question() for i in range(draw.integers(1, 5))}
            reply = await service.post(ask(f"case {draw.integers(10**9)}", **questions))
            assert reply.status == 200
            answers = reply.json["answers"]
            assert list(answers) == list(questions)
            for answer in answers.values():
                check_distribution(answer)

    servers.run(body)


def check_distribution(answer: dict[str, Any]) -> None:
    if answer["type"] == "noul":
        assert 0 <= answer["noul"] <= 1
        return
    p = list(answer["probabilities"].values())
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in p)
    assert abs(math.fsum(p) - 1) <= 1e-12
    assert 0 <= answer["confidence"] <= 1
    if answer["type"] == "choice":
        assert answer["choice"] == list(answer["probabilities"])[first_argmax(p)]
    else:
        assert answer["score"] == pytest.approx(math.fsum(i * value for i, value in enumerate(p)), abs=1e-12)


def test_t16_the_same_request_gets_the_same_bytes_alone_and_in_company(servers: Servers) -> None:
    async def body(service: Service) -> None:
        alone = [await service.post(THREE) for _ in range(20)]
        together = await asyncio.gather(*(service.post(THREE) for _ in range(8)))
        assert {answer.body for answer in (*alone, *together)} == {alone[0].body}
        ids = {answer.headers["x-typesafe-request-id"] for answer in (*alone, *together)}
        assert len(ids) == 28
        usage = alone[0].json["usage"]
        sent = service.host.model.prepare(THREE).tokens  # type: ignore[union-attr]
        assert usage == {"input_tokens": len(sent), "output_tokens": 0}

    servers.run(body)


def test_t24_a_chunked_body_without_a_length_gets_the_same_answer(servers: Servers) -> None:
    content = json.dumps(THREE).encode()

    async def chunks() -> Any:
        for start in range(0, len(content), 7):
            yield content[start : start + 7]
            await asyncio.sleep(0)

    async def body(service: Service) -> None:
        whole = await service.post(content)
        chunked = await service.call("POST", "/v1/systemone", chunks(), {"Content-Type": "application/json"})
        assert (chunked.status, chunked.body) == (200, whole.body)

    servers.run(body)


def test_a_body_prepared_off_the_event_loop_gets_the_same_answer(servers: Servers) -> None:
    async def body(service: Service) -> None:
        small = await service.post(THREE)
        large = await service.post(json.dumps(THREE).encode().ljust(100_000))
        assert (large.status, large.body) == (200, small.body)

    servers.run(body)


def test_v1_inference_is_the_same_route(servers: Servers) -> None:
    async def body(service: Service) -> None:
        assert (await service.post(THREE, "/v1/inference")).body == (await service.post(THREE)).body

    servers.run(body)


def test_every_name_of_v1_models_is_accepted_and_so_is_none(servers: Servers) -> None:
    async def body(service: Service) -> None:
        models = (await service.get("/v1/models")).json["models"]
        assert [entry["name"] for entry in models] == list(NAMES)
        for entry in models:
            assert entry["description"]
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["release_date"])
        bodies = [ask() | {"model": name} for name in (*NAMES, None)] + [ask()]
        del bodies[-1]["model"]
        answers = [await service.post(request) for request in bodies]
        assert {(answer.status, answer.json["model"]) for answer in answers} == {(200, NAMES[0])}

    servers.run(body)


def test_unknown_top_level_keys_are_ignored(servers: Servers) -> None:
    async def body(service: Service) -> None:
        extra = {"x_trace_id": "t", "seed": 1, "method": "m", "options": {}, "think": True}
        assert (await service.post(ask() | extra)).body == (await service.post(ask())).body

    servers.run(body)


def test_names_come_back_byte_for_byte(servers: Servers) -> None:
    decomposed, composed = "e\u0301", "\u00e9"

    async def body(service: Service) -> None:
        answers = (await service.post(ask("🎯", **{"질문 🙂": choice(decomposed, composed)}))).json["answers"]
        assert list(answers["질문 🙂"]["probabilities"]) == [decomposed, composed]

    servers.run(body)


def test_server_timing_names_the_stages_in_milliseconds(servers: Servers) -> None:
    async def body(service: Service) -> None:
        header = (await service.post(THREE)).headers["Server-Timing"]
        spent = {name: float(value) for name, value in re.findall(r"(\w+);dur=([0-9.]+)", header)}
        assert list(spent) == ["body", "prepare", "queue", "model", "total"]
        assert sum(spent.values()) - spent["total"] <= spent["total"] + 0.01

    servers.run(body)


def test_upstream_metadata_is_there_on_request_only(servers: Servers) -> None:
    async def body(service: Service) -> None:
        metadata = (await service.post(THREE)).json["metadata"]
        assert metadata["candidate_sequences"] == 7
        assert metadata["base_revision"] == "b" * 40
        assert metadata["temperature"] == 2.0
        assert metadata["inference_seconds"] >= 0

    servers.run(body, Settings(upstream_metadata=True))


def test_openapi_names_the_limits_and_resolves(servers: Servers) -> None:
    async def body(service: Service) -> None:
        document = (await service.get("/openapi.json")).json
        schemas = document["components"]["schemas"]
        assert schemas["Choice"]["properties"]["criteria"]["maxProperties"] == 255
        assert schemas["Score"]["properties"]["criteria"]["maxItems"] == 10
        assert schemas["Request"]["properties"]["questions"]["maxProperties"] == 4096
        assert "4194304" in json.dumps(document["paths"]["/v1/systemone"])
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
        assert references <= set(schemas)
        assert document["info"]["version"]
        for path, operations in document["paths"].items():
            for method in operations:
                assert (await service.call(method.upper(), path, None, {})).status not in (404, 405)

    servers.run(body)


def test_metrics_count_what_happened(servers: Servers) -> None:
    async def body(service: Service) -> None:
        await service.post(THREE)
        await service.post({})
        answer = await service.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.body.decode()
        assert 'openjev_http_requests_total{route="/v1/systemone",status="200"} 1.0' in text
        assert 'openjev_http_requests_total{route="/v1/systemone",status="422"} 1.0' in text
        assert "openjev_questions_total 3.0" in text
        assert "openjev_ready 1.0" in text
        assert "openjev_queue_requests 0.0" in text

    servers.run(body)


def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(servers: Servers) -> None:
    content = json.dumps(ask()).encode()
    head = b"POST /v1/systemone HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    post = head + b"Content-Length: %d\r\n\r\n" % len(content) + content
    last = b"GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

    async def body(service: Service) -> None:
        received = await service.raw(post * 2 + last)
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200", b"404"]

    servers.run(body)
