"""Memory in use, sampled from outside the server: the device through NVML, a process through /proc."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MIB = 2**20


class Nvml:
    """The few calls of libnvidia-ml that are needed, for one device. Raises OSError where there is none."""

    class _Memory(ctypes.Structure):
        _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))

    def __init__(self, index: int = 0) -> None:
        self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self._device))

    def used_bytes(self) -> int:
        """Of the whole device: a container cannot see which process holds what."""
        memory = self._Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return int(memory.used)

    def facts(self) -> dict[str, Any]:
        """Name, driver, clocks, power and temperature now."""
        return {
            "name": self._text("nvmlDeviceGetName", self._device),
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(1)),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(2)),
            "power_w": self._number("nvmlDeviceGetPowerUsage") / 1e3,
            "power_limit_w": self._number("nvmlDeviceGetPowerManagementLimit") / 1e3,
            "temperature_c": self._number("nvmlDeviceGetTemperature", ctypes.c_uint(0)),
        }

    def _number(self, name: str, *selector: Any) -> int:
        value = ctypes.c_uint()
        self._call(name, self._device, *selector, ctypes.byref(value))
        return int(value.value)

    def _text(self, name: str, *target: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        self._call(name, *target, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode()

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: NVML error {code}")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process. Raises OSError when it is gone."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no VmRSS")


@dataclass
class MemorySeries:
    """MiB over seconds since the sampler began; `what` says of what."""

    what: str
    interval_s: float
    mib: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        peak = max(self.mib) if self.mib else None
        return {"what": self.what, "interval_s": self.interval_s, "peak_mib": peak, "mib": self.mib}


@contextmanager
def sampled(what: str, read: Callable[[], int] | None, interval_s: float) -> Iterator[MemorySeries]:
    """Samples `read` (bytes) until the block ends, or the reading fails; None: nothing to read."""
    series = MemorySeries(what, interval_s)
    done = threading.Event()

    def loop(read: Callable[[], int]) -> None:
        due = time.monotonic()
        while not done.wait(max(0.0, due - time.monotonic())):
            try:
                series.mib.append(round(read() / _MIB, 1))
            except OSError:
                return
            due += interval_s

    if read is None:
        yield series
        return
    thread = threading.Thread(target=loop, args=(read,), daemon=True)
    thread.start()
    try:
        yield series
    finally:
        done.set()
        thread.join()
