from __future__ import annotations

import pytest

from tests.gpu.support import Engines


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(tmp_path_factory.mktemp("gpu"))
