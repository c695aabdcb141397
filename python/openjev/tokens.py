"""From prompt texts to token ids, each shared piece of a request encoded once.

Why joining the ids of pieces equals encoding the whole prompt. Byte-level BPE merges inside pre-tokens
only, so a cut is harmless if it is a pre-token boundary of the whole text and moves no other boundary. All
cuts lie between a line feed and an ASCII letter (prompts.py). No alternative of the Qwen3.5 split pattern
matches a letter after a line feed; a run of white space that ends in a line feed is matched to its end
whatever follows; and the pattern never looks back. NFC does not compose across a line feed. An added token
could span the cut only if it held a line feed or swallowed white space around it. ``Tokenizer`` checks all
of this on the file it is given, and encodes whole prompts when the file is of another kind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from openjev.errors import CheckpointError
from openjev.prompts import Piece, Pieces, RenderedQuestion, RenderedRequest

Ids: TypeAlias = NDArray[np.int32]

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# SPLIT_PATTERN on ASCII text, where letters are A-Z and a-z, numbers 0-9, and there are no marks. Its first
# alternative is a case of the third, put first because most pre-tokens are plain words.
_ASCII_SPLIT = re.compile(
    r" ?[A-Za-z]+|'(?:[stmdSTMD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    re.ASCII,
)
_KEPT_TEXTS = 1 << 13
_KEPT_TEXT_LENGTH = 256
_KEPT_WORDS = 1 << 16
_KEPT_WORD_LENGTH = 64
_MOST_UNSEEN = 1 << 12  # beyond it, one call for the whole text takes less time and memory
_EMPTY: Ids = np.empty(0, np.int32)


@dataclass(frozen=True)
class TokenizedQuestion:
    """Ids of one question's ``stem`` and of each candidate's ``tail``; prompt i is head + stem + tails[i]."""

    stem: Ids
    tails: tuple[Ids, ...]


@dataclass(frozen=True)
class TokenizedRequest:
    """Ids of all prompts of a request, shared parts once; ``tokens`` and ``offsets`` are the flat form."""

    head: Ids
    questions: tuple[TokenizedQuestion, ...]

    @cached_property
    def lengths(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of each complete prompt, by question and candidate."""
        head = len(self.head)
        return tuple(tuple(head + len(q.stem) + len(tail) for tail in q.tails) for q in self.questions)

    @cached_property
    def input_tokens(self) -> int:
        """Sum over all complete prompts."""
        return sum(map(sum, self.lengths))

    @cached_property
    def rows(self) -> int:
        """Upper bound of the distinct rows the engine computes when it shares prefixes."""
        return len(self.head) + sum(len(q.stem) + sum(map(len, q.tails)) for q in self.questions)

    @cached_property
    def tokens(self) -> Ids:
        """int32 [input_tokens]: all prompts, one after the other; made on first use, as it can be large."""
        parts = [part for q in self.questions for tail in q.tails for part in (self.head, q.stem, tail)]
        return np.concatenate(parts)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """int64 [prompts + 1]: prompt i is ``tokens[offsets[i]:offsets[i + 1]]``."""
        lengths = list(chain.from_iterable(self.lengths))
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return offsets


class Tokenizer:
    """The checkpoint's ``tokenizer.json``.

    Text that spells a special token ("<|im_end|>") is encoded as that token, as the reference does. With
    ``literal_special_tokens`` it is encoded as the characters it is, except in the chat wrapper, so that no
    words of a caller can end a message. ``of_base``: the file is that of a base's repository, see
    :func:`open_base_tokenizer`.

    Raises:
        CheckpointError: the file is missing or not a tokenizer.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        literal_special_tokens: bool = False,
        of_base: bool = False,
    ) -> None:
        path = Path(folder) / "tokenizer.json"
        hf = open_base_tokenizer(path) if of_base else _open(path)
        self.path = path
        self.vocab_size: int = hf.get_vocab_size(with_added_tokens=True)
        self.literal_special_tokens = literal_special_tokens
        self.piecewise = _is_qwen35(hf)
        self._wrapper = _Encoder(hf, self.piecewise)
        self._user = (
            _Encoder(_without_added_tokens(hf), self.piecewise) if literal_special_tokens else self._wrapper
        )
        self._constants: dict[str, Ids] = {}

    def encode(self, text: str) -> Ids:
        """Ids of ``text`` as a whole, special tokens recognised."""
        return self._wrapper.encode_whole([text])[0]

    def encode_request(self, rendered: RenderedRequest) -> TokenizedRequest:
        """Ids of every prompt of the request, equal to those of the whole prompts."""
        if not (self.piecewise and rendered.cuttable):
            return self._encode_whole(rendered)
        known = self._encode_pieces(rendered)
        return TokenizedRequest(
            _join(rendered.head, known),
            tuple(
                TokenizedQuestion(_join(q.stem, known), tuple(_join(tail, known) for tail in q.tails))
                for q in rendered.questions
            ),
        )

    def _encode_pieces(self, rendered: RenderedRequest) -> dict[Piece, Ids]:
        pieces = dict.fromkeys(chain(rendered.head, *map(_pieces_of, rendered.questions)))
        texts = [piece.text for piece in pieces if not piece.wrapper]
        known = dict(zip((Piece(text) for text in texts), self._user.encode(texts), strict=True))
        for piece in pieces:
            if piece.wrapper:
                known[piece] = self._constant(piece.text)
        return known

    def _constant(self, text: str) -> Ids:
        ids = self._constants.get(text)
        if ids is None:
            ids = self._constants[text] = self.encode(text)
        return ids

    def _encode_whole(self, rendered: RenderedRequest) -> TokenizedRequest:
        """One run of text a prompt; with literal special tokens, one a change between wrapper and caller."""
        questions = []
        for question in rendered.questions:
            prompts = [(*rendered.head, *question.stem, *tail) for tail in question.tails]
            questions.append(TokenizedQuestion(_EMPTY, tuple(map(self._encode_prompt, prompts))))
        return TokenizedRequest(_EMPTY, tuple(questions))

    def _encode_prompt(self, pieces: Pieces) -> Ids:
        if not self.literal_special_tokens:
            return self.encode("".join(piece.text for piece in pieces))
        runs: list[Piece] = []
        for piece in pieces:
            if runs and runs[-1].wrapper == piece.wrapper:
                runs[-1] = Piece(runs[-1].text + piece.text, piece.wrapper)
            else:
                runs.append(piece)
        encoders = {True: self._wrapper, False: self._user}
        return np.concatenate([encoders[run.wrapper].encode_whole([run.text])[0] for run in runs])


class _Encoder:
    """Encodes texts. Short ones seen before are looked up: clients ask the same questions about many states.
    Other ASCII texts are put together from pre-tokens seen before, about ten times faster than encoding.

    The ids of a pre-token do not depend on its neighbours, so a table of those seen before gives the same
    ids as the tokenizer. Python's regular expressions know no Unicode categories, hence ASCII only; NFC
    leaves ASCII alone.
    """

    def __init__(self, hf: HFTokenizer, piecewise: bool) -> None:
        self._hf = hf
        self._piecewise = piecewise
        added = [token.content for token in hf.get_added_tokens_decoder().values()]
        self._added = re.compile("|".join(map(re.escape, added))) if added else None
        self._texts: dict[str, Ids] = {}
        self._words: dict[str, list[int]] = {}

    def encode_whole(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._hf.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        table = self._texts
        unseen = [text for text in dict.fromkeys(texts) if text not in table]
        if not unseen:
            return [table[text] for text in texts]
        fresh = {text: ids for text in unseen if (ids := self._encode_ascii(text)) is not None}
        others = [text for text in unseen if text not in fresh]
        fresh.update(zip(others, self.encode_whole(others) if others else (), strict=True))
        self._keep(fresh)
        return [fresh[text] if text in fresh else table[text] for text in texts]

    def _keep(self, fresh: dict[str, Ids]) -> None:
        """A full table is replaced, not emptied: another thread may read it."""
        short = {text: ids for text, ids in fresh.items() if len(text) <= _KEPT_TEXT_LENGTH}
        if len(self._texts) + len(short) > _KEPT_TEXTS:
            self._texts = {}
        if len(short) <= _KEPT_TEXTS:
            self._texts.update(short)

    def _encode_ascii(self, text: str) -> Ids | None:
        if not (self._piecewise and text.isascii()) or (self._added and self._added.search(text)):
            return None
        words = _ASCII_SPLIT.findall(text)
        table = self._words
        try:
            return np.fromiter(chain.from_iterable(map(table.__getitem__, words)), np.int32)
        except KeyError:
            unseen = [word for word in dict.fromkeys(words) if word not in table]
        if len(unseen) > _MOST_UNSEEN:
            return None
        fresh = self._learn(unseen)
        ids = chain.from_iterable(fresh[word] if word in fresh else table[word] for word in words)
        return np.fromiter(ids, np.int32)

    def _learn(self, words: list[str]) -> dict[str, list[int]]:
        """Ids of unseen pre-tokens. A full table is replaced, not emptied: another thread may read it."""
        encodings = self._hf.encode_batch_fast(words, add_special_tokens=False)
        fresh = {word: encoding.ids for word, encoding in zip(words, encodings, strict=True)}
        if len(self._words) + len(fresh) > _KEPT_WORDS:
            self._words = {}
        self._words.update((word, ids) for word, ids in fresh.items() if len(word) <= _KEPT_WORD_LENGTH)
        return fresh


def _pieces_of(question: RenderedQuestion) -> Iterable[Piece]:
    return chain(question.stem, *question.tails)


def _join(pieces: Pieces, known: dict[Piece, Ids]) -> Ids:
    if len(pieces) == 1:
        return known[pieces[0]]
    return np.concatenate([known[piece] for piece in pieces]) if pieces else _EMPTY


def _open(path: Path) -> HFTokenizer:
    if not path.is_file():
        raise CheckpointError(f"{path}: not found; a checkpoint folder holds its tokenizer.json")
    try:
        hf = HFTokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: not a tokenizer file: {error}") from error
    hf.no_truncation()
    hf.no_padding()
    return hf


def open_base_tokenizer(path: Path) -> HFTokenizer:
    """The tokenizer that Transformers makes of a Qwen3.5 base's file.

    Its class for this family takes vocabulary, merges and added tokens from the file, and brings normalizer
    and split pattern of its own, whatever the file says of them. Raises CheckpointError like ``Tokenizer``.
    """
    hf = _open(path)
    if type(hf.model).__name__ == "BPE":
        hf.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated", invert=False)
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        hf.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_of])
    return hf


def _without_added_tokens(hf: HFTokenizer) -> HFTokenizer:
    literal = HFTokenizer(hf.model)
    if hf.normalizer is not None:
        literal.normalizer = hf.normalizer
    if hf.pre_tokenizer is not None:
        literal.pre_tokenizer = hf.pre_tokenizer
    return literal


def _is_qwen35(hf: HFTokenizer) -> bool:
    """True if every condition in this module's first comment holds for the file."""
    if type(hf.model).__name__ != "BPE" or hf.model.dropout:
        return False
    if hf.normalizer is not None and _settings(hf.normalizer).get("type") != "NFC":
        return False
    return _splits_as_qwen35(hf) and all(
        "\n" not in token.content and not (token.lstrip or token.rstrip or token.single_word)
        for token in hf.get_added_tokens_decoder().values()
    )


def _splits_as_qwen35(hf: HFTokenizer) -> bool:
    if hf.pre_tokenizer is None:
        return False
    stages = _settings(hf.pre_tokenizer).get("pretokenizers") or []
    if [stage["type"] for stage in stages] != ["Split", "ByteLevel"]:
        return False
    split, byte_level = stages
    return (
        split["pattern"] == {"Regex": SPLIT_PATTERN}
        and split["behavior"] == "Isolated"
        and not split["invert"]
        and not byte_level["add_prefix_space"]
        and not byte_level.get("use_regex", True)
    )


def _settings(component: Any) -> dict[str, Any]:
    """A tokenizer component as it stands in tokenizer.json."""
    settings: dict[str, Any] = json.loads(component.__getstate__())
    return settings
