"""The native library (C++): checkpoint reading, the batch plan and the engine."""

from collections.abc import Callable, Sequence
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
        device_index: int = 0,
        graph_mode: str = "bucketed",
        graph_entries: int = 0,
        matmul_mode: str = "invariant",
        tuning_file: str = "",
        load_format: str = "auto",
        seed: int = 0,
        adapter: str = "",
        manifest: dict[str, Any] | None = None,
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
    def warm_up(
        self, lengths: Sequence[int] = (), progress: Callable[[int, int, str], None] | None = None
    ) -> None: ...
    def record_missed(self) -> bool: ...
    def graph_stats(self) -> dict[str, int]: ...
    def memory(self) -> dict[str, int]: ...
    def stats(self) -> dict[str, Any]: ...

class MergedReader:
    def __init__(self, base: str, adapter: str | None = None) -> None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def adapter(self) -> dict[str, Any] | None: ...
    def read(
        self, name: str, shape: Sequence[int], first: int, count: int, threads: int = 1
    ) -> NDArray[Any]: ...
    def first_not_finite(self, name: str, shape: Sequence[int]) -> int | None: ...
    def release(self, name: str, shape: Sequence[int]) -> None: ...

def read_adapter(adapter: str, base: str) -> dict[str, Any]: ...
def backends() -> list[tuple[str, bool, str]]: ...
def read_manifest(path: str) -> dict[str, Any]: ...
