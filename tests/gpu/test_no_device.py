"""Without a usable GPU, device "cuda" is one sentence that says why; nothing else breaks."""

from __future__ import annotations

import numpy as np
import pytest

from openjev._runtime import Engine, backends
from openjev.errors import DeviceUnavailableError
from tests.gpu.support import Engines
from tests.ops.support import why_no_cuda


@pytest.mark.skipif(not why_no_cuda(), reason="a GPU can be used here")
def test_the_reason_is_one_sentence(engines: Engines) -> None:
    reason = why_no_cuda()
    assert "\n" not in reason and ("no usable GPU" in reason or "no CUDA backend" in reason)
    with pytest.raises(DeviceUnavailableError, match="device cuda"):
        Engine(str(engines.folder), device="cuda")
    assert [name for name, usable, _ in backends() if usable] == ["cpu"]
    cpu = Engine(str(engines.folder), device="auto", threads=1)
    assert cpu.info["device"] == "cpu"
    assert np.isfinite(cpu.score(np.array([1, 2], np.int32), np.array([0, 2], np.int64))).all()
