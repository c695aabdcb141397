from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from openjev.tokens import Tokenizer
from tests.tokenizer import qwen35_folder

# The machines that run this are shared: how long an example takes says nothing about the code.
settings.register_profile("openjev", deadline=None)
settings.load_profile("openjev")


@pytest.fixture(scope="session")
def qwen35(request: pytest.FixtureRequest) -> Path:
    """A folder with the real Qwen3.5 tokenizer.json, kept in pytest's cache from run to run."""
    cache = request.config.cache
    assert cache is not None
    return qwen35_folder(cache.mkdir("openjev"))


@pytest.fixture(scope="session")
def tokenizer(qwen35: Path) -> Tokenizer:
    return Tokenizer(qwen35)


@pytest.fixture(scope="session")
def literal_tokenizer(qwen35: Path) -> Tokenizer:
    return Tokenizer(qwen35, literal_special_tokens=True)
