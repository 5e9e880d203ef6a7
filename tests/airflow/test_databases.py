"""A database as a user sees it: the example runs, and the password shows nowhere."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Cursor, JdbcSource, SparkEngine
from tests.airflow.watch import Watch
from tests.real_airflow import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.jdbc]

EXAMPLES = Path(__file__).parents[2] / "dags_examples"
SECRET = "{}-password-of-the-shop".format("planted")
"""Not as one text: Airflow keeps the source of a Dag's file, which is this one."""


def numbers(table: Path) -> list[Any]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["order_id"].to_pylist())


def test_the_example_of_a_database_loads_what_is_new(
    run_dag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, table = tmp_path / "shop é.db", tmp_path / "table"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    (dag,) = DagBag(
        dag_folder=str(EXAMPLES / "example_database_to_delta.py"), bundle_name="dags-folder"
    ).dags.values()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (order_id INTEGER PRIMARY KEY, price REAL, day DATE)")
        connection.execute("INSERT INTO orders VALUES (1, 0.1, '2026-01-01'), (3000000000, 1e300, NULL)")
        connection.commit()
        first = run_dag(dag, run_conf={"table": str(table)})
        connection.execute("INSERT INTO orders VALUES (2, 2, 'late'), (3000000001, 2, NULL)")
        connection.execute("INSERT INTO orders VALUES (2999999999, 3, 'within the lag')")
        connection.commit()
        second = run_dag(dag, run_conf={"table": str(table)})

    assert [run.state for run in (first, second)] == ["success"] * 2
    assert numbers(table) == [1, 2999999999, 3000000000, 3000000001]
    rows = {row["order_id"]: row for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist()}
    assert rows[1] == {"order_id": 1, "price": 0.1, "day": "2026-01-01"}
    assert rows[3000000000]["price"] == 1e300


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A PostgreSQL with a user who has a password."""
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres() as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        fields = {"conn_type": "postgres", "host": "127.0.0.1", "port": port, "schema": "postgres"}
        fields |= {"login": "clerk", "password": SECRET}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
        yield port


def test_a_password_is_in_the_file_of_properties_and_nowhere_else(
    run_dag: Any,
    tmp_path: Path,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # In this zone there was no such hour on that day: Java would make another of it.
    monkeypatch.setenv("TZ", "America/New_York")
    with closing(psycopg2.connect(host="127.0.0.1", port=port, user="airflow", dbname="postgres")) as db:
        with db.cursor() as cursor:
            cursor.execute(f"CREATE ROLE clerk LOGIN PASSWORD '{SECRET}'")
            cursor.execute(
                "CREATE TABLE orders (order_id bigint, at timestamptz DEFAULT now(), wall timestamp)"
            )
            cursor.execute(
                "INSERT INTO orders SELECT n, now(), '2026-03-08 02:30:00.000001' FROM generate_series(1,2) n"
            )
            cursor.execute("GRANT SELECT ON orders TO clerk; GRANT pg_read_all_stats TO clerk")
            cursor.execute("SHOW hba_file")
            Path(cursor.fetchone()[0]).write_text(
                "host all clerk 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
            )
            cursor.execute("SELECT pg_reload_conf()")
        db.commit()
    (tmp_path / "events").mkdir()
    settings = {
        "spark.logConf": "true",
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{tmp_path}/events",
    }
    source = {"conn_id": "shop", "cursor": Cursor(column="at")}
    with DAG("password", schedule=None) as dag:
        good = DeltaIncrementalIngestOperator(
            task_id="good",
            delta_location=f"{tmp_path}/table",
            source=JdbcSource(**source, table="orders"),
            engine=SparkEngine(conf=settings),
        )
        bad = DeltaIncrementalIngestOperator(
            task_id="bad",
            delta_location=f"{tmp_path}/other",
            source=JdbcSource(**source, table="no_such_table"),
            engine=SparkEngine(conf=settings),
        )
        good >> bad
    began = time.time()
    with Watch() as watch:
        run = run_dag(dag)

    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert states == {"good": "success", "bad": "failed"}
    assert numbers(tmp_path / "table") == [1, 2]
    walls = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["wall"].to_pylist()
    assert walls == [datetime(2026, 3, 8, 2, 30, 0, 1)] * 2  # noqa: DTZ001 - that is what it is
    shown = {
        "command lines": "\n".join(watch.command_lines),
        "output": "".join(capfd.readouterr()),
        "xcom": json.dumps([ti.xcom_pull(task_ids=ti.task_id) for ti in run.get_task_instances()]),
    }
    home = Path(conf.get("logging", "base_log_folder")).parent
    for folder in (home, tmp_path):
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_mtime >= began - 1:
                shown[str(path)] = path.read_bytes().decode(errors="replace")
    assert [name for name, text in shown.items() if SECRET in text] == []
    told = "".join(text for name, text in shown.items() if "/events/" in name or name.endswith(".log"))
    # Spark did tell its properties, and hid this one; the error of the other task is told to the user.
    assert "spark.airflow_provider_scope.jdbc.password" in told
    assert 'relation "no_such_table" does not exist' in shown["output"]
    assert {mode for mode, _ in watch.files.values()} == {0o600}
