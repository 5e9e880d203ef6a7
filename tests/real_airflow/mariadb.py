"""A MariaDB of the tests' own, which speaks MySQL's protocol, in a folder that is removed.

``MYSQL_HOME`` names the folder of a MySQL, with its ``bin``, that is started instead. The tests have passed
with MySQL 8.0.33.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.real_airflow.postgres import STARTS_WITHIN_SECONDS, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

MYSQL_HOME = os.environ.get("MYSQL_HOME")
CREATOR, SERVER, CLIENT = (
    ("mysqld", "mysqld", "mysql") if MYSQL_HOME else ("mariadb-install-db", "mariadbd", "mariadb")
)
USER, PASSWORD = "reader", "not-looked-at"


class MariaDbMissingError(Exception):
    """MariaDB's programs are not on this machine."""


@dataclass(frozen=True)
class MariaDb:
    """A server that runs."""

    port: int
    socket: Path

    def run(self, *statements: str, database: str = "shop") -> str:
        """Run statements, each committed on its own, and give what they printed."""
        command = [program(CLIENT), "--no-defaults", f"--socket={self.socket}", "--user=root"]
        command += ["--batch", "--skip-column-names", "--default-character-set=utf8mb4", database]
        text = ";\n".join(statements)
        done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout


def program(name: str) -> str:
    """Return the path of a program.

    :raises MariaDbMissingError: It is not there, and nobody has named a folder.
    """
    if MYSQL_HOME:
        return f"{MYSQL_HOME}/bin/{name}"
    if found := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"):
        return found
    msg = f"{name} is missing: install MariaDB's server (Debian: apt-get install mariadb-server-core)"
    raise MariaDbMissingError(msg)


@contextmanager
def mariadb() -> Iterator[MariaDb]:
    """Start a server with an empty database ``shop``.

    :raises MariaDbMissingError: Its programs are not there.
    """
    creator, server_program = program(CREATOR), program(SERVER)
    folder = Path(tempfile.mkdtemp(prefix="scope-mariadb-"))
    try:
        user = []
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            user = ["--user=nobody"]
        data = f"--datadir={folder}/data"
        create = [creator, "--no-defaults", data, *user]
        by_mariadb = ["--skip-test-db", "--auth-root-authentication-method=normal"]
        create += ["--initialize-insecure"] if MYSQL_HOME else by_mariadb
        subprocess.run(create, check=True, capture_output=True)
        found = MariaDb(free_port(), folder / "socket")
        settings = [f"--port={found.port}", "--bind-address=127.0.0.1", f"--socket={found.socket}"]
        settings += ["--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4"]
        settings += ["--mysqlx=OFF"] if MYSQL_HOME else []
        with (folder / "log").open("w") as log:
            command = [server_program, "--no-defaults", data, *user, *settings]
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(found, folder / "log")
            found.run(
                "CREATE DATABASE shop",
                f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'",
                f"GRANT SELECT ON shop.* TO '{USER}'@'%'",
                database="mysql",
            )
            yield found
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(server: MariaDb, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while True:
        try:
            server.run("SELECT 1", database="mysql")
        except AssertionError as err:
            if time.monotonic() > deadline:
                raise AssertionError(f"MariaDB did not start: {err}\n{log.read_text()}") from err
            time.sleep(0.2)
        else:
            return
