"""Where openjev keeps what it makes and has checked.

$OPENJEV_CACHE, else $XDG_CACHE_HOME/openjev, else ~/.cache/openjev.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder; it may not be there yet."""
    own = os.environ.get("OPENJEV_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "openjev"
