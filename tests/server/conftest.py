from __future__ import annotations

import pytest

from openjev.small_tokenizer import build_tokenizer
from tests.server.support import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Servers:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    return Servers(folder)
