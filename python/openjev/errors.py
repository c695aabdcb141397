"""The exceptions of openjev, one class per cause that a caller can act on.

The native library raises these same classes, so ``except openjev.CheckpointError`` catches a bad checkpoint
whichever side found it. Every message names the field, tensor or file, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class OpenJevError(Exception):
    """Base of every exception that openjev raises on purpose."""


class BadRequestError(OpenJevError):
    """The arguments of this call are wrong; the same call will fail again."""


class UnsupportedRequestError(BadRequestError):
    """A well-formed request for something this model does not offer: another model, images, box questions."""


@dataclass(frozen=True)
class Issue:
    """One fault of a request.

    ``loc`` is the path to the fault and starts with ``"body"``; ``type`` is a stable machine-readable name;
    ``input`` is the offending value where it is short enough to repeat; ``ctx`` holds the numbers of the
    message (limits, counts).
    """

    loc: tuple[str | int, ...]
    msg: str
    type: str
    input: Any = None
    ctx: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The wire form: one entry of a 422 answer's ``detail`` list."""
        wire: dict[str, Any] = {"loc": [_clip(part) for part in self.loc], "msg": self.msg, "type": self.type}
        if self.input is not None:
            wire["input"] = self.input
        if self.ctx is not None:
            wire["ctx"] = dict(self.ctx)
        return wire

    def __str__(self) -> str:
        path = ".".join(str(_clip(part)) for part in self.loc[1:]) or "body"
        return f"{path}: {self.msg}"


def _clip(part: str | int) -> str | int:
    """A name of the request may fill the whole body, and one issue of many repeats it."""
    return part if isinstance(part, int) or len(part) <= 256 else part[:255] + "…"


class RequestError(BadRequestError):
    """A request that does not follow the contract; ``issues`` lists every fault that was found."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues: list[Issue] = list(issues)
        super().__init__("; ".join(str(issue) for issue in self.issues))


class CheckpointError(OpenJevError):
    """A file or tensor of the checkpoint folder is missing, damaged or of another shape or type."""


class NotPulledError(CheckpointError):
    """A known checkpoint, or a file of one, is not in the hub's cache, and nothing was to be downloaded."""


class LimitError(OpenJevError):
    """A valid call that is larger than a stated limit."""


class DeviceUnavailableError(OpenJevError):
    """The requested device, its driver or its library is not there."""


class OutOfDeviceMemoryError(OpenJevError):
    """The device (or the host, on the CPU) has too little free memory for this call or checkpoint."""


class InternalError(OpenJevError):
    """A broken invariant of openjev itself; please report it."""
