"""A small HTTP/1.1 server on loopback: requests and responses as values.

Bodies may be chunked or have a length, and are read to their end before anything is answered, so a
connection can be used again. A response is never given for a body that is cut short.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

_LONGEST_CHUNK_LINE = 1024


class DropConnection(Exception):  # noqa: N818 - an order to the server, not an error
    """Close the connection without an answer."""


class BadBodyError(Exception):
    """The body is malformed or too long."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body read."""

    method: str
    path: str
    """Percent-encoded, without the query."""
    query: tuple[tuple[str, str], ...]
    raw_query: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    client: str
    """Address of the client."""
    scheme: str = "http"

    def param(self, name: str) -> str | None:
        """Give the first parameter of that name, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.query if key.lower() == wanted), None)

    @property
    def origin(self) -> str:
        """Scheme and host by which the client reached the emulator."""
        return f"{self.scheme}://{self.headers.get('host', '127.0.0.1')}"


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; a ``stream`` is sent chunked, a ``body`` with its length."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None


def loopback(host: str) -> str:
    """Give the address to bind to.

    :raises InputError: It is not an address of this machine alone.
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise InputError(
            f"The emulator does not listen on {host}.",
            kept="everything; no port was opened",
            do="use 127.0.0.1 or ::1: anybody who reaches the emulator can run scripts and write files",
        )
    return address


class Server(ThreadingHTTPServer):
    """Answers each connection in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answer: Callable[[Request], Response]
    """Set before the server serves."""

    def __init__(
        self,
        host: str,
        port: int,
        body_limit: Callable[[], int],
        clock: Callable[[], float],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        address = loopback(host)
        self.tls = tls
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.body_limit = body_limit
        self.clock = clock
        self._connections: set[socket.socket] = set()
        super().__init__((address, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and remember it."""
        connection, address = super().get_request()
        if self.tls is not None:
            # The handshake waits for the connection's own thread: a slow client must not hold up others.
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ended."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Close the port and all connections: one that is kept open must not reach a stopped emulator."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which may take seconds."""
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

    def __getattr__(self, name: str) -> Any:
        """Serve every method: the services decide which one an operation wants."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no access log: it would hold tokens of signed URLs."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.server.clock() if timestamp is None else timestamp, usegmt=True)

    def _serve(self) -> None:
        try:
            body = self._body()
        except BadBodyError as err:
            self.close_connection = True
            self._send(Response(err.status, err.message.encode(), {"Content-Type": "text/plain"}))
            return
        # Hadoop's client sends the bytes of other letters as they are; they were read as Latin-1.
        target = re.sub("[^\0-\x7f]", lambda letter: f"%{ord(letter[0]):02X}", self.path)
        path, _, raw_query = target.partition("?")
        request = Request(
            method=self.command,
            path=path.partition("#")[0],
            query=tuple(parse_qsl(raw_query, keep_blank_values=True)),
            raw_query=raw_query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            client=self.client_address[0],
            scheme="http" if self.server.tls is None else "https",
        )
        try:
            response = self.server.answer(request)
        except DropConnection:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except Exception as err:  # noqa: BLE001 - a fault of the emulator's own must be seen by the client
            text = f"{type(err).__name__}: {err}"
            response = Response(500, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        if response.stream is None:
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in response.stream:
                if piece:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _body(self) -> bytes:
        limit = self.server.body_limit()
        coding = self.headers.get("Transfer-Encoding", "").strip().lower()
        lengths = self.headers.get_all("Content-Length") or []
        if coding:
            # A request with both is how two servers are made to disagree about where it ends.
            if coding != "chunked" or lengths:
                raise BadBodyError(400, "Transfer-Encoding must be chunked, without Content-Length.")
            return self._chunks(limit)
        if not lengths:
            return b""
        if len(set(lengths)) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise BadBodyError(400, "Content-Length is not a number.")
        length = int(lengths[0])
        if length > limit:
            raise BadBodyError(413, f"The body is longer than {limit} bytes.")
        return self._exactly(length)

    def _chunks(self, limit: int) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(_LONGEST_CHUNK_LINE)
            digits = line.partition(b";")[0].strip()
            try:
                size = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                size = -1
            if size < 0 or not line.endswith(b"\n"):
                raise BadBodyError(400, "A chunk has no valid size.")
            if size == 0:
                break
            if len(body) + size > limit:
                raise BadBodyError(413, f"The body is longer than {limit} bytes.")
            body += self._exactly(size)
            if self.rfile.readline(_LONGEST_CHUNK_LINE).strip():
                raise BadBodyError(400, "A chunk is longer than its size.")
        while self.rfile.readline(_LONGEST_CHUNK_LINE).strip():
            pass
        return bytes(body)

    def _exactly(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) != length:
            raise BadBodyError(400, "The body is shorter than announced.")
        return data
