"""A JSON object of a checkpoint's files with typed access; every refusal names file and field."""

from __future__ import annotations

import json
import math
from collections.abc import ItemsView, Mapping
from pathlib import Path
from typing import Any, NoReturn

from openjev.errors import CheckpointError


class JsonFields:
    """Raises CheckpointError for a file that is no JSON object, and for every value that is refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = json.loads(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: found {error}, allowed: JSON") from None
        if not isinstance(found, dict):
            raise CheckpointError(f"{path}: found JSON of another kind, allowed: an object")
        self._object: Mapping[str, Any] = found

    def items(self) -> ItemsView[str, Any]:
        return self._object.items()

    def get(self, name: str) -> Any:
        return self._object.get(name)

    def refuse(self, name: str, found: object, allowed: str) -> NoReturn:
        raise CheckpointError(f"{self._path}: {name}: found {found!r}, allowed: {allowed}")

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, value, "a text")
        return value

    def text_or(self, name: str, otherwise: str) -> str:
        return otherwise if self.get(name) is None else self.text(name)

    def integer(self, name: str, least: int, most: int) -> int:
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(name, value, f"a whole number from {least} to {most}")
        return value

    def positive(self, name: str) -> float:
        value = self.get(name)
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not (math.isfinite(number) and 0 < number <= 1e6):
            self.refuse(name, value, "a number greater than 0 and at most 1e6")
        return number
