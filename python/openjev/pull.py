"""Brings a known checkpoint here: the files of its base and of its package that are needed, no others."""

from __future__ import annotations

from pathlib import Path

from openjev.checkpoints import KnownCheckpoint
from openjev.errors import CheckpointError, NotPulledError
from openjev.hub import Repository
from openjev.json_fields import JsonFields
from openjev.package import ADAPTER_CONFIG, ADAPTER_TENSORS, Package, read_package, sha256_of
from openjev.sources import AdaptedBase

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Of the tensors that a text model never reads.
_UNUSED = ("model.visual.", "visual.", "mtp.", "lm_head.")
_OPEN_JEV_FILES = (
    "model.json",
    "temperature.json",
    "head.pt",
    f"adapter/{ADAPTER_CONFIG}",
    f"adapter/{ADAPTER_TENSORS}",
)
_OPEN_JEV_ROOTS = ("package/checkpoint/", "checkpoint/", "")
_CUA_ROOTS = ("text/", "")


def pull(row: KnownCheckpoint, *, download: bool = True) -> AdaptedBase:
    """Base and package of a known checkpoint at their pinned revisions, from the hub's cache or the hub.

    What is in the cache is not asked for again. With `download` false nothing is asked for at all. Every file
    is checked against the hash that the hub gives, those of the package also against its manifest and the
    published hashes. Raises CheckpointError naming repository, file and cause.
    """
    package = pull_package(row, download=download)
    return AdaptedBase(pull_base(row.base_id, row.base_revision, download=download), package)


def pull_base(repo_id: str, revision: str, *, download: bool = True) -> Path:
    """The folder with config.json, tokenizer.json and the weights of a base, without vision-only shards."""
    if not repo_id or not revision:
        raise CheckpointError(
            f"base: found {repo_id or 'no id'} at {revision or 'no revision'}, allowed: both, or a folder "
            "base/ beside the package"
        )
    repository = Repository(repo_id, revision, download=download)
    config = repository.get("config.json")
    repository.get("tokenizer.json")
    index = repository.find(_INDEX)
    names = needed_shards(index) if index is not None else [_SINGLE]
    for name in names:
        repository.get(name)
    return config.parent


def needed_shards(index: Path) -> list[str]:
    """The files of an index that hold at least one tensor of the text backbone, sorted."""
    fields = JsonFields(index)
    weight_map = fields.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        fields.refuse("weight_map", weight_map, "an object: tensor -> file")
    shards = {shard for name, shard in weight_map.items() if not name.startswith(_UNUSED)}
    for shard in shards:
        if Path(shard).name != shard:
            fields.refuse("weight_map", shard, "the plain name of a file")
    return sorted(shards)


def pull_package(row: KnownCheckpoint, *, download: bool = True) -> Package:
    """The package of a known checkpoint, read and checked."""
    repository = Repository(row.checkpoint_id, row.checkpoint_revision, download=download)
    if row.family == "cua-s1":
        root = _first(repository, _CUA_ROOTS, ADAPTER_CONFIG, download)
        files: tuple[str, ...] = (ADAPTER_CONFIG, ADAPTER_TENSORS)
    else:
        root = _first(repository, _OPEN_JEV_ROOTS, "model.json", download)
        files = _OPEN_JEV_FILES
    paths = {name: repository.get(root + name) for name in files}
    for name, path in paths.items():
        digest = row.hashes.get(path.name)
        if digest is not None and (found := sha256_of(path)) != digest:
            raise repository.refuse(root + name, path, f"SHA-256 {found}", f"{digest}, the published file's")
    if root == "package/checkpoint/":
        repository.find("package/manifest.json")
    folder = paths[files[0]].parent
    return read_package(folder, row)


def _first(repository: Repository, roots: tuple[str, ...], probe: str, download: bool) -> str:
    for root in roots:
        if repository.find(root + probe) is not None:
            return root
    where = "in the repository" if download else "in the cache"
    kind = CheckpointError if download else NotPulledError
    raise kind(
        f"{repository}: found none of {', '.join(root + probe for root in roots)} {where}, "
        "allowed: one of them"
    )
