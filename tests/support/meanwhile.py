"""Something that this process does while Spark is in the midst of a query."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def meanwhile(deed: Callable[[], object]) -> Callable[..., Any]:
    """Return a function for a UDF: each call has the deed done here, and gives back its first argument.

    Spark calls it in a process of its own, whose Python may not have what the deed needs.
    """
    # Not the test's own folder: the name of a socket has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="meanwhile-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder) / "socket")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    deed()
                    connection.sendall(b"done")
                except Exception as err:  # noqa: BLE001 - it is raised where it was asked for
                    connection.sendall(repr(err).encode())

    Thread(target=serve, daemon=True).start()

    # Inside, so that it is sent to that process as a whole: it cannot import this module.
    def ask(value: Any = None) -> Any:
        import socket

        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            answer = client.recv(1000).decode()
        if answer != "done":
            raise RuntimeError(answer)
        return value

    return ask
