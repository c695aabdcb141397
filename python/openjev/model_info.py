"""What is known about a loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openjev.errors import LimitError


@dataclass(frozen=True)
class ModelInfo:
    """What is loaded and where. ``aliases`` are the further names a request may give as ``model``.

    ``base`` and ``checkpoint`` are {"id", "revision"}; ``temperature`` is ``None`` for readouts without
    one; ``max_length`` is in tokens of one prompt and what this model enforces. ``caveat`` says why answers
    are not to be relied on, of the demonstration model and of seeded weights; else it is empty.
    """

    name: str
    aliases: tuple[str, ...]
    family: str
    caveat: str
    device: str
    device_detail: str
    threads: int
    weight_dtype: str
    weight_bytes: int
    parameters: int
    layers: int
    hidden_size: int
    vocab_size: int
    format: str
    base: Mapping[str, str]
    checkpoint: Mapping[str, str]
    readout: str
    outputs: int
    temperature: float | None
    max_length: int

    @property
    def demo(self) -> bool:
        """Whether this is a model for trying things out."""
        return bool(self.caveat)

    def extensions(self) -> dict[str, Any]:
        """What ``x_openjev`` says in every answer."""
        wire: dict[str, Any] = {
            "base": dict(self.base),
            "checkpoint": dict(self.checkpoint),
            "format": self.format,
            "device": self.device,
            "family": self.family,
        }
        if self.temperature is not None:
            wire["temperature"] = self.temperature
        if self.demo:
            wire["demo"] = True
        return wire


def describe(
    engine: Mapping[str, Any],
    *,
    names: Sequence[str],
    caveat: str,
    family: str,
    max_length: int = 0,
    ceiling: int | None = None,
) -> ModelInfo:
    """From the engine's ``info``. ``max_length`` 0 takes the checkpoint's, which ``ceiling`` may lower.

    Raises:
        LimitError: ``max_length`` exceeds what the checkpoint allows.
    """
    allowed = min(int(engine["max_length"]), ceiling or int(engine["max_length"]))
    if not 0 <= max_length <= allowed:
        raise LimitError(
            f"max_length: found {max_length}, allowed: 1 to {allowed} (of this checkpoint), 0 for that"
        )
    return ModelInfo(
        name=names[0],
        aliases=tuple(names[1:]),
        family=family,
        caveat=caveat,
        device=engine["device"],
        device_detail=engine["device_detail"],
        threads=engine["threads"],
        weight_dtype=engine["weight_dtype"],
        weight_bytes=engine["weight_bytes"],
        parameters=engine["parameters"],
        layers=engine["layers"],
        hidden_size=engine["hidden_size"],
        vocab_size=engine["vocab_size"],
        format=engine["format"],
        base=dict(engine["base"]),
        checkpoint=dict(engine["checkpoint"]),
        readout=engine["readout"],
        outputs=engine["outputs"],
        temperature=engine["temperature"] if engine["readout"] == "scalar" else None,
        max_length=max_length or allowed,
    )
