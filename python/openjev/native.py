"""The one place that imports the native library, so that a missing build is one readable sentence."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

GRAPH_COUNTERS = ("hits", "misses", "captures", "evictions", "fallbacks", "entries", "bytes")


class Engine(Protocol):
    """What the library needs of ``openjev._runtime.Engine``."""

    @property
    def info(self) -> Mapping[str, Any]: ...

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        """float32 [n, k] logits of n prompts; prompt i is ``tokens[offsets[i]:offsets[i + 1]]``."""

    def stats(self) -> Mapping[str, Any]:
        """Counters since the engine was opened."""

    def warm_up(
        self, lengths: Sequence[int] = (), progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        """Measures and records what the device can before the first request."""

    def record_missed(self) -> bool:
        """Records one pass that requests of late had to launch kernel by kernel; False: none is left."""

    def graph_stats(self) -> Mapping[str, int]:
        """GRAPH_COUNTERS of recorded passes; zeros where the device records none."""

    def memory(self) -> Mapping[str, int]:
        """Device bytes: free, total, and planned_weights, planned_workspace, planned_graphs, free_before."""


def runtime() -> Any:
    """The module ``openjev._runtime``.

    Raises:
        ImportError: it is not built for this platform; one sentence that names the platform and the fix.
    """
    try:
        from openjev import _runtime
    except ImportError as error:
        found = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        raise ImportError(
            f"openjev has no native library for this platform ({found}: {error}); install a wheel made "
            "for it, or build one with 'pip install .' in the source folder, which needs a C++20 compiler",
            name="openjev._runtime",
        ) from error
    return _runtime
