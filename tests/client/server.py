"""An HTTP server on loopback that gives scripted answers and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from airflow_provider_scope.stores.calls import Repeating, Token, Tokens
from airflow_provider_scope.stores.http import HttpClient
from tests.support.loopback import Answer, listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

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

    def __init__(self) -> None:
        self.url = ""
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
    server = Server()

    def answer_of(request: BaseHTTPRequestHandler, body: bytes) -> Answer | None:
        parts = urlsplit(request.path)
        asked = Asked(
            method=request.command,
            path=unquote(parts.path),
            raw=request.path,
            query={key: values[0] for key, values in parse_qs(parts.query).items()},
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        reply = server.reply(asked)
        return None if reply.drop else Answer(reply.status, reply.headers, reply.data, reply.cut)

    with listening(answer_of) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


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
