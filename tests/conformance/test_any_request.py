"""Whatever the contract allows gets an answer that is a distribution (T15), through the real server."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.conformance.service import Service
from tests.python.strategies import CUA_REQUESTS, requests
from tests.server.process import exchange

COMMON = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def ask(service: Service, request: dict[str, Any]) -> dict[str, Any]:
    with contextlib.closing(service.connect()) as connection:
        status, body = exchange(connection, "POST", "/v1/systemone", json.dumps(request).encode())
    assert status == 200, body

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is no JSON number")

    answer: dict[str, Any] = json.loads(body, parse_constant=refuse)
    assert list(answer["answers"]) == list(request["questions"])
    assert type(answer["usage"]["input_tokens"]) is int and answer["usage"]["input_tokens"] > 0
    return answer


def check_distribution(p: dict[str, float], keys: list[str]) -> None:
    assert list(p) == keys
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in p.values())
    assert math.isclose(math.fsum(p.values()), 1, rel_tol=0, abs_tol=1e-12)


def check(question: dict[str, Any], answer: dict[str, Any]) -> None:
    assert answer["type"] == question["type"]
    if question["type"] == "noul":
        assert math.isfinite(answer["noul"]) and 0 <= answer["noul"] <= 1
        return
    assert 0 <= answer["confidence"] <= 1
    p = answer["probabilities"]
    if question["type"] == "choice":
        check_distribution(p, list(question["criteria"]))
        assert answer["choice"] == max(p, key=lambda name: p[name])  # the first of equals
        return
    check_distribution(p, [str(i) for i in range(len(question["criteria"]))])
    assert answer["legend"] == {str(i): level for i, level in enumerate(question["criteria"])}
    expectation = math.fsum(i * value for i, value in enumerate(p.values()))
    assert math.isclose(answer["score"], expectation, rel_tol=0, abs_tol=1e-12)


@COMMON
@given(request=requests())
def test_T15_any_request_gets_distributions(demo: Service, request: dict[str, Any]) -> None:
    answer = ask(demo, request)
    for name, question in request["questions"].items():
        check(question, answer["answers"][name])


@COMMON
@given(request=CUA_REQUESTS)
def test_T15_any_cua_s1_request_gets_distributions(letters: Service, request: dict[str, Any]) -> None:
    answer = ask(letters, request)
    for name, question in request["questions"].items():
        check(question, answer["answers"][name])
