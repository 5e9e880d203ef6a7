"""A service on loopback in front of a real one: it passes requests on, and lets some of them go wrong."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OF_ONE_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Fault:
    """What becomes of the requests that match.

    :param matches: Is given method and target.
    :param takes_effect: Whether the real service sees the request.
    :param answer: What the client gets; None for an end of the connection.
    :param cut: Whether the connection ends in the middle of the body.
    :param hang: Whether the answer never comes.
    """

    matches: Callable[[str, str], bool]
    takes_effect: bool = False
    answer: Answer | None = None
    cut: bool = False
    hang: bool = False
    times: int = 1
    skip: int = 0
    meanwhile: Callable[[], object] | None = None
    """What somebody else does before the client hears of it."""


class FaultyService:
    """Passes requests on to ``upstream`` with the faults that are set."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.url = ""
        self.faults: list[Fault] = []
        self.asked: list[str] = []
        self.release = threading.Event()
        self._lock = threading.Lock()

    def fault(self, method: str, target: str) -> Fault | None:
        with self._lock:
            self.asked.append(f"{method} {target}")
            for one in self.faults:
                if one.times > 0 and one.matches(method, target):
                    if one.skip > 0:
                        one.skip -= 1
                        return None
                    one.times -= 1
                    return one
        return None

    def outcome(
        self, fault: Fault | None, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> Answer | None:
        """What the client gets; None for an end of the connection."""
        real = None
        if fault is None or fault.takes_effect:
            real = self.forward(method, target, headers, body)
        if fault is None:
            return real
        if fault.meanwhile:
            fault.meanwhile()
        if fault.hang:
            self.release.wait(60)
        return real if fault.cut else fault.answer

    def forward(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        connection = http.client.HTTPConnection(str(self.upstream.hostname), self.upstream.port, timeout=60)
        try:
            sent = {name: value for name, value in headers.items() if name.lower() not in _OF_ONE_HOP}
            sent["Content-Length"] = str(len(body))
            connection.request(method, target, body=body, headers=sent)
            answer = connection.getresponse()
            back = {
                # A redirect leads through this service again.
                name: value.replace(self.upstream.netloc, urlsplit(self.url).netloc)
                for name, value in answer.getheaders()
                # The answer to HEAD tells the length of what it does not bring.
                if name.lower() not in _OF_ONE_HOP or (method, name.lower()) == ("HEAD", "content-length")
            }
            return Answer(answer.status, back, answer.read())
        finally:
            connection.close()


@contextmanager
def in_front_of(upstream: str) -> Iterator[FaultyService]:
    """Start the service; its URL has the path of the real one."""
    service = FaultyService(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = service.fault(self.command, self.path)
            answer = service.outcome(fault, self.command, self.path, dict(self.headers.items()), body)
            cut = fault is not None and fault.cut
            self.close_connection = answer is None or cut
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
                self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None: ...

    class QuietServer(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 32

        def handle_error(self, *_: object) -> None: ...

    server = QuietServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}{service.upstream.path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
