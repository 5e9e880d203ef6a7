"""The commands on a pipeline whose table and checkpoint are on a cluster's WebHDFS service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.engines import clock
from tests.cli.conftest import HOUR_MS, Desk
from tests.crash.world import NOW_MS, DeltaWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS + HOUR_MS)
    folder = tmp_path / "account" / "work"
    folder.mkdir(parents=True)
    return Desk(DeltaWorld(folder), capsys)


@pytest.fixture
def there(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same folder, as the service tells it."""
    monkeypatch.setenv("AIRFLOW_CONN_HDFS", json.dumps({"conn_type": "webhdfs", "login": "loader"}))
    with Emulator(tmp_path / "account", max_append_bytes=2**30) as emulator:
        yield f"webhdfs://127.0.0.1:{emulator.port}/work"


def test_the_status_is_that_of_the_same_folder_on_a_disk(desk, there):
    desk.loaded("a.parquet", "b.parquet")
    desk.unrecorded("c.parquet", 2)
    here = desk.table_command("status")

    said = desk.scope("status", f"{there}/table", "--storage-conn-id", "hdfs")

    assert (said.code, said.err) == (0, "")
    assert "in the table as version 2; the next run records that" in said.out
    named = (f"table       {there}/table", f"checkpoint  {there}/table/_checkpoint")
    assert said.out.splitlines() == [
        {"table": named[0], "checkpoint": named[1]}.get(line.partition(" ")[0], line)
        for line in here.out.splitlines()
    ]


@pytest.fixture
def stored(airflow_db: None) -> Iterator[str]:
    """A connection that is in Airflow's database alone."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="stored", conn_type="webhdfs", login="loader"))
    yield "stored"
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == "stored"))


def test_a_connection_in_the_database_of_airflow_is_found(desk, there, stored):
    desk.loaded("a.parquet")

    said = desk.scope("status", f"{there}/table", "--storage-conn-id", stored)

    assert (said.code, said.err) == (0, "")
    assert "committed   batch 0" in said.out


def test_a_process_that_says_what_it_is_keeps_saying_it(desk, there, stored, monkeypatch):
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")

    said = desk.scope("status", f"{there}/table", "--storage-conn-id", stored)

    assert (said.code, said.err.split(":")[0]) == (1, "ConnectionMissingError")


def test_a_connection_of_another_cluster_is_refused(desk, there, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HDFS", json.dumps({"conn_type": "webhdfs", "host": "namenode"}))

    said = desk.scope("status", f"{there}/table", "--storage-conn-id", "hdfs")

    assert said.code == 1
    assert "InputError: The connection hdfs is for namenode, and the location is on 127.0.0.1." in said.err
