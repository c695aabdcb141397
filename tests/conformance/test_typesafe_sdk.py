"""The official Python SDK of the wire format, `typesafe-sdk`, as a client of the running server."""

from __future__ import annotations

import pytest
from typesafe_sdk import (
    Choice,
    Noul,
    NoulCriteria,
    Score,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

from tests.conformance.conftest import KEY
from tests.conformance.front import front_of
from tests.conformance.service import Service

STATE = "I was charged twice for my March invoice and nobody answers."
QUESTIONS = {
    "refund": Noul(instructions="Is money asked back?", criteria=NoulCriteria(true="yes, money")),
    "team": Choice(instructions="Whose case is it?", criteria={"billing": None, "other": {"why": "rest"}}),
    "anger": Score(instructions="How angry?", criteria=["calm", {"level": "angry"}, "furious"]),
}


def test_round_trip_of_all_three_types(demo: Service) -> None:
    with TypeSafeClient(api_key="any", base_url=demo.url) as client:
        response = client.system_one(STATE, QUESTIONS)
    assert 0 < response.nouls["refund"].noul < 1
    team = response.choices["team"]
    assert set(team.probabilities) == {"billing", "other"}
    assert team.choice == max(team.probabilities, key=lambda name: team.probabilities[name])
    anger = response.scores["anger"]
    assert anger.legend == {0: "calm", 1: {"level": "angry"}, 2: "furious"}
    assert anger.score == pytest.approx(sum(int(i) * p for i, p in anger.probabilities.items()), abs=1e-12)
    assert response.usage.input_tokens > 0
    assert response.request_id


def test_models_are_listed(demo: Service) -> None:
    with TypeSafeClient(api_key="any", base_url=demo.url) as client:
        names = {model.name for model in client.models.list().models}
    assert "jev-latest" in names


def test_an_unknown_model_is_a_bad_request(demo: Service) -> None:
    with (
        TypeSafeClient(api_key="any", base_url=demo.url) as client,
        pytest.raises(TypeSafeBadRequestError, match="no-such-model"),
    ):
        client.system_one(STATE, QUESTIONS, model="no-such-model")


def test_too_many_levels_are_unprocessable(demo: Service) -> None:
    eleven = Score(instructions="How?", criteria=[str(i) for i in range(11)])
    with (
        TypeSafeClient(api_key="any", base_url=demo.url) as client,
        pytest.raises(TypeSafeUnprocessableEntityError, match="10"),
    ):
        client.system_one(STATE, {"q": eleven})


def test_a_wrong_key_is_an_authentication_error(keyed: Service) -> None:
    with (
        TypeSafeClient(api_key="wrong", base_url=keyed.url) as client,
        pytest.raises(TypeSafeAuthenticationError),
    ):
        client.system_one(STATE, QUESTIONS)
    with TypeSafeClient(api_key=KEY, base_url=keyed.url) as client:
        assert client.system_one(STATE, QUESTIONS).nouls["refund"].noul > 0


def test_an_overloaded_answer_is_retried(demo: Service) -> None:
    with (
        front_of(demo.port, overloaded=1) as front,
        TypeSafeClient(api_key="any", base_url=front.url) as client,
    ):
        response = client.system_one(STATE, QUESTIONS)
    assert response.nouls["refund"].noul > 0
    assert [headers.get("x-typesafe-retry-count") for headers in front.seen] == [None, "1"]


def test_a_long_body_arrives_compressed_and_gets_the_same_answer(demo: Service) -> None:
    state = " ".join([STATE] * 40)
    with front_of(demo.port) as front:
        with TypeSafeClient(api_key="any", base_url=front.url, compression="zstd") as client:
            packed = client.system_one(state, QUESTIONS)
        with TypeSafeClient(api_key="any", base_url=front.url, compression=False) as client:
            plain = client.system_one(state, QUESTIONS)
    assert [headers.get("content-encoding") for headers in front.seen] == ["zstd", None]
    assert packed.nouls["refund"].noul == plain.nouls["refund"].noul
