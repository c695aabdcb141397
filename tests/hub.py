"""A hub on loopback that serves repositories to huggingface_hub, and misbehaves where it is told to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_LARGE = 10_000


@dataclass
class Repo:
    """Files of one revision. What a test sets: `status` for a file or "*", `cut` bytes after which the
    connection breaks once (and at once from then on, for those in `cut_always`), `replaced` bytes under the
    hash of the true ones, seconds of `delay` before each answer."""

    revision: str
    files: dict[str, bytes]
    status: dict[str, tuple[int, str]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    cut_always: set[str] = field(default_factory=set)
    replaced: dict[str, bytes] = field(default_factory=dict)
    delay: float = 0.0


@dataclass
class Hub:
    """`sent`: bytes of each file that went out; `requests`: method, path and range of every request."""

    endpoint: str
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)

    def add_folder(self, repo_id: str, revision: str, folder: Path) -> Repo:
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        self.repos[repo_id] = Repo(revision, files)
        return self.repos[repo_id]

    def downloads(self) -> list[str]:
        """Paths that were fetched, in order, each as often as it was."""
        return [
            path.split("/resolve/")[1].split("/", 1)[1]
            for verb, path, _ in self.requests
            if verb == "GET" and "/resolve/" in path
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/?]+)(\?.*)?", self.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        match = listing or file
        repo = self.hub.repos.get(match[1]) if match else None
        if match is None or repo is None:
            return self._refuse(404, "RepoNotFound")
        time.sleep(repo.delay)
        name = "*" if listing else match[3]
        status = repo.status.get(name) or repo.status.get("*")
        if status is not None:
            return self._refuse(*status)
        if match[2] != repo.revision:
            return self._refuse(404, "RevisionNotFound")
        if listing:
            return self._list(match[1], repo)
        if name not in repo.files:
            return self._refuse(404, "EntryNotFound")
        self._send(repo, name, body)

    def _refuse(self, status: int, code: str) -> None:
        text = code.encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _list(self, repo_id: str, repo: Repo) -> None:
        info = {
            "id": repo_id,
            "sha": repo.revision,
            "siblings": [{"rfilename": name} for name in repo.files],
            "tags": [],
        }
        text = json.dumps(info).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _send(self, repo: Repo, name: str, body: bool) -> None:
        true = repo.files[name]
        data = repo.replaced.get(name, true)
        first = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            first = int(wanted[1])
        self.send_response(206 if first else 200)
        self.send_header("ETag", f'"{etag_of(true)}"')
        self.send_header("X-Repo-Commit", repo.revision)
        self.send_header("X-Linked-Size", str(len(data)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not body:
            return
        rest = data[first:]
        cut = repo.cut.pop(name, None)
        if cut is not None:
            rest = rest[:cut]
        self.wfile.write(rest)
        self.hub.sent[name] = self.hub.sent.get(name, 0) + len(rest)
        if name in repo.cut_always:
            repo.cut[name] = 0
        if cut is not None:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


def etag_of(data: bytes) -> str:
    """As the hub names content: large files by SHA-256, small ones by their git hash."""
    if len(data) >= _LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def serve_hub() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
