"""An adapter package: what a decision model is beside its base, as Open-Jev and Cua-S1 publish it.

Open-Jev:  checkpoint/{model.json, temperature.json, head.pt, adapter/}, and manifest.json beside checkpoint/
Cua-S1:    adapter_config.json and adapter_model.safetensors, in text/
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openjev import checkpoints
from openjev.checkpoints import KnownCheckpoint
from openjev.errors import CheckpointError
from openjev.head_file import Head, read_head
from openjev.json_fields import JsonFields
from openjev.prompts import CUA_MAX_LENGTH

MERGED_FORMAT = "merged-at-load"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_TENSORS = "adapter_model.safetensors"
PACKAGE_KIND = "local_inference_weight_package"
METHOD = "independent_candidate_lora_nll_brier"

OPEN_JEV_PREFIX = "<|im_start|>user\n"
OPEN_JEV_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
CUA_PREFIX = "<|im_start|>user\n"
CUA_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n"
# "A" to "Z" in the Qwen3.5 vocabulary.
LETTER_IDS = tuple(range(32, 58))

_TEMPERATURE_FIELDS = frozenset({"temperature", "split", "n", "ids_sha256"})
_HASH_BLOCK = 1 << 22


@dataclass(frozen=True)
class Identity:
    """A repository's id and revision; empty where it is not known."""

    id: str
    revision: str

    def to_dict(self) -> dict[str, str]:
        return {"id": self.id, "revision": self.revision}


@dataclass(frozen=True)
class Package:
    """A package that was read.

    `root` holds its files, `adapter` those of the adapter; `base` is what it was trained on. `head` is None
    where the readout is the letters' rows of the base's embedding. `row` is the known checkpoint it is.
    """

    root: Path
    adapter: Path
    family: str
    checkpoint: Identity
    base: Identity
    max_length: int
    temperature: float
    head: Head | None
    row: KnownCheckpoint | None

    def manifest(self) -> dict[str, Any]:
        """As `read_manifest` describes a merged folder, without the readout's weights."""
        letters = self.head is None
        return {
            "format": MERGED_FORMAT,
            "base": self.base.to_dict(),
            "checkpoint": self.checkpoint.to_dict(),
            "readout": "letters" if letters else "scalar",
            "outputs": len(LETTER_IDS) if letters else 1,
            "temperature": self.temperature,
            "token_ids": list(LETTER_IDS) if letters else [],
            "prompt_prefix": CUA_PREFIX if letters else OPEN_JEV_PREFIX,
            "prompt_suffix": CUA_SUFFIX if letters else OPEN_JEV_SUFFIX,
            "strip": True,
            "max_length": self.max_length,
        }


def find_package(folder: Path) -> Path | None:
    """The folder of `folder`'s package: where model.json, or a Cua-S1 adapter, lies. None: it holds none."""
    for inner in ("package/checkpoint", "checkpoint", ""):
        root = folder / inner
        if (root / "model.json").is_file() and (root / "adapter").is_dir():
            return root
    for inner in ("text", ""):
        if (folder / inner / ADAPTER_CONFIG).is_file():
            return folder / inner
    return None


def read_package(folder: Path, row: KnownCheckpoint | None = None) -> Package:
    """Reads the package in `folder`, which must be that of `row` when one is given.

    The adapter's tensors are checked when they are merged. Raises CheckpointError naming file, field, what
    was found and what is allowed: another kind or method, a table of temperatures, a rank that differs from
    the adapter's, files that differ from manifest.json or the published hashes, another base than the pinned.
    """
    root = find_package(folder)
    if root is None:
        raise CheckpointError(
            f"{folder}: found no adapter package, allowed: a folder with checkpoint/model.json, "
            f"checkpoint/head.pt and checkpoint/adapter/, or with {ADAPTER_CONFIG} of a Cua-S1 text adapter"
        )
    if (root / "model.json").is_file():
        return _read_open_jev(root, row)
    return _read_cua(root, row)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check_hash(path: Path, allowed: str) -> None:
    """Raises CheckpointError unless the file at `path` has this SHA-256."""
    if not path.is_file():
        raise CheckpointError(f"{path}: found no such file, allowed: the one with SHA-256 {allowed}")
    found = sha256_of(path)
    if found != allowed:
        raise CheckpointError(f"{path}: SHA-256: found {found}, allowed: {allowed}")


def _read_open_jev(root: Path, row: KnownCheckpoint | None) -> Package:
    model = JsonFields(root / "model.json")
    base = Identity(model.text("model_id"), model.text("revision"))
    if (method := model.text("method")) != METHOD:
        model.refuse("method", method, METHOD)
    adapter = root / "adapter"
    rank = JsonFields(adapter / ADAPTER_CONFIG).integer("r", 1, 1024)
    if (stated := model.integer("lora_rank", 1, 1024)) != rank:
        model.refuse("lora_rank", stated, f"{rank}, the r of {adapter / ADAPTER_CONFIG}")
    listed = _check_manifest(root)
    tensors = adapter / ADAPTER_TENSORS
    if not tensors.is_file():
        raise CheckpointError(f"{tensors}: found no such file, allowed: the adapter's tensors")
    row = row or _known_by_hash(sha256_of(tensors)) or _known_by_name(listed.id)
    if row is not None:
        _check_known(row, root, base)
    head = read_head(root / "head.pt")
    temperature = _read_temperature(root / "temperature.json")
    return Package(
        root=root,
        adapter=adapter,
        family="open-jev",
        checkpoint=Identity(row.checkpoint_id, row.checkpoint_revision) if row else _own(root, listed, base),
        base=base,
        max_length=model.integer("max_length", 1, 262144),
        temperature=temperature,
        head=head,
        row=row,
    )


def _read_cua(root: Path, row: KnownCheckpoint | None) -> Package:
    if row is None:
        row = next(known for known in checkpoints.CHECKPOINTS if known.family == "cua-s1")
        named = JsonFields(root / ADAPTER_CONFIG).text_or("base_model_name_or_path", "")
        if named.casefold() != row.base_id.casefold():
            raise CheckpointError(
                f"{root / ADAPTER_CONFIG}: base_model_name_or_path: found {named or 'none'}, allowed for an "
                f"adapter without model.json: {row.base_id}, of {row.name}"
            )
    _check_known(row, root, Identity(row.base_id, row.base_revision))
    return Package(
        root=root,
        adapter=root,
        family="cua-s1",
        checkpoint=Identity(row.checkpoint_id, row.checkpoint_revision),
        base=Identity(row.base_id, row.base_revision),
        max_length=CUA_MAX_LENGTH,
        temperature=1.0,
        head=None,
        row=row,
    )


def _read_temperature(path: Path) -> float:
    """One number. A table (by question type, say) that were read as one would be ignored silently."""
    fields = JsonFields(path)
    for name, value in fields.items():
        if name not in _TEMPERATURE_FIELDS and isinstance(value, dict | list):
            fields.refuse(name, f"a table of {len(value)} entries", "one temperature for all questions")
    return fields.positive("temperature")


def _check_manifest(root: Path) -> Identity:
    """Sizes and hashes of what manifest.json lists; who it says it is, empty where there is none."""
    path = root.parent / "manifest.json"
    if not path.is_file():
        return Identity("", "")
    fields = JsonFields(path)
    if (kind := fields.text("kind")) != PACKAGE_KIND:
        fields.refuse("kind", kind, PACKAGE_KIND)
    files = fields.get("files")
    if not isinstance(files, dict):
        fields.refuse("files", files, "an object: path -> {bytes, sha256}")
    for name, entry in files.items():
        parts = Path(name).parts
        if Path(name).is_absolute() or ".." in parts or not isinstance(entry, dict):
            fields.refuse(f"files.{name}", entry, "a path below the package, with {bytes, sha256}")
        # Relative to the package, or to the repository that it is a folder of.
        file = next(
            (p for p in (root.parent / name, root.parent.parent / name) if p.is_file()), root.parent / name
        )
        size = file.stat().st_size if file.is_file() else None
        if size != entry.get("bytes"):
            raise CheckpointError(
                f"{file}: found {'no such file' if size is None else f'{size} bytes'}, allowed: "
                f"{entry.get('bytes')} bytes, as {path} says"
            )
        check_hash(file, str(entry.get("sha256")))
    return Identity(fields.text_or("model", ""), fields.text_or("revision", ""))


def _own(root: Path, listed: Identity, base: Identity) -> Identity:
    """Of a package that is not a published one: what its manifest says, unless that is the base."""
    if listed.id and listed.id.casefold() != base.id.casefold():
        return listed
    name = next((p for p in root.parts[::-1] if p not in ("checkpoint", "package", "/")), "package")
    return Identity(f"local/{name}", "")


def _known_by_hash(adapter_sha256: str) -> KnownCheckpoint | None:
    return next(
        (row for row in checkpoints.CHECKPOINTS if row.hashes.get(ADAPTER_TENSORS) == adapter_sha256), None
    )


def _known_by_name(name: str) -> KnownCheckpoint | None:
    wanted = name.casefold()
    return next((r for r in checkpoints.CHECKPOINTS if wanted in (r.checkpoint_id.casefold(), r.name)), None)


def _check_known(row: KnownCheckpoint, root: Path, base: Identity) -> None:
    """A known checkpoint has its published files and says that it was trained on the pinned base."""
    for found, allowed, what in (
        (base.id, row.base_id, "model_id"),
        (base.revision, row.base_revision, "revision"),
    ):
        if found.casefold() != allowed.casefold():
            raise CheckpointError(
                f"{root / 'model.json'}: {what}: found {found}, allowed for {row.name}: {allowed}"
            )
    for name, digest in row.hashes.items():
        folder = root / "adapter" if name == ADAPTER_TENSORS and (root / "adapter").is_dir() else root
        check_hash(folder / name, digest)
