"""The official Python SDK of the wire format, `typesafe-sdk`, unchanged, against the running server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Choice,
    Noul,
    Question,
    RetryPolicy,
    Score,
    TypeSafeAPIError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeClient,
    TypeSafeInternalServerError,
    TypeSafeUnprocessableEntityError,
)

from tests.conformance.conftest import KEY
from tests.conformance.front import front_of
from tests.conformance.service import Service

NO_RETRY = RetryPolicy(max_retries=0)
STATE = "I was charged twice for my March invoice and nobody answers."
LEVELS: list[Any] = ["calm", {"label": "annoyed", "signs": ["short answers"]}, ["angry", "shouts"]]
LATE: dict[str, Question] = {"late": Noul(instructions="Is the invoice late?")}


def client(url: str, key: str = "any-key", **options: Any) -> TypeSafeClient:
    return TypeSafeClient(api_key=key, base_url=url, timeout=60.0, **options)


@pytest.fixture
def sdk(demo: Service) -> Iterator[TypeSafeClient]:
    with client(demo.url, retry=NO_RETRY) as made:
        yield made


def test_a_noul_comes_back_as_a_probability(sdk: TypeSafeClient) -> None:
    questions: dict[str, Question] = {
        "plain": Noul(instructions="Is money asked back?"),
        "one side": Noul(instructions="Refund?", criteria={"true": "asks for money"}),
        "outcomes only": Noul(criteria={"true": {"wants": "refund"}, "false": ["anything", "else"]}),
    }
    result = sdk.system_one(STATE, questions)
    assert set(result.nouls) == set(questions)
    assert all(0 < answer.noul < 1 for answer in result.nouls.values())
    assert result.model == "openjev-demo"
    assert (result.usage.input_tokens or 0) > 0 and result.usage.output_tokens == 0
    assert result.request_id.startswith("req_")


def test_a_choice_comes_back_with_its_labels(sdk: TypeSafeClient) -> None:
    labels: dict[str, Any] = {"billing": None, "Livraison é 📦": "parcels", "other": {"why": ["the rest"]}}
    answer = sdk.system_one({"mail": STATE}, {"team": Choice(criteria=labels)}).choices["team"]
    assert list(answer.probabilities) == list(labels)
    assert answer.choice == max(answer.probabilities, key=lambda name: answer.probabilities[name])
    assert math.isclose(math.fsum(answer.probabilities.values()), 1, abs_tol=1e-12)
    assert 0 <= answer.confidence <= 1


def test_a_score_comes_back_with_its_structured_legend(sdk: TypeSafeClient) -> None:
    question = Score(instructions="How angry?", criteria=LEVELS)
    answer = sdk.system_one([STATE], {"anger": question}).scores["anger"]
    assert answer.legend == dict(enumerate(LEVELS))
    assert math.isclose(answer.score, sum(i * p for i, p in answer.probabilities.items()), abs_tol=1e-12)


def test_the_asynchronous_client_gets_the_same_answers(demo: Service, sdk: TypeSafeClient) -> None:
    questions: dict[str, Question] = {**LATE, "anger": Score(criteria=LEVELS)}

    async def ask() -> Any:
        async with AsyncTypeSafeClient(api_key="k", base_url=demo.url, timeout=60.0) as asynchronous:
            return (await asynchronous.system_one(STATE, questions)).answers

    assert asyncio.run(ask()) == sdk.system_one(STATE, questions).answers


def test_every_listed_model_may_be_asked(sdk: TypeSafeClient) -> None:
    names = [entry.name for entry in sdk.models.list().models]
    assert "jev-latest" in names
    answers = [sdk.system_one(STATE, LATE, model=name).answers for name in names]
    assert answers == [answers[0]] * len(names)


def test_errors_arrive_as_the_sdks_classes_with_a_message(sdk: TypeSafeClient) -> None:
    with pytest.raises(TypeSafeBadRequestError, match="no-such-model") as unknown:
        sdk.system_one(STATE, LATE, model="no-such-model")
    assert unknown.value.request_id
    options = {f"option {i}": None for i in range(256)}
    with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.many.*255.*256"):
        sdk.system_one(STATE, {"many": Choice(criteria=options)})
    with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.tall.*10.*11"):
        sdk.system_one(STATE, {"tall": Score(criteria=[str(i) for i in range(11)])})
    with pytest.raises(TypeSafeUnprocessableEntityError, match="at most 4096"):
        sdk.system_one("7" * 5000, LATE)
    with pytest.raises(TypeSafeAPIError, match="4194304") as large:
        sdk.system_one("x" * 5_000_000, LATE)
    assert large.value.status == 413


def test_a_wrong_key_is_an_authentication_error(keyed: Service) -> None:
    with client(keyed.url, "wrong", retry=NO_RETRY) as stranger:
        with pytest.raises(TypeSafeAuthenticationError, match="key"):
            stranger.system_one(STATE, LATE)
        with pytest.raises(TypeSafeAuthenticationError, match="key"):
            stranger.models.list()
    with client(keyed.url, KEY, retry=NO_RETRY) as known:
        assert known.system_one(STATE, LATE).nouls["late"].noul > 0


def test_an_overloaded_answer_is_retried(demo: Service) -> None:
    with front_of(demo.port, overloaded=1) as front, client(front.url) as patient:
        answers = patient.system_one(STATE, LATE).answers
    assert [headers.get("x-typesafe-retry-count") for headers in front.seen] == [None, "1"]
    with client(demo.url) as direct:
        assert direct.system_one(STATE, LATE).answers == answers


def test_without_retries_an_overloaded_answer_is_a_server_error(demo: Service) -> None:
    with (
        front_of(demo.port, overloaded=1) as front,
        client(front.url, retry=NO_RETRY) as impatient,
        pytest.raises(TypeSafeInternalServerError, match="queue is full") as refused,
    ):
        impatient.system_one(STATE, LATE)
    assert refused.value.status == 529
    assert len(front.seen) == 1


def test_a_long_body_arrives_compressed_and_gets_the_same_answer(demo: Service) -> None:
    state = " ".join([STATE] * 40)
    with front_of(demo.port) as front:
        with client(front.url, retry=NO_RETRY) as packing:  # zstd is the SDK's default
            packed = packing.system_one(state, LATE)
        with client(front.url, retry=NO_RETRY, compression=False) as plain:
            unpacked = plain.system_one(state, LATE)
    assert [headers.get("content-encoding") for headers in front.seen] == ["zstd", None]
    sizes = [int(headers["content-length"]) for headers in front.seen]
    assert sizes[0] < 1024 < sizes[1]
    assert packed.answers == unpacked.answers
    assert packed.usage == unpacked.usage
