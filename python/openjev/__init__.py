"""openjev: calibrated typed answers from open decision models, in one prefill pass.

    import openjev

    model = openjev.load("path/to/checkpoint")
    decision = model.decide(
        "The parcel is three days late.",
        {
            "late": openjev.Noul("Is the parcel late?"),
            "team": openjev.Choice("Who should act?", {"Billing": None, "Shipping": None}),
        },
    )
    print(decision["late"].noul, decision["team"].choice)

Importing the package loads neither the native library nor a tokenizer; :func:`load` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openjev.answers import Answer, ChoiceAnswer, Decision, NoulAnswer, ScoreAnswer, Usage
from openjev.contract import Choice, DecisionRequest, Limits, Noul, Question, Score, parse_request
from openjev.errors import (
    BadRequestError,
    CheckpointError,
    DeviceUnavailableError,
    InternalError,
    Issue,
    LimitError,
    OpenJevError,
    OutOfDeviceMemoryError,
    RequestError,
    UnsupportedRequestError,
)

if TYPE_CHECKING:
    from openjev.model import DecisionModel, ModelInfo, Prepared, load

__all__ = [
    "Answer",
    "BadRequestError",
    "CheckpointError",
    "Choice",
    "ChoiceAnswer",
    "Decision",
    "DecisionModel",
    "DecisionRequest",
    "DeviceUnavailableError",
    "InternalError",
    "Issue",
    "LimitError",
    "Limits",
    "ModelInfo",
    "Noul",
    "NoulAnswer",
    "OpenJevError",
    "OutOfDeviceMemoryError",
    "Prepared",
    "Question",
    "RequestError",
    "Score",
    "ScoreAnswer",
    "UnsupportedRequestError",
    "Usage",
    "load",
    "parse_request",
]

_FROM_MODEL = frozenset({"DecisionModel", "ModelInfo", "Prepared", "load"})


def __getattr__(name: str) -> Any:
    if name not in _FROM_MODEL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("openjev.model"), name)
