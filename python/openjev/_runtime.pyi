"""The native library (C++): checkpoint reading, the batch plan and the engine."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

testing: Any

class Prefix: ...

class Engine:
    def __init__(
        self,
        path: str,
        *,
        device: str = "cpu",
        threads: int = 0,
        cpu_isa: str = "",
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None: ...
    @property
    def info(self) -> dict[str, Any]: ...
    def score(
        self,
        tokens: NDArray[np.int32],
        offsets: NDArray[np.int64],
        share: bool = True,
        prefix: Prefix | None = None,
    ) -> NDArray[np.float32]: ...
    def last_hidden(
        self,
        tokens: NDArray[np.int32],
        offsets: NDArray[np.int64],
        share: bool = True,
        prefix: Prefix | None = None,
    ) -> NDArray[np.float32]: ...
    def keep_prefix(self, tokens: NDArray[np.int32]) -> Prefix: ...
    def stats(self) -> dict[str, Any]: ...

def backends() -> list[tuple[str, bool, str]]: ...
def read_manifest(path: str) -> dict[str, Any]: ...
