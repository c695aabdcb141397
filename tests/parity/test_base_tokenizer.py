"""The tokenizer that Transformers makes of a base's file is ours, also where the file splits differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from openjev.small_tokenizer import build_tokenizer
from openjev.tokens import Tokenizer

TEXTS = (
    "The parcel is three days late, isn't it?",
    "नमस्ते दुनिया 2026 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "e\u0301 cafe\u0301  \n\n tabs\t\tand   spaces ",
    "<|im_start|>user\nHi<|im_end|>\n",
)

pytestmark = pytest.mark.filterwarnings("default")


def other_split(file: dict[str, Any]) -> None:
    """Two letters at a time: no longer word is ever one token."""
    pattern = r"\p{L}{1,2}|[^\p{L}]"
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}


def no_normalizer(file: dict[str, Any]) -> None:
    file["normalizer"] = None


@pytest.mark.parametrize("changes", [(), (other_split,), (other_split, no_normalizer)])
def test_texts_have_the_ids_of_transformers(tmp_path: Path, changes: tuple[Any, ...]) -> None:
    file = json.loads(build_tokenizer().to_str())
    for change in changes:
        change(file)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    theirs, ours = Qwen3_5Tokenizer.from_pretrained(tmp_path), Tokenizer(tmp_path, of_base=True)
    assert ours.piecewise
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    if changes:
        as_it_is = Tokenizer(tmp_path)
        assert any(as_it_is.encode(text).tolist() != ours.encode(text).tolist() for text in TEXTS)
