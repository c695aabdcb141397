"""Every operator test runs on every instruction set of this machine, with two threads."""

from __future__ import annotations

from typing import Any

import pytest

from openjev._runtime import testing
from tests.ops.support import usable_isas


@pytest.fixture(scope="session", params=usable_isas())
def isa(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def ops(isa: str) -> Any:
    return testing.ops(isa, 2)


@pytest.fixture(scope="session")
def threads(isa: str) -> list[Any]:
    """The operators with one, two and three threads: all of them must give the same bits."""
    return [testing.ops(isa, count) for count in (1, 2, 3)]
