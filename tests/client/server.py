"""An HTTP server on loopback that gives scripted answers and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from airflow_provider_scope.stores.calls import Repeating, Token, Tokens
from airflow_provider_scope.stores.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000.0


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    """Decoded."""
    raw: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer; ``drop`` ends the connection without one, ``cut`` in the middle of the body."""

    status: int = 200
    body: object = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: bool = False

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


DROP = Reply(drop=True)
Answers = list[Reply] | Callable[[Asked], Reply]


class Server:
    """Its script is a list of replies, used up in order, or a function of the request."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[Asked] = []
        self.answers: Answers = []
        self.lock = threading.Lock()

    def reply(self, asked: Asked) -> Reply:
        with self.lock:
            self.asked.append(asked)
            if callable(self.answers):
                return self.answers(asked)
            return self.answers.pop(0) if self.answers else Reply(418, b"the script is at its end")

    @property
    def said(self) -> list[str]:
        """Method and decoded path of each request."""
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    @property
    def bearers(self) -> list[str | None]:
        return [asked.headers.get("authorization") for asked in self.asked]


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two wait for each other

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                method=self.command,
                path=unquote(parts.path),
                raw=self.path,
                query={key: values[0] for key, values in parse_qs(parts.query).items()},
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(length),
            )
            reply = server.reply(asked)
            self.close_connection = reply.drop or reply.cut
            if reply.drop:
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.data) + (10 if reply.cut else 0)))
            self.end_headers()
            self.wfile.write(reply.data)

        do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None: ...

    class QuietServer(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 32

        def handle_error(self, *_: object) -> None: ...

    http = QuietServer(("127.0.0.1", 0), Handler)
    server = Server(http.server_address[1])
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class Waits(list[float]):
    """Stands in for ``sleep``: keeps how long it was asked to sleep."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def fixed_tokens(*values: str) -> Tokens:
    """Tokens that are good for an hour, one after the other; the last one stays."""
    left = list(values or ["token-1"])
    return Tokens(lambda: Token(left.pop(0) if len(left) > 1 else left[0], NOW + 3600), clock=lambda: NOW)


def client_of(
    url: str, waits: Waits | None = None, tokens: Tokens | None = None, *, retries: int = 3, **options: Any
) -> HttpClient:
    sleep = Waits() if waits is None else waits
    repeating = Repeating(retries=retries, sleep=sleep, jitter=lambda: 1.0, clock=lambda: NOW)
    return HttpClient(url, tokens or fixed_tokens(), repeating=repeating, **options)
