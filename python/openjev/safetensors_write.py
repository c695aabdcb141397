"""Writes safetensors files as a stream: the header first, then the tensors block by block, hashed on the way.

A file is never held in memory, so a checkpoint of any size is written with a few megabytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ITEM_BYTES: Mapping[str, int] = {"BF16": 2, "F32": 4}
_STORED_AS: Mapping[str, np.dtype[np.generic]] = {"BF16": np.dtype("<u2"), "F32": np.dtype("<f4")}
_HEADER_ALIGNMENT = 8


@dataclass(frozen=True)
class TensorSource:
    """A tensor to be written: name, dtype ("BF16" or "F32"), shape, and the values as flat blocks of rows.

    A BF16 block is uint16 (bit patterns, see `to_bf16_bits`), an F32 block is float32.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[NDArray[np.generic]]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class WrittenFile:
    """What a manifest says about a file: its name, length in bytes and SHA-256 in hexadecimal."""

    name: str
    nbytes: int
    sha256: str


def to_bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bit patterns of finite float32 `values` rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bf16_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 values of bfloat16 bit patterns, exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def write_safetensors(
    path: Path,
    tensors: Sequence[TensorSource],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> WrittenFile:
    """Writes `tensors` to `path` in the given order; `progress` is told the bytes of each written block.

    Raises ValueError when a tensor's blocks have another dtype than its own or do not fill its shape.
    """
    digest = hashlib.sha256()
    with path.open("wb") as file:
        head = _header(tensors, metadata)
        file.write(head)
        digest.update(head)
        written = len(head)
        for tensor in tensors:
            begin = written
            for block in tensor.blocks():
                if block.dtype != _STORED_AS[tensor.dtype]:
                    raise ValueError(
                        f"{tensor.name}: block is {block.dtype}, allowed: {_STORED_AS[tensor.dtype]}"
                    )
                data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
                file.write(data)
                digest.update(data)
                written += data.nbytes
                if progress is not None:
                    progress(data.nbytes)
            if written - begin != tensor.nbytes:
                raise ValueError(
                    f"{tensor.name}: blocks hold {written - begin} bytes, its shape {tensor.nbytes}"
                )
    return WrittenFile(path.name, written, digest.hexdigest())


def write_bytes(path: Path, data: bytes) -> WrittenFile:
    """Writes `data` to `path` and describes the file as `write_safetensors` does."""
    path.write_bytes(data)
    return WrittenFile(path.name, len(data), hashlib.sha256(data).hexdigest())


def _header(tensors: Sequence[TensorSource], metadata: Mapping[str, str] | None) -> bytes:
    """Length and JSON header, padded with spaces so that the data section is aligned."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for tensor in tensors:
        if tensor.name in entries:
            raise ValueError(f"{tensor.name}: tensor given twice")
        end = begin + tensor.nbytes
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
