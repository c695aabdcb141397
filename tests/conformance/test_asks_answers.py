"""What users of decision servers have asked for, by number (docs/conformance.md): questions and answers.

Each test goes through a real server process; the numbers it compares with are computed here.
"""

from __future__ import annotations

import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import openjev
from openjev.demo import demo_folder
from openjev.model import DecisionModel
from openjev.seeded import build_checkpoint
from tests.conformance.service import SMALL, Service, choice, noul, score

END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
NOUL_END = "Is the answer to this question yes? Answer Yes or No." + END
CRITERIA: list[tuple[dict[str, Any], str]] = [
    ({"true": "3 days"}, "\nYes means: 3 days"),
    ({"false": "today"}, "\nNo means: today"),
    ({"true": "x", "false": None}, "\nYes means: x"),
    ({"true": None, "false": None}, ""),
]


@pytest.fixture(scope="module")
def count_tokens() -> Any:
    """Tokens of a whole prompt of `demo`, by the tokenizer alone."""
    tokenizer = Tokenizer.from_file(str(demo_folder() / "base" / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def noul_prompt(state: str, question: str) -> str:
    return f"<|im_start|>user\nContext:\n{state}\n\nQuestion: {question}\n{NOUL_END}"


@pytest.mark.parametrize(("criteria", "lines"), CRITERIA)
def test_T01_a_noul_may_describe_one_outcome(
    demo: Service, count_tokens: Any, criteria: dict[str, Any], lines: str
) -> None:
    described = demo.ask("Hi", q=noul("Late?", **criteria))
    assert described.json["usage"]["input_tokens"] == count_tokens(noul_prompt("Hi", "Late?" + lines))
    written_out = demo.ask("Hi", q=noul("Late?" + lines))
    assert described.answers == written_out.answers


def test_T02_a_noul_needs_instructions_or_an_outcome(demo: Service, count_tokens: Any) -> None:
    described = demo.ask("Hi", q={"type": "noul", "criteria": {"true": "late"}})
    assert 0 <= described.answers["q"]["noul"] <= 1
    assert described.json["usage"]["input_tokens"] == count_tokens(noul_prompt("Hi", "Yes means: late"))
    [issue] = demo.ask("Hi", q={"type": "noul"}).issues
    assert issue["loc"][0] == "body" and "q" in issue["loc"]


def test_T03_a_cut_body_is_a_json_error(demo: Service) -> None:
    reply = demo.post(b'{"model": "jev-latest", "state"')
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.issues[0]["type"] == "json_invalid"


def test_T04_the_top_level_is_the_contracts(demo: Service) -> None:
    keys = set(demo.ask("Hi", q=noul()).json)
    assert keys >= {"model", "answers", "usage"}
    assert all(key.startswith("x_") for key in keys - {"model", "answers", "usage"})


def test_T05_an_answer_does_not_depend_on_its_company(demo: Service) -> None:
    alone = demo.ask("Hi", a=noul("Late?")).answers["a"]
    others = {
        "b": noul("Lost?"),
        "c": choice("x", "y"),
        "d": score("low", "high"),
        "e": noul("Late!"),
        "f": choice("Late?", "other"),
    }
    assert demo.ask("Hi", a=noul("Late?"), **others).answers["a"] == alone
    assert demo.ask("Hi", **others, a=noul("Late?")).answers["a"] == alone
    with ThreadPoolExecutor(32) as clients:
        asked = [
            clients.submit(demo.ask, "Hi", a=noul("Late?"), **{f"n{i}": noul(f"{i}?")}) for i in range(32)
        ]
        assert [reply.result().answers["a"] for reply in asked] == [alone] * 32


def test_T06_order_changes_nothing(demo: Service, demo_model: DecisionModel) -> None:
    first: dict[str, float] | None = None
    logits: dict[str, bytes] = {}
    for names in itertools.permutations("abc"):
        p = demo.ask("Hi", q=choice(*names)).answers["q"]["probabilities"]
        first = first or p
        assert list(p) == list(names)
        assert all(math.isclose(p[name], first[name], abs_tol=1e-12) for name in names)
        prepared = demo_model.prepare({"state": "Hi", "questions": {"q": choice(*names)}})
        for name, row in zip(names, demo_model.execute([prepared])[0], strict=True):
            assert logits.setdefault(name, row.tobytes()) == row.tobytes()
    questions = {"one": noul(), "two": choice("a", "b"), "three": score("low", "high")}
    backwards = dict(reversed(questions.items()))
    assert demo.ask("Hi", **backwards).answers == demo.ask("Hi", **questions).answers


def test_T07_descriptions_may_be_null_or_structured_and_levels_come_back(demo: Service) -> None:
    mixed = {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": {"why": "x"}}}
    answers = demo.ask("Hi", c=mixed, s=score("low", {"n": 1})).answers
    assert set(answers["c"]["probabilities"]) == {"a", "b"}
    assert answers["s"]["legend"] == {"0": "low", "1": {"n": 1}}


@pytest.mark.parametrize("count", [77, 255])
def test_T08_up_to_255_options_are_answered(demo: Service, count: int) -> None:
    names = [f"intent {i}" for i in range(count)]
    answer = demo.ask("Hi", q=choice(*names)).answers["q"]
    assert list(answer["probabilities"]) == names
    assert math.isclose(math.fsum(answer["probabilities"].values()), 1, abs_tol=1e-12)


@pytest.mark.parametrize("count", [0, 256, 311])
def test_T08_other_numbers_of_options_are_refused_with_the_limit(demo: Service, count: int) -> None:
    [issue] = demo.ask("Hi", intents=choice(*map(str, range(count)))).issues
    assert issue["loc"] == ["body", "questions", "intents", "criteria"]
    assert f"{count}" in issue["msg"] and "255" in issue["msg"]
    if count:
        assert set(issue["ctx"].values()) == {255, count}


def test_T09_the_checkpoints_temperature_is_applied_and_reported(tmp_path: Path) -> None:
    folder = build_checkpoint(tmp_path / "model", config=SMALL)
    manifest = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    asked = {"state": "Hi", "questions": {"q": choice("a", "b")}}
    for temperature in (1.0, 2.0):
        manifest["readout"]["temperature"] = temperature
        (folder / "decision.json").write_text(json.dumps(manifest), encoding="utf-8")
        model = openjev.load(folder, device="cpu", threads=1)
        prepared = model.prepare(asked)
        [[a], [b]] = model.execute([prepared])[0].tolist()
        answer = model.finish(prepared, model.execute([prepared])[0]).to_dict()
        want = 1 / (1 + math.exp((b - a) / temperature))
        assert math.isclose(answer["answers"]["q"]["probabilities"]["a"], want, abs_tol=1e-12)
        assert answer["x_openjev"]["temperature"] == temperature


def test_T10_one_to_ten_levels(demo: Service) -> None:
    one = demo.ask("Hi", q=score("only")).answers["q"]
    assert (one["score"], one["confidence"]) == (0, 1)
    for count in (2, 10):
        answer = demo.ask("Hi", q=score(*map(str, range(count)))).answers["q"]
        assert list(answer["probabilities"]) == [str(i) for i in range(count)]
    [issue] = demo.ask("Hi", q=score(*map(str, range(11)))).issues
    assert "11" in issue["msg"] and "10" in issue["msg"]


def test_T11_score_keys_are_positions_even_when_labels_are_numbers(demo: Service) -> None:
    labels = ["20", "21", "22", "23", "24"]
    answer = demo.ask("Hi", q=score(*labels)).answers["q"]
    assert list(answer["probabilities"]) == ["0", "1", "2", "3", "4"]
    assert answer["legend"] == dict(zip("01234", labels, strict=True))
    assert 0 <= answer["score"] <= 4


def test_T13_a_noul_answer_has_two_keys(demo: Service) -> None:
    assert set(demo.ask("Hi", q=noul()).answers["q"]) == {"type", "noul"}


def test_T32_text_that_spells_a_special_token(demo: Service, count_tokens: Any) -> None:
    reply = demo.ask("a<|im_end|>b", q=noul("Late?"))
    assert reply.json["usage"]["input_tokens"] == count_tokens(noul_prompt("a<|im_end|>b", "Late?"))
    assert count_tokens("a<|im_end|>b") == 3
