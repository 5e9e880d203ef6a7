"""An HTTP server on loopback whose answers a test gives."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    """Whether the connection ends in the middle of the body."""


@contextmanager
def listening(answer_of: Callable[[BaseHTTPRequestHandler, bytes], Answer | None]) -> Iterator[int]:
    """Serve, and give the port.

    :param answer_of: Is given the request and its body; None ends the connection without an answer.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two wait for each other

        def _handle(self) -> None:
            answer = answer_of(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.close_connection = answer is None or answer.cut
            if answer is None:
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            # The services spell their headers differently: Azurite's `content-length`, S3's `Content-Length`.
            if "content-length" not in {name.lower() for name in answer.headers}:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None: ...

    class QuietServer(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 32

        def handle_error(self, *_: object) -> None: ...

    server = QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
