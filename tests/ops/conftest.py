"""Operator tests run on every instruction set of this machine, with two threads, and on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest

from openjev._runtime import testing
from tests.ops.support import targets


@pytest.fixture(scope="session", params=targets())
def target(request: pytest.FixtureRequest) -> str:
    """An instruction set of the CPU, or "cuda"."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def ops(target: str) -> Any:
    return testing.ops(device="cuda") if target == "cuda" else testing.ops(target, 2)


@pytest.fixture(scope="session")
def threads(target: str, ops: Any) -> list[Any]:
    """The operators with one, two and three threads: all of them must give the same bits.

    On a CUDA device the threads are the device's business, and it must give the same bits three times.
    """
    return [ops] * 3 if target == "cuda" else [testing.ops(target, count) for count in (1, 2, 3)]
