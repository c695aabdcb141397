"""Files of a Hugging Face repository at one revision: from the hub's cache, else downloaded and checked.

huggingface_hub downloads, resumes and keeps the cache, and follows HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and
the login token. What it leaves to us: whether the bytes are the right ones, and one sentence for what failed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from openjev.cache import cache_folder
from openjev.errors import CheckpointError, NotPulledError

T = TypeVar("T")

_BLOCK = 1 << 22


class Repository:
    """One repository at one revision (a commit hash). With `download` false only the cache is asked."""

    def __init__(self, repo_id: str, revision: str, *, download: bool = True) -> None:
        self.id = repo_id
        self.revision = revision
        self._download = download
        self._names: frozenset[str] | None = None

    def get(self, name: str) -> Path:
        """The local file `name`, whose bytes were checked. Raises CheckpointError."""
        path = self._cached(name)
        if path is None:
            if not self._download:
                raise NotPulledError(f"{self}: {name}: not in the cache, allowed: a file that was pulled")
            path = self._fetch(name)
        self._verify(name, path)
        return path

    def find(self, name: str) -> Path | None:
        """Like `get`; None when the repository has no such file."""
        if self._cached(name) is not None:
            return self.get(name)
        if not self._download:
            return None
        return self.get(name) if name in self.names() else None

    def names(self) -> frozenset[str]:
        """Every file of the repository, as the hub lists it. Raises CheckpointError."""
        if self._names is None:
            from huggingface_hub import HfApi

            api = HfApi()
            found = self._ask("list of files", lambda: api.model_info(self.id, revision=self.revision))
            self._names = frozenset(item.rfilename for item in found.siblings or ())
        return self._names

    def refuse(self, name: str, path: Path, found: str, allowed: str) -> CheckpointError:
        """Takes the file out of the cache, so that it is never used, and returns the error to raise."""
        blob = path.resolve()
        path.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        _forget(self, name)
        return CheckpointError(f"{self}: {name}: found {found}, allowed: {allowed}; removed from the cache")

    def __str__(self) -> str:
        return f"{self.id}@{self.revision[:12]}"

    def _cached(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.id, name, revision=self.revision)
        return Path(found) if isinstance(found, str) else None

    def _fetch(self, name: str) -> Path:
        from huggingface_hub import hf_hub_download

        return Path(self._ask(name, lambda: hf_hub_download(self.id, name, revision=self.revision)))

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (OSError, ValueError, RuntimeError) as error:
            # Every error of huggingface_hub and of its HTTP client is one of these.
            raise CheckpointError(f"{self}: {what}: {_reason(error)}") from error
        except Exception as error:
            if not type(error).__module__.startswith(("httpx", "httpcore", "requests")):
                raise
            raise CheckpointError(f"{self}: {what}: {_reason(error)}") from error

    def _verify(self, name: str, path: Path) -> None:
        """The cache calls a large file by its SHA-256 and a small one by its git hash, by word of the hub."""
        allowed = path.resolve().name
        stat = path.stat()
        mark = [stat.st_size, stat.st_mtime_ns, allowed]
        notes = _read_notes(self)
        if notes.get(name) == mark:
            return
        if re.fullmatch(r"[0-9a-f]{64}", allowed):
            found = _digest(path, hashlib.sha256())
        elif re.fullmatch(r"[0-9a-f]{40}", allowed):
            found = _digest(path, hashlib.sha1(b"blob %d\0" % stat.st_size, usedforsecurity=False))
        else:
            return  # another server's ETag, which says nothing about the bytes
        if found != allowed:
            raise self.refuse(name, path, f"hash {found}", f"{allowed}, as the hub says")
        _write_notes(self, {**notes, name: mark})


def _reason(error: Exception) -> str:
    """One line, and what to do about the causes that have a remedy."""
    from huggingface_hub import errors

    text = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, errors.GatedRepoError):
        return f"the repository is gated, log in with an account that was let in ({text})"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"found no such revision ({text})"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return f"found no such file in the repository ({text})"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"found no such repository, or it needs a login: HF_TOKEN or 'hf auth login' ({text})"
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return f"not in the cache and cannot be downloaded: offline, or the hub cannot be reached ({text})"
    return f"cannot be downloaded: {text}"


def _digest(path: Path, digest: Any) -> str:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return str(digest.hexdigest())


def _notes_file(repository: Repository) -> Path:
    name = repository.id.replace("/", "--") + "@" + repository.revision
    return cache_folder() / "verified" / f"{PurePosixPath(name).name}.json"


def _read_notes(repository: Repository) -> dict[str, Any]:
    """Files that were checked: name -> size, time of change, hash. They need not be read again."""
    try:
        found = json.loads(_notes_file(repository).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_notes(repository: Repository, notes: dict[str, Any]) -> None:
    path = _notes_file(repository)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(notes, indent=1, sort_keys=True), encoding="utf-8")
        unfinished.replace(path)
    except OSError:
        return  # a cache that cannot be written costs time only


def _forget(repository: Repository, name: str) -> None:
    notes = _read_notes(repository)
    if notes.pop(name, None) is not None:
        _write_notes(repository, notes)
