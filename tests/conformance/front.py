"""A front before the server that notes the headers it sees and may answer overloaded first."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OVERLOADED = b'{"detail":{"error_type":"overloaded_error","message":"the queue is full"}}'


@dataclass
class Front:
    upstream_port: int
    overloaded_left: int = 0
    port: int = 0
    seen: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            front.seen.append({name.lower(): value for name, value in self.headers.items()})
            if front.overloaded_left > 0:
                front.overloaded_left -= 1
                self.reply(529, {"Content-Type": "application/json", "Retry-After": "0"}, OVERLOADED)
                return
            connection = http.client.HTTPConnection("127.0.0.1", front.upstream_port, timeout=60)
            with contextlib.closing(connection):
                connection.request("POST", self.path, body, dict(self.headers.items()))
                response = connection.getresponse()
                headers = {
                    n: v for n, v in response.getheaders() if n.lower() not in {"content-length", "date"}
                }
                self.reply(response.status, headers, response.read())

        def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests read `seen` instead."""

    return Handler


@contextlib.contextmanager
def front_of(port: int, overloaded: int = 0) -> Iterator[Front]:
    front = Front(port, overloaded)
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(front)) as server:
        front.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield front
        server.shutdown()
        thread.join(10)
