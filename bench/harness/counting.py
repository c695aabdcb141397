"""Tokens of a request under a checkpoint's own tokenizer and prompts, without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openjev.contract import parse_request
from openjev.errors import RequestError
from openjev.native import runtime
from openjev.prompts import CuaS1Prompts, OpenJevPrompts, PromptFamily
from openjev.tokens import Tokenizer


class PromptCounter:
    """Counts as the server does: validate, render, tokenize. `folder` needs no weights.

    Raises CheckpointError for a folder without manifest or tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        manifest: Mapping[str, Any] = runtime().read_manifest(str(folder))
        self._tokenizer = Tokenizer(folder)
        self._family: PromptFamily = (
            CuaS1Prompts(manifest["outputs"])
            if manifest["readout"] == "letters"
            else OpenJevPrompts(manifest["prompt_prefix"], manifest["prompt_suffix"])
        )
        self.max_length = int(manifest["max_length"])

    def prompts(self, request: Mapping[str, Any]) -> list[int]:
        """Tokens of each candidate's whole prompt. Raises RequestError for what the server would refuse."""
        parsed = parse_request(request)
        issues = self._family.check(parsed)
        if issues:
            raise RequestError(issues)
        encoded = self._tokenizer.encode_request(self._family.render(parsed))
        return [length for question in encoded.lengths for length in question]

    def text(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(text))
