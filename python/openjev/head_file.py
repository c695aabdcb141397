"""Reads `head.pt`, the trained readout of an Open-Jev package, without torch and without running its pickle.

The file is what `torch.save` makes of a state dict {"weight": float32 [1, H], "bias": float32 [1]}: a zip
with a pickle and one raw file a tensor. Unpickling may call anything that it can name, so only the three
names that such a file needs can be named here, and two of them stand for functions of ours.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from openjev.errors import CheckpointError

_MOST_PICKLE_BYTES = 1 << 16
_MOST_STORAGE_BYTES = 1 << 28
_ITEM_BYTES = 4


@dataclass(frozen=True)
class Head:
    """weight float32 [1, H] and bias float32 [1], finite."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


def read_head(path: Path) -> Head:
    """Raises CheckpointError for anything that is not such a file."""
    try:
        with zipfile.ZipFile(path) as archive:
            tensors = _Archive(path, archive).tensors()
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"{path}: found no readable zip file ({error}), allowed: {_ALLOWED}") from None
    if set(tensors) != {"weight", "bias"}:
        _refuse(path, f"the entries {', '.join(map(str, tensors)) or 'none'}")
    weight, bias = tensors["weight"], tensors["bias"]
    if weight.ndim != 2 or weight.shape[0] != 1 or bias.shape != (1,):
        _refuse(path, f"weight of shape {list(weight.shape)} and bias of shape {list(bias.shape)}")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        _refuse(path, "a number that is not finite")
    return Head(weight, bias)


_ALLOWED = "what torch.save makes of {weight: float32 [1, hidden], bias: float32 [1]}"


def _refuse(path: Path, found: str) -> NoReturn:
    raise CheckpointError(f"{path}: found {found}, allowed: {_ALLOWED}")


class _FloatStorage:
    """Stands for torch.FloatStorage, which the pickle only names."""


def _rebuild(
    storage: NDArray[np.float32],
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    *_: object,
) -> NDArray[np.float32]:
    """Stands for torch._utils._rebuild_tensor_v2, for contiguous tensors."""
    count = math.prod(size)
    contiguous = tuple(math.prod(size[i + 1 :]) for i in range(len(size)))
    if tuple(stride) != contiguous or offset < 0 or min(size, default=0) < 0 or offset + count > storage.size:
        raise pickle.UnpicklingError(f"a tensor of size {size}, stride {stride} and offset {offset}")
    return storage[offset : offset + count].reshape(size)


_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): _FloatStorage,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, archive: _Archive) -> None:
        super().__init__(io.BytesIO(data))
        self._archive = archive

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module}.{name}") from None

    def persistent_load(self, pid: Any) -> NDArray[np.float32]:
        kind, storage, key, _, count = pid
        if kind != "storage" or storage is not _FloatStorage:
            raise pickle.UnpicklingError("a storage that is not float32")
        return self._archive.storage(str(key), int(count))


class _Archive:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            _refuse(path, f"{len(pickles)} entries data.pkl")
        self._pickle = pickles[0]
        self._stem = pickles[0][: -len("data.pkl")]

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        if f"{self._stem}byteorder" in self._archive.namelist():
            order = self._read(f"{self._stem}byteorder", 16)
            if order != b"little":
                _refuse(self._path, f"byte order {order!r}")
        data = self._read(self._pickle, _MOST_PICKLE_BYTES)
        try:
            found = _Unpickler(data, self).load()
        except CheckpointError:
            raise
        except Exception as error:
            # A broken pickle may fail in any way that a constructor or an index can.
            _refuse(self._path, f"a pickle with {error or type(error).__name__}")
        if not isinstance(found, dict) or not all(isinstance(v, np.ndarray) for v in found.values()):
            _refuse(self._path, "a pickle of another kind")
        return dict(found)

    def storage(self, key: str, count: int) -> NDArray[np.float32]:
        data = self._read(f"{self._stem}data/{key}", _MOST_STORAGE_BYTES)
        if len(data) != count * _ITEM_BYTES:
            _refuse(self._path, f"{len(data)} bytes in data/{key} for {count} numbers")
        return np.frombuffer(data, "<f4").astype(np.float32)

    def _read(self, name: str, most: int) -> bytes:
        try:
            info = self._archive.getinfo(name)
        except KeyError:
            _refuse(self._path, f"no entry {name}")
        if info.file_size > most:
            _refuse(self._path, f"{info.file_size} bytes in {name}")
        try:
            return self._archive.read(info)
        except (zipfile.BadZipFile, OSError, RuntimeError, EOFError) as error:
            _refuse(self._path, f"a damaged entry {name} ({error})")
