"""A database that others write, and a pipeline that loads a table of it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from tests.real_airflow import postgres
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Iterator

INNER = ("table", "query", "pre_filter_sql", "max_rows_per_batch", "options", "time_zone", "conn_id")
INNER += ("partition_column", "num_partitions")
OUTER = ("write", "sql", "mode")


class Server:
    """A PostgreSQL, in which each test has a database of its own."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rpartition(":")[2].partition("/")[0])
        self._made = 0

    def log(self) -> str:
        """Return what the server has logged so far."""
        with closing(self.port, "postgres") as connection, connection.cursor() as cursor:
            cursor.execute("SHOW data_directory")
            return (Path(cursor.fetchone()[0]).parent / "log").read_text()

    def new(self, folder: Path, monkeypatch: pytest.MonkeyPatch, encoding: str = "UTF8") -> World:
        self._made += 1
        name = f"t{self._made}"
        with closing(self.port, "postgres") as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        return World(self, name, folder, monkeypatch)


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server, or skip the test where PostgreSQL is not installed."""
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres() as url:
        yield Server(url)


@contextmanager
def closing(port: int, name: str) -> Iterator[Any]:
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="airflow", dbname=name)
    connection.autocommit = True
    try:
        yield connection
    finally:
        connection.close()


class World:
    def __init__(self, server: Server, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.name, self.folder = server, name, folder
        self.connect(monkeypatch)

    def connect(self, monkeypatch: pytest.MonkeyPatch, login: str = "airflow", **more: Any) -> None:
        """Let the pipelines be this user of the database; ``more`` are other fields of the connection."""
        fields = {"conn_type": "postgres", "host": "127.0.0.1", "port": self.server.port}
        fields |= {"schema": self.name, "login": login, "password": "not-looked-at", **more}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))

    def run(self, *statements: str) -> None:
        """Run statements, each committed on its own."""
        with closing(self.server.port, self.name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self.server.port, self.name) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    @contextmanager
    def open(self, statement: str) -> Iterator[Any]:
        """Run a statement in a transaction that is committed when the block ends."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.server.port, user="airflow", dbname=self.name
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
            yield connection
            connection.commit()
        finally:
            connection.close()

    def pipe(self, column: str = "n", table: str | None = "t", **more: Any) -> warm.Pipe:
        arguments = {name: more.pop(name) for name in OUTER if name in more}
        inner = {name: more.pop(name) for name in INNER if name in more}
        if "query" not in inner:
            inner["table"] = table
        source = {"conn_id": "shop", "cursor": {"column": column, **more}, **inner}
        return warm.Pipe(self.folder, {"source": source, **arguments})
