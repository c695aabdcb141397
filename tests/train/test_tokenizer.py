"""The tokenizer encodes any text; encoded rows are the server's prompts in full. Needs no torch."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from train.data.generate import examples
from train.encode import Encoded, concatenate, encode, prompt_parts

from openjev.small_tokenizer import SPECIAL_TOKENS, train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 700


def training_texts() -> list[str]:
    parts = prompt_parts(examples("train", 0, 300))
    return [head + rest for prompts in parts for head, rest in prompts[:1]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(training_texts(), VOCABULARY)


@settings(deadline=None)
@given(text=st.text())
def test_any_text_comes_back_in_its_composed_form(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert all(one < VOCABULARY for one in ids)
    assert tokenizer.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


def test_vocabulary_is_bytes_then_merges_then_special_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert all(len(tokenizer.id_to_token(i)) == 1 for i in range(256))
    first = VOCABULARY - len(SPECIAL_TOKENS)
    assert [tokenizer.id_to_token(first + i) for i in range(len(SPECIAL_TOKENS))] == list(SPECIAL_TOKENS)
    assert tokenizer.encode("<|im_start|>", add_special_tokens=False).ids == [
        first + SPECIAL_TOKENS.index("<|im_start|>")
    ]


def test_the_same_texts_give_the_same_tokenizer(tokenizer: Tokenizer) -> None:
    assert train_tokenizer(training_texts(), VOCABULARY).to_str() == tokenizer.to_str()


def test_encoded_prompts_are_the_whole_texts(tokenizer: Tokenizer) -> None:
    rows = list(examples("test", 0, 100))
    data = encode(rows, tokenizer)
    prompts = [one for parts in prompt_parts(rows) for one in parts]
    assert len(prompts) == len(data.lengths) == data.first[-1]
    for p, (head, rest) in enumerate(prompts):
        ids = data.tokens[data.offsets[p] : data.offsets[p + 1]]
        assert ids.tolist() == tokenizer.encode(head + rest, add_special_tokens=False).ids
        assert ids[: data.states[p]].tolist() == tokenizer.encode(head, add_special_tokens=False).ids


def test_a_question_has_a_prompt_for_each_candidate(tokenizer: Tokenizer) -> None:
    rows = list(examples("validation", 0, 200))
    data = encode(rows, tokenizer)
    for made, count, target in zip(rows, np.diff(data.first), data.targets, strict=True):
        noul = made.question["type"] == "noul"
        assert count == (1 if noul else len(made.question["criteria"]))
        assert 0 <= target < (2 if noul else count)


def test_parts_put_together_are_the_whole(tokenizer: Tokenizer) -> None:
    rows = list(examples("train", 0, 60))
    whole, joined = (
        encode(rows, tokenizer),
        concatenate([encode(rows[:25], tokenizer), encode(rows[25:], tokenizer)]),
    )
    for name in Encoded.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_data_and_encoding_import_without_torch() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'peft'): sys.modules[name] = None\n"
        "import train.data.generate, train.encode"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
