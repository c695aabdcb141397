"""`openjev_server.app.run` in a process of its own, over a stand-in engine.

    python -m tests.server.fake_server '{"folder": ..., "settings": {...}, "engine_seconds": 0.5, ...}'

`load_seconds` delays the loading, `load_error` makes it fail, `load_signal` is sent to this process when
it begins, `engine_seconds` is how long each call sleeps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjev.errors import CheckpointError
from openjev.model import DecisionModel
from openjev.settings import Settings
from openjev_server.app import run
from tests.server.support import FakeEngine, Servers


class SlowEngine(FakeEngine):
    seconds = 0.0

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        time.sleep(self.seconds)
        return super().score(tokens, offsets, share)


def main(options: dict[str, Any]) -> int:
    servers = Servers(Path(options["folder"]))

    def load() -> DecisionModel:
        if "load_signal" in options:
            os.kill(os.getpid(), options["load_signal"])
        time.sleep(options.get("load_seconds", 0))
        if "load_error" in options:
            raise CheckpointError(options["load_error"])
        engine = SlowEngine(servers.folder)
        model = servers.model(engine)
        # The warm-up's call sleeps as well, unless the time is set after the model has been loaded.
        warm_up = model.warm_up

        def warm_up_fast(progress: Any = None) -> None:
            warm_up(progress)
            engine.seconds = options.get("engine_seconds", 0)

        model.warm_up = warm_up_fast  # type: ignore[method-assign]
        return model

    return run(Settings(**options.get("settings", {})), load)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
