"""Workloads: the same requests everywhere, with exactly the tokens that their specification says."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.harness.checkpoints import provide
from bench.harness.counting import PromptCounter
from bench.harness.text import Stream, fill
from bench.harness.workloads import FOLDER, Workload, check_hashes, generate, noul_of, read_spec
from hypothesis import given, settings
from hypothesis import strategies as st

SPECS = sorted(path.stem for path in FOLDER.glob("*.json"))
LETTERS = {"cua-mixed-64"}


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> PromptCounter:
    """Of the demo's tokenizer and prompts."""
    return PromptCounter(provide({"kind": "demo"}, tmp_path_factory.mktemp("scratch")).folder)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PromptCounter]:
    """Of the Qwen3.5 tokenizer, by readout."""
    scratch = tmp_path_factory.mktemp("real")
    spec = {"kind": "seeded", "shape": "0.8b", "tokenizer": "qwen3.5"}
    return {
        readout: PromptCounter(provide({**spec, "readout": readout}, scratch).folder)
        for readout in ("scalar", "letters")
    }


@pytest.fixture(scope="session")
def made(counter: PromptCounter, real: dict[str, PromptCounter]) -> Callable[[str, str], Workload]:
    """The workload of a name under a tokenizer, generated once."""

    @functools.cache
    def made(name: str, tokenizer: str) -> Workload:
        used = counter if tokenizer == "demo" else real["letters" if name in LETTERS else "scalar"]
        return generate(read_spec(name), used)

    return made


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [(name, tokenizer) for name in SPECS for tokenizer in read_spec(name)["requests_sha256"]],
)
def test_requests_have_the_recorded_hash(
    name: str, tokenizer: str, made: Callable[[str, str], Workload]
) -> None:
    assert made(name, tokenizer).sha256 == read_spec(name)["requests_sha256"][tokenizer]


def test_every_workload_is_pinned_under_the_real_tokenizer() -> None:
    assert all("qwen3.5" in read_spec(name)["requests_sha256"] for name in SPECS)


@pytest.mark.parametrize("tokenizer", ["demo", "qwen3.5"])
@pytest.mark.parametrize("name", ["noul-74", "fixed-107"])
def test_prompts_have_exactly_the_tokens_asked_for_in_order(
    name: str,
    tokenizer: str,
    made: Callable[[str, str], Workload],
    counter: PromptCounter,
    real: dict[str, PromptCounter],
) -> None:
    tokens = read_spec(name)["tokens"]
    used = counter if tokenizer == "demo" else real["scalar"]
    requests = made(name, tokenizer).requests
    assert [request.prompts for request in requests] == [(n,) for n in tokens]
    assert [used.prompts(json.loads(request.body)) for request in requests] == [[n] for n in tokens]


def test_noul_74_is_the_published_list() -> None:
    tokens = read_spec("noul-74")["tokens"]
    assert (len(tokens), sum(tokens), min(tokens), max(tokens)) == (74, 31802, 80, 3399)


@pytest.mark.parametrize("name", ["noul-74", "fixed-107", "mixed-64"])
def test_no_two_requests_are_alike(name: str, made: Callable[[str, str], Workload]) -> None:
    requests = made(name, "demo").requests
    assert len({request.body for request in requests}) == len(requests)
    states = [json.dumps(json.loads(request.body)["state"]) for request in requests]
    assert len(set(states)) == len(states)


def test_mixed_64_has_its_four_slices(made: Callable[[str, str], Workload]) -> None:
    bodies = [json.loads(request.body) for request in made("mixed-64", "demo").requests]
    kinds = [tuple(sorted(question["type"] for question in body["questions"].values())) for body in bodies]
    assert len(bodies) == 64
    assert kinds.count(("choice", "noul", "score")) == 16
    assert kinds.count(("noul",) * 4) == 16
    assert kinds.count(("noul",)) == 32
    assert kinds[:16].count(("noul",)) < 16, "the order is shuffled"


def test_repeated_questions_are_those_of_the_short_requests(made: Callable[[str, str], Workload]) -> None:
    source = [r for r in made("noul-74", "demo").requests if r.tokens <= 400]
    repeated = made("repeat-4", "demo").requests
    assert len(repeated) == len(source) == 60
    for request, single in zip(repeated, source, strict=True):
        body, asked = json.loads(request.body), json.loads(single.body)
        assert list(body["questions"]) == ["q1", "q2", "q3", "q4"]
        assert list(body["questions"].values()) == 4 * [asked["questions"]["q"]]
        assert body["state"] == asked["state"]
        assert request.prompts == 4 * single.prompts


def test_the_example_has_seven_candidates_and_539_tokens(made: Callable[[str, str], Workload]) -> None:
    (request,) = made("example-7", "qwen3.5").requests
    assert (request.questions, len(request.prompts), sum(request.prompts)) == (3, 7, 539)


def test_wide_requests_have_the_candidates_and_states_asked_for(
    made: Callable[[str, str], Workload], real: dict[str, PromptCounter]
) -> None:
    spec = read_spec("wide")
    found = [
        (real["scalar"].text(json.loads(request.body)["state"]), len(request.prompts))
        for request in made("wide", "qwen3.5").requests
    ]
    assert found == [(tokens, n) for tokens in spec["states"] for n in spec["candidates"]]


@settings(deadline=None, max_examples=40)
@given(target=st.integers(60, 700), seed=st.integers(0, 10_000))
def test_any_length_can_be_met(counter: PromptCounter, target: int, seed: int) -> None:
    body = noul_of(counter, Stream("any", seed), target)
    assert counter.prompts(body) == [target]
    assert noul_of(counter, Stream("any", seed), target) == body


def test_a_length_that_cannot_be_met_is_named() -> None:
    with pytest.raises(ValueError, match="no text of 7 tokens"):
        fill(Stream("odd"), 7, lambda text: 2 * len(text.split()))


def test_a_changed_request_is_noticed(tmp_path: Path, counter: PromptCounter) -> None:
    spec: dict[str, Any] = {"name": "tiny", "generator": "noul", "seed": "s", "tokens": [70]}
    made = generate(spec, counter)
    for recorded, fails in ((made.sha256, False), ("0" * 64, True)):
        content = {**spec, "requests_sha256": {"demo": recorded}}
        (tmp_path / "tiny.json").write_text(json.dumps(content), encoding="utf-8")
        check_hashes({"tiny": made}, "own", tmp_path)
        if fails:
            with pytest.raises(ValueError, match=r"tiny\.json: requests_sha256 for demo: found"):
                check_hashes({"tiny": made}, "demo", tmp_path)
        else:
            check_hashes({"tiny": made}, "demo", tmp_path)


def test_an_unknown_generator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"name": "odd", "generator": "magic"}', encoding="utf-8")
    with pytest.raises(ValueError, match="generator 'magic', allowed: 'odd' and one of noul"):
        read_spec("odd", tmp_path)


@settings(deadline=None)
@given(seed=st.text(max_size=20), low=st.integers(-50, 50), width=st.integers(0, 100))
def test_a_stream_repeats_itself_and_stays_in_bounds(seed: str, low: int, width: int) -> None:
    values = [Stream(seed).between(low, low + width) for _ in range(2)]
    assert values[0] == values[1]
    assert low <= values[0] <= low + width
    items = list(range(width))
    assert sorted(Stream(seed).shuffled(items)) == items
