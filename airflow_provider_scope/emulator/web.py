"""A small HTTP/1.1 server on loopback, and the way of a request to its service.

A body is read to its end before anything is answered, so a connection can be used again, and a body that is
cut short has no effect.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_provider_scope.emulator.switches import Controls


HOST = "127.0.0.1"
"""Only loopback: whoever can reach the emulator can run scripts and write files."""


class DropConnection(Exception):  # noqa: N818 - an order to the server, not an error
    """Close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, with its body."""

    method: str
    origin: str
    """The address by which the client reached the emulator."""
    path: str
    """Percent-encoded, without the query."""
    raw_query: str
    body: bytes

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters, decoded."""
        return parse_qsl(self.raw_query, keep_blank_values=True)

    def param(self, name: str) -> str | None:
        """Return the first parameter of that name, whatever its case."""
        return next((value for key, value in self.query if key.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; a ``stream`` is sent chunked, a ``body`` with its length."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """As clients show it, so that the service's own people find the request."""


def json_response(status: int, payload: Any, **fields: Any) -> Response:
    # Names of files may hold what is no valid Unicode.
    body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Response(status, body, {"Content-Type": "application/json; charset=utf-8"}, **fields)


# ---- from a request to its service, with the faults on the way ----


class Service(Protocol):
    """One of the two services."""

    name: str
    """As switches and counters have it."""

    def operation(self, request: Request, path: list[str]) -> str:
        """Name the operation of a request; empty if there is none.

        :param path: Its segments, percent-encoded, without the account.
        """

    def answer(self, operation: str, request: Request, path: list[str]) -> Response: ...

    def failure(self, status: int) -> Response:
        """Return the answer to a request that is made to fail."""


class Router:
    """Answers every request.

    The path may begin with an account (``/acct/Jobs``), but all names are those of the same account.

    :param services: First segment of a path below the account, in lower case -> its service.
    """

    def __init__(self, services: Mapping[str, Service], controls: Controls) -> None:
        self._services = services
        self._controls = controls

    def __call__(self, request: Request) -> Response:
        path = [segment for segment in request.path.split("/") if segment]
        if path and path[0].lower() not in self._services:
            path = path[1:]
        service = self._services.get(path[0].lower()) if path else None
        if service is None:
            return Response(404, b"There is no such service.")
        operation = service.operation(request, path)
        self._controls.count(f"requests.{service.name}.{operation or 'unknown'}")
        faults = {fault.kind: fault for fault in self._controls.request_faults(service.name, operation)}
        if "drop_before" in faults:
            raise DropConnection
        if "status" in faults:
            response = service.failure(faults["status"].status)
        else:
            response = service.answer(operation, request, path)
        if "drop_after" in faults:
            raise DropConnection
        self._controls.count(f"answers.{service.name}.{response.status}")
        return response


# ---- the server ----


class Server(ThreadingHTTPServer):
    """Answers each connection in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answer: Callable[[Request], Response]
    """Must be set before the server starts."""

    def __init__(self, port: int) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and remember it."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ended."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Close the port and all connections, so that no kept connection reaches a stopped emulator."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without a lookup of the name of this machine, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that went away in the middle; that is what many tests do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "Microsoft-HTTPAPI/2.0"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no access log: it would hold tokens of signed URLs."""

    def _serve(self) -> None:
        try:
            body = self._read_body()
        except ValueError as err:
            self.close_connection = True
            self._send(Response(400, f"The body is malformed: {err}.".encode()))
            return
        path, _, raw_query = self.path.partition("?")
        origin = f"http://{self.headers.get('Host', HOST)}"
        request = Request(self.command, origin, path, raw_query, body)
        try:
            response = self.server.answer(request)
        except DropConnection:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except Exception as err:  # noqa: BLE001 - the client must see a bug of the emulator
            text = f"{type(err).__name__}: {err}"
            response = Response(500, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})
        self._send(response)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names that the base class looks for

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in {**response.headers, "x-ms-request-id": response.request_id}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        if response.stream is None:
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in response.stream:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _read_body(self) -> bytes:
        """Read the body.

        :raises ValueError: The body is malformed, or cut short.
        """
        if self.headers.get("Transfer-Encoding"):
            raise ValueError("it has no length")
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(max(length, 0))
        if len(data) != length:
            raise ValueError(f"{len(data)} bytes instead of {length}")
        return data


def timestamp(seconds: float | None = None) -> str:
    """Write a time, by default now, in the format of recorded jobs: seven fractional digits and an offset."""
    zone = timezone(timedelta(hours=-8))
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, zone)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}0-08:00"
