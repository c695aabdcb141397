"""An HTTP server in a thread that answers decisions at once and writes down what it was asked, in order."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

# (number of the request from 0, its body) to (status, body); bytes are sent as they are.
Script = Callable[[int, bytes], tuple[int, Any]]


class ScriptedServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script, pause_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.pause_s = pause_s
        self.turn = threading.Lock()
        self.bodies: list[bytes] = []
        self.peers: list[tuple[str, int]] = []
        self.open = 0
        self.most_open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        with server.turn:
            number = len(server.bodies)
            server.bodies.append(body)
            server.peers.append(self.client_address)
            server.open += 1
            server.most_open = max(server.most_open, server.open)
        time.sleep(server.pause_s)
        status, answer = server.script(number, body)
        with server.turn:
            server.open -= 1
        self.reply(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def do_GET(self) -> None:
        self.reply(404, b"{}")

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Server-Timing", "body;dur=0.1, model;dur=1.25")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def scripted(script: Script, pause_s: float = 0.0) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script, pause_s)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
