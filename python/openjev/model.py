"""Opens a checkpoint: from a folder or name to a :class:`DecisionModel`, with the types that it hands out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from openjev import checkpoints
from openjev.contract import DEFAULT_LIMITS, Limits
from openjev.decision_model import DecisionModel, Prepared, QuestionLike, RequestLike
from openjev.errors import BadRequestError, DeviceUnavailableError
from openjev.model_info import ModelInfo
from openjev.native import Engine, runtime
from openjev.sources import locate

__all__ = ["DecisionModel", "Engine", "ModelInfo", "Prepared", "QuestionLike", "RequestLike", "load"]


def load(
    path: str | os.PathLike[str] = "demo",
    *,
    device: str = "auto",
    threads: int = 0,
    max_length: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    accept_any_model: bool = False,
    literal_special_tokens: bool = False,
    share_prefixes: bool = True,
    batch_tokens: int = 8192,
    cpu_isa: str = "",
    graph_mode: str = "bucketed",
    graph_entries: int = 0,
    matmul_mode: str = "invariant",
    load_format: str = "auto",
    progress: Callable[[int, int, str], None] | None = None,
) -> DecisionModel:
    """Opens a checkpoint folder, or a known name such as "demo" or "open-jev-9b".

    Args:
        path: an export folder (``decision.json`` beside the weights), a folder with an adapter package,
            which is merged while the base loads, or a name of ``openjev.checkpoints``, which is pulled when
            it is not here. See docs/checkpoints.md.
        device: "auto" takes a GPU if one is usable and else "cpu"; "cuda:1" is the second GPU.
        threads: CPU threads; 0 for all cores. Answers do not depend on it.
        literal_special_tokens: see :class:`openjev.tokens.Tokenizer`.
        cpu_isa: instruction set of the CPU backend, for tests; empty for the best one here.
        graph_mode: on a GPU, "bucketed", "exact" or "eager": how passes are recorded as CUDA graphs.
        graph_entries: recorded passes that are kept; 0 for the default of the mode.
        matmul_mode: on a GPU, "invariant" (the bits of an answer do not depend on its batch) or "fast".
        load_format: "dummy" fills the shapes of config.json with seeded weights: speed without a checkpoint.
        progress: called while weights load with (bytes done, bytes in all, what).

    The other arguments are those of :class:`DecisionModel`.

    Raises:
        ImportError: there is no native library for this platform.
        CheckpointError: the folder, a file or a tensor is missing or wrong.
        DeviceUnavailableError, OutOfDeviceMemoryError: about ``device``.
        LimitError: ``max_length`` exceeds the checkpoint's.
    """
    native = runtime()
    source = locate(path)
    manifest = source.manifest()
    tokenizer = source.tokenizer(literal_special_tokens=literal_special_tokens)
    weights, arguments = source.engine_arguments()
    name, _, index = (_best_device(native.backends()) if device == "auto" else device).partition(":")
    engine = native.Engine(
        weights,
        device=name,
        device_index=_index(device, index),
        threads=threads,
        cpu_isa=cpu_isa,
        graph_mode=graph_mode,
        graph_entries=graph_entries,
        matmul_mode=matmul_mode,
        load_format=load_format,
        progress=progress,
        **arguments,
    )
    return DecisionModel(
        engine,
        tokenizer,
        names=checkpoints.served_names(manifest),
        caveat=checkpoints.caveat(manifest),
        max_length=max_length,
        limits=limits,
        accept_any_model=accept_any_model,
        share_prefixes=share_prefixes,
        batch_tokens=batch_tokens,
    )


def _index(device: str, text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise BadRequestError(f"device: found {device!r}, allowed: auto, cpu, cuda and cuda:N")
    return int(text)


def _best_device(backends: Sequence[tuple[str, bool, str]]) -> str:
    usable = [name for name, there, _ in backends if there]
    if not usable:
        raise DeviceUnavailableError(f"device: no backend is usable here, found {backends}")
    return next((name for name in usable if name != "cpu"), "cpu")
