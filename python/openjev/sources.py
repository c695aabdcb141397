"""What a name or path means: a merged folder, or a base with an adapter package that is merged at load."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from openjev import checkpoints
from openjev.errors import CheckpointError
from openjev.json_fields import JsonFields
from openjev.native import runtime
from openjev.package import Package, find_package, read_package
from openjev.tokens import Tokenizer

_MANIFESTS = ("decision.json", "open_jev_export.json")
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class ExportFolder:
    """A folder with weights, tokenizer and manifest."""

    folder: Path

    def tokenizer(self, *, literal_special_tokens: bool = False) -> Tokenizer:
        return Tokenizer(self.folder, literal_special_tokens=literal_special_tokens)

    def engine_arguments(self) -> tuple[str, dict[str, Any]]:
        """The path and the keyword arguments that this source needs of the native Engine."""
        return str(self.folder), {}

    def manifest(self) -> dict[str, Any]:
        """The dict of the native read_manifest. Raises CheckpointError, for wrong revisions too."""
        manifest: dict[str, Any] = runtime().read_manifest(str(self.folder))
        checkpoints.check_identity(manifest, self.folder)
        return manifest


@dataclass(frozen=True)
class AdaptedBase:
    """A base model's folder and the package whose adapter is merged into its weights while they load."""

    base: Path
    package: Package

    @property
    def tokenizer_file(self) -> Path:
        """Of the base; a package may bring one of its own."""
        own = self.package.root / _TOKENIZER
        return own if own.is_file() else self.base / _TOKENIZER

    def tokenizer(self, *, literal_special_tokens: bool = False) -> Tokenizer:
        folder = self.tokenizer_file.parent
        return Tokenizer(folder, literal_special_tokens=literal_special_tokens, of_base=True)

    def engine_arguments(self) -> tuple[str, dict[str, Any]]:
        weight, bias = self.readout()
        manifest = {**self.package.manifest(), "weight": weight, "bias": bias}
        return str(self.base), {"adapter": str(self.package.adapter), "manifest": manifest}

    def manifest(self) -> dict[str, Any]:
        """Of the package. Raises CheckpointError when base and package do not belong together."""
        self.check()
        manifest = self.package.manifest()
        checkpoints.check_identity(manifest, self.package.root)
        return manifest

    def check(self) -> None:
        """Sizes, revision and adapter against what the package and the table of checkpoints say."""
        package, row = self.package, self.package.row
        hidden = self._config_number("hidden_size")
        if package.head is not None and package.head.weight.shape[1] != hidden:
            raise CheckpointError(
                f"{package.root / 'head.pt'}: weight: found {package.head.weight.shape[1]} numbers, allowed: "
                f"{hidden}, the hidden_size of {self.base / 'config.json'}"
            )
        if row is not None and hidden != row.shape.hidden_size:
            raise CheckpointError(
                f"{self.base / 'config.json'}: hidden_size: found {hidden}, allowed for {row.name}: "
                f"{row.shape.hidden_size}"
            )
        revision = snapshot_revision(self.base)
        if package.base.revision and revision and revision != package.base.revision:
            raise CheckpointError(
                f"{self.base}: base revision: found {revision}, allowed for {package.checkpoint.id}: "
                f"{package.base.revision} of {package.base.id}"
            )
        found = runtime().read_adapter(str(package.adapter), str(self.base))
        if row is not None:
            for name in ("rank", "alpha", "targets"):
                allowed = getattr(row.lora, name)
                value = tuple(found[name]) if name == "targets" else found[name]
                if value != allowed:
                    raise CheckpointError(
                        f"{package.adapter}: adapter {name}: found {value}, allowed for {row.name}: {allowed}"
                    )

    def readout(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """weight float32 [outputs, H] and bias float32 [outputs], empty where there is none."""
        if self.package.head is not None:
            return self.package.head.weight, self.package.head.bias
        return self._letter_rows(), np.empty(0, np.float32)

    def _letter_rows(self) -> NDArray[np.float32]:
        """The letters' rows of the output matrix, which is the embedding."""
        config = self._text_config()
        root = JsonFields(self.base / "config.json")
        if not (config.get("tie_word_embeddings") or root.get("tie_word_embeddings")):
            root.refuse("tie_word_embeddings", False, "true: the letters' rows are those of the embedding")
        shape = (self._config_number("vocab_size"), self._config_number("hidden_size"))
        ids = self.package.manifest()["token_ids"]
        reader = runtime().MergedReader(str(self.base))
        rows = [reader.read("embed_tokens.weight", shape, token, 1) for token in ids]
        stacked = np.stack(rows)
        if stacked.dtype == np.uint16:
            stacked = (stacked.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.asarray(stacked, np.float32)

    def _text_config(self) -> dict[str, Any]:
        fields = JsonFields(self.base / "config.json")
        nested = fields.get("text_config")
        return nested if isinstance(nested, dict) else dict(fields.items())

    def _config_number(self, name: str) -> int:
        value = self._text_config().get(name)
        if not isinstance(value, int) or value < 1:
            JsonFields(self.base / "config.json").refuse(name, value, "a whole number from 1 on")
        return value


Source: TypeAlias = ExportFolder | AdaptedBase


def locate(name_or_path: str | os.PathLike[str], *, download: bool = True) -> Source:
    """The checkpoint that is meant.

    A folder is an export folder when it holds a manifest. It is an adapter package when `find_package` finds
    one; its base is then the folder `base` in it, or else the revision that the package names, from the cache
    of the Hugging Face hub. A known name is pulled; if `download` is false, it must all be in that cache.

    Raises CheckpointError.
    """
    name = os.fspath(name_or_path)
    path = Path(os.path.expanduser(name))
    row = checkpoints.find(name)
    if row is not None and not os.path.isdir(path):
        from openjev import pull

        return pull.pull(row, download=download)
    folder = checkpoints.resolve(name)
    if any((folder / manifest).exists() for manifest in _MANIFESTS):
        return ExportFolder(folder)
    if find_package(folder) is None:
        return ExportFolder(folder)  # the native reader says what is missing
    package = read_package(folder)
    if (folder / "base").is_dir():
        return AdaptedBase(folder / "base", package)
    from openjev import pull

    return AdaptedBase(pull.pull_base(package.base.id, package.base.revision, download=download), package)


def pair(base: str, adapter: str) -> AdaptedBase:
    """A base and a package that are named apart: each a folder, or a hub id or name that is pulled.

    Raises CheckpointError, also when the two do not belong together.
    """
    from openjev import pull

    row = checkpoints.find(adapter)
    is_folder = os.path.isdir(os.path.expanduser(adapter))
    if row is not None and not is_folder:
        package = pull.pull_package(row)
    else:
        package = read_package(Path(os.path.expanduser(adapter)))
    path = Path(os.path.expanduser(base))
    if path.is_dir():
        folder = path
    elif base.casefold() == package.base.id.casefold():
        folder = pull.pull_base(package.base.id, package.base.revision)
    else:
        raise CheckpointError(
            f"{base}: found neither a folder nor the base of {package.checkpoint.id}, allowed: the folder of "
            f"{package.base.id} at {package.base.revision or 'its revision'}, or that id"
        )
    source = AdaptedBase(folder, package)
    source.check()
    return source


def snapshot_revision(folder: Path) -> str:
    """The revision of a folder of the hub's cache (models--OWNER--NAME/snapshots/REVISION), else empty."""
    path = folder.absolute()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.name
    return ""
