"""Servers that the whole session shares; each must start from nothing and end with exit code 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import openjev
from openjev.model import DecisionModel
from openjev.seeded import build_checkpoint
from tests.conformance.service import SMALL, Service, serving

KEY = "conformance-key"
ORIGIN = "http://app.test"


@pytest.fixture(scope="session")
def demo() -> Iterator[Service]:
    """`openjev serve` as a newcomer starts it: the bundled model, no key."""
    with serving("demo") as service:
        yield service


@pytest.fixture(scope="session")
def demo_model() -> DecisionModel:
    """The library on the very files that `demo` serves."""
    return openjev.load("demo", device="cpu", threads=1)


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("small") / "model", config=SMALL, max_length=8192)


@pytest.fixture(scope="session")
def keyed(small_folder: Path) -> Iterator[Service]:
    """A server with a key that lets pages of one origin in."""
    with serving(small_folder, "--cors-origin", ORIGIN, key=KEY) as service:
        yield service


@pytest.fixture(scope="session")
def letters_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters") / "model"
    return build_checkpoint(folder, kind="letters", config=SMALL)


@pytest.fixture(scope="session")
def letters(letters_folder: Path) -> Iterator[Service]:
    """A server of the Cua-S1 kind."""
    with serving(letters_folder) as service:
        yield service


@pytest.fixture(scope="session")
def crowded(small_folder: Path) -> Iterator[Service]:
    """A server whose queue holds a whole crowd."""
    with serving(small_folder, "--queue-requests", "400") as service:
        yield service
