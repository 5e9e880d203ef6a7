"""A service on loopback in front of a real one: it passes requests on, and lets some of them go wrong."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.loopback import Answer, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler

__all__ = ["Answer", "Fault", "FaultyService", "in_front_of"]

_OF_ONE_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


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

    def answer_of(request: BaseHTTPRequestHandler, body: bytes) -> Answer | None:
        fault = service.fault(request.command, request.path)
        answer = service.outcome(fault, request.command, request.path, dict(request.headers.items()), body)
        return replace(answer, cut=True) if answer and fault and fault.cut else answer

    with listening(answer_of) as port:
        service.url = f"http://127.0.0.1:{port}{service.upstream.path}"
        try:
            yield service
        finally:
            service.release.set()
