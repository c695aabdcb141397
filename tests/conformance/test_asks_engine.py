"""What users of decision servers have asked for, by number (docs/conformance.md): length and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import openjev
from openjev.model import DecisionModel
from openjev.seeded import build_checkpoint
from tests.conformance.service import SMALL, Service, choice, noul, score

EIGHT: dict[str, Any] = {
    **{f"noul {i}": noul(f"Is it number {i}?") for i in range(4)},
    "team": choice("billing", "shipping", "support"),
    "kind": choice("letter", "parcel"),
    "mood": score("calm", "annoyed", "angry"),
    "size": score("small", "large"),
}


def digits(count: int) -> str:
    """A text of `count` tokens: the tokenizer splits every digit off."""
    return ("0123456789" * (count // 10 + 1))[:count]


def prompt_tokens(model: DecisionModel, state: str, question: dict[str, Any]) -> int:
    prepared = model.prepare({"state": state, "questions": {"q": question}})
    assert prepared.prompts == 1
    return prepared.input_tokens


def test_T19_a_prompt_is_never_cut(demo: Service, demo_model: DecisionModel) -> None:
    limit = demo_model.info.max_length
    room = limit - prompt_tokens(demo_model, "7", noul()) + 1
    longest = demo.ask(digits(room), q=noul())
    assert longest.status == 200
    assert longest.json["usage"]["input_tokens"] == limit
    [issue] = demo.ask(digits(room + 1), q=noul()).issues
    assert issue["type"] == "max_tokens_exceeded"
    assert issue["ctx"] == {"tokens": limit + 1, "limit": limit}
    assert "q" in issue["loc"]


@pytest.mark.parametrize("tokens", [3, 527, 528, 4000])
def test_T20_sharing_changes_no_bit(small_folder: Path, keyed: Service, tokens: int) -> None:
    request: dict[str, Any] = {"state": digits(tokens), "questions": EIGHT}
    shared = openjev.load(small_folder, device="cpu", threads=1)
    apart = openjev.load(small_folder, device="cpu", threads=1, share_prefixes=False)
    prepared = shared.prepare(request)
    [logits] = shared.execute([prepared])
    [logits_apart] = apart.execute([prepared])
    assert logits.tobytes() == logits_apart.tobytes()
    assert logits.shape == (prepared.prompts, 1)
    # The one with sharing has computed the state once.
    assert shared.stats()["rows"] < apart.stats()["rows"] - (prepared.prompts - 1) * tokens
    decision = apart.finish(prepared, logits_apart)
    assert keyed.post(request).answers == json.loads(json.dumps(decision.to_dict()))["answers"]


# Peak memory of the process, before and after the same prompt is scored a third time, now for its logits.
_MEASURE = """
import json, sys
import numpy as np
from openjev._runtime import Engine
from tests.conformance.service import process_memory
folder, ids = sys.argv[1], np.array(json.load(sys.stdin), np.int32)
offsets = np.array([0, len(ids)], np.int64)
engine = Engine(folder, device="cpu", threads=1)
for _ in range(2):
    engine.last_hidden(ids, offsets)
before = process_memory("self", "VmHWM")
logits = engine.score(ids, offsets)
after = process_memory("self", "VmHWM")
print(json.dumps({"before": before, "after": after, "shape": logits.shape, "bytes": logits.nbytes}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_T26_a_long_cua_s1_prompt_costs_no_memory_for_logits(tmp_path: Path) -> None:
    # Logits of every position would be 1.5 GiB with this vocabulary, and 1.6 MB with the 26 letters alone.
    config = {**SMALL, "vocab_size": 26_624}
    folder = build_checkpoint(tmp_path / "model", kind="letters", config=config)
    model = openjev.load(folder, device="cpu", threads=1)
    question = choice("delete", "cancel", text="Keep the files.")
    rest = prompt_tokens(model, "7", question) - 1
    prepared = model.prepare({"state": digits(15_446 - rest), "questions": {"q": question}})
    assert prepared.input_tokens == 15_446
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(folder)],
        input=json.dumps(prepared.tokens.tolist()),
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["shape"] == [1, 26]
    assert measured["bytes"] == 26 * 4
    assert measured["after"] - measured["before"] < 1 << 20


def test_T26_a_long_cua_s1_prompt_is_answered(letters: Service, letters_folder: Path) -> None:
    model = openjev.load(letters_folder, device="cpu", threads=1)
    question = choice("delete", "cancel", text="Keep the files.")
    rest = prompt_tokens(model, "7", question) - 1
    reply = letters.ask(digits(15_446 - rest), q=question)
    assert set(reply.answers["q"]) == {
        "type",
        "choice",
        "probabilities",
        "confidence",
        "x_entropy_confidence",
    }
    assert reply.json["usage"] == {"input_tokens": 15_446, "output_tokens": 0}
    limit = model.info.max_length
    [issue] = letters.ask(digits(limit - rest + 1), q=question).issues
    assert issue["ctx"] == {"tokens": limit + 1, "limit": limit}
