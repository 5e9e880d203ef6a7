"""A PostgreSQL of the tests' own: the machine's programs, a folder that is removed afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STARTS_WITHIN_SECONDS = 60.0


class PostgresMissingError(Exception):
    """PostgreSQL's programs are not on this machine."""


def programs() -> Path:
    """Return the folder of ``initdb`` and ``postgres``.

    :raises PostgresMissingError: They are not there.
    """
    found = shutil.which("postgres")
    # Debian keeps them out of the path.
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    msg = "PostgreSQL is missing: install its server (Debian: apt-get install postgresql)"
    raise PostgresMissingError(msg)


@contextmanager
def postgres(prepare: Callable[[Path], None] | None = None) -> Iterator[str]:
    """Start a server with an empty database.

    :param prepare: Is called with the folder of the data before the server starts.
    :return: The database's URL, for SQLAlchemy with psycopg2.
    """
    folder = Path(tempfile.mkdtemp(prefix="scope-postgres-"))
    user = _unprivileged()
    if user:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()
    try:
        create = ["--auth=trust", "--username=airflow", "--no-sync", f"--pgdata={data}"]
        subprocess.run(
            [programs() / "initdb", *create], check=True, cwd="/", user=user, stdout=subprocess.DEVNULL
        )
        if prepare:
            prepare(data)
        # fsync only matters when the machine goes down, and no test does that.
        settings = ["fsync=off", "listen_addresses=127.0.0.1", "max_connections=200"]
        settings += [f"unix_socket_directories={folder}"]
        words = [word for setting in settings for word in ("-c", setting)]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [programs() / "postgres", "-D", data, "-p", str(port), *words],
                cwd="/",
                user=user,
                stdout=log,
                stderr=log,
            )
        try:
            _wait_for(port, folder / "log")
            yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM would wait for clients, such as a test that failed
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_program(name: str, *words: str, tell: str = "") -> None:
    """Run one of PostgreSQL's programs, while no server runs.

    :param tell: What it reads.
    """
    command = [str(programs() / name), *words]
    subprocess.run(
        command, input=tell, text=True, check=True, cwd="/", user=_unprivileged(), capture_output=True
    )


def free_port() -> int:
    """Return a port of loopback on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unprivileged() -> str | None:
    """Return who runs the server: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    return next(name for name in ("postgres", "nobody") if name in {one.pw_name for one in pwd.getpwall()})


def _wait_for(port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="airflow", dbname="postgres").close()
        except psycopg2.OperationalError as err:
            if time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL did not start: {err}\n{log.read_text()}") from err
            time.sleep(0.2)
        else:
            return
