"""Spark on a cluster: a master and a worker of their own, and an application that has no Airflow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable
from pyarrow import orc

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, SparkEngine
from tests.support import hdfs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

HOME = Path(pyspark.__file__).parent
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


FAR_AWAY = {"TZ": "Asia/Kolkata"}


class Daemon:
    """A process of Spark's cluster manager."""

    def __init__(self, kind: str, folder: Path, *arguments: str) -> None:
        self.log = folder / f"{kind}.log"
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [HOME / "bin/spark-class", f"org.apache.spark.deploy.{kind}", *options, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **FAR_AWAY, "SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"},
            )

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            match = re.search(pattern, self.log.read_text())
            if match:
                return match
            time.sleep(0.1)
        raise AssertionError(self.log.read_text()[-2000:])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def spark_connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    master = Daemon("master.Master", folder)
    worker = None
    try:
        port = master.said(r"spark://127\.0\.0\.1:(\d+)")[1]
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        worker = Daemon("worker.Worker", folder, *options, f"spark://127.0.0.1:{port}")
        worker.said("Successfully registered with master")
        yield f"spark://spark%3A%2F%2F127.0.0.1:{port}"
    finally:
        for daemon in (worker, master):
            if daemon:
                daemon.stop()


TIMES = [datetime(2026, 1, 5, 10), datetime(2026, 3, 8, 2, 30), datetime(1850, 1, 1)]  # noqa: DTZ001 - clocks
"""In New York, the second one does not exist, and the third has an odd offset."""


def land(folder: Path, name: str, *values: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"a": pa.array(values), "t": pa.array([TIMES] * len(values), pa.list_(pa.timestamp("us")))}
    orc.write_table(pa.table(columns), path)
    old = time.time() - 3600
    os.utime(path, (old, old))


def dag_of(name: str, base: str, engine: SparkEngine) -> DAG:
    with DAG(name, schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=f"{base}/table",
            source=FileSource(roots=f"{base}/landing", patterns=r"\.orc$", format="orc"),
            sql="SELECT a, t, source_file_uri AS uri FROM @data",
            engine=engine,
        )
    return dag


def rows(table: Path, base: str) -> list[tuple[int, str]]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert all(row["t"] == TIMES for row in found)
    return sorted((row["a"], row["uri"].removeprefix(base)) for row in found)


def result(run: Any) -> Any:
    (ti,) = run.get_task_instances()
    return ti.xcom_pull(task_ids="ingest")


EXPECTED = [(1, "/landing/a b.orc"), (2, "/landing/é%.orc")]


@pytest.mark.loads
def test_a_cluster_loads_from_shared_disks_what_local_spark_loads(
    run_dag, spark_connection, tmp_path, monkeypatch
):
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", spark_connection)
    for place in ("cluster", "local"):
        land(tmp_path / place / "landing", "a b.orc", 1)
        land(tmp_path / place / "landing", "é%.orc", 2)
    dag = dag_of("on_a_cluster", f"{tmp_path}/cluster", SparkEngine(spark_conn_id="cluster", conf=CONF))

    assert run_dag(dag).state == "success"
    assert run_dag(dag_of("beside_it", f"{tmp_path}/local", SparkEngine())).state == "success"

    assert rows(tmp_path / "cluster/table", f"file://{tmp_path}/cluster") == EXPECTED
    assert rows(tmp_path / "local/table", f"file://{tmp_path}/local") == EXPECTED
    assert result(run_dag(dag))["files"] == 0


@pytest.mark.loads
def test_a_machine_of_a_cluster_whose_java_is_in_another_zone_is_refused(
    run_dag, spark_connection, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", spark_connection)
    land(tmp_path / "landing", "a.orc", 1)
    conf = {**CONF, "spark.executor.extraJavaOptions": "-Duser.timezone=Asia/Kolkata"}
    dag = dag_of("odd_clock", str(tmp_path), SparkEngine(spark_conn_id="cluster", conf=conf))

    assert run_dag(dag).state == "failed"

    assert "Java is in the time zone Asia/Kolkata" in capsys.readouterr().out
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))


@pytest.mark.hdfs
def test_a_cluster_loads_from_hdfs(run_dag, spark_connection, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", spark_connection)
    there, base = hdfs.start(), f"/{uuid.uuid4().hex}"
    for value, name in enumerate(("a b.orc", "é%.orc"), start=1):
        land(tmp_path, name, value)
        there.put(f"{base}/landing/{name}", (tmp_path / name).read_bytes(), 1_760_000_000_000)
    uri = f"webhdfs://{there.authority}{base}"
    dag = dag_of("far_away", uri, SparkEngine(spark_conn_id="cluster", conf=CONF))
    assert run_dag(dag).state == "success"
    assert rows(there.copy(f"{base}/table", tmp_path / "copy"), uri) == EXPECTED
    assert result(run_dag(dag))["files"] == 0


@pytest.mark.slow
def test_the_application_runs_where_airflow_is_not_installed(run_dag, tmp_path, monkeypatch):
    """A cluster's driver has pyspark and Delta's Python, and of this package the zip that comes along.

    And it may be far away: its zone, its language and its locale change no value and no name.
    """
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("pyspark", "py4j", "delta"):
        (packages / name).symlink_to(Path(sysconfig.get_path("purelib"), name))
    python = tmp_path / "python"
    # -S: no site-packages; what an application imports is in PYTHONPATH.
    python.write_text(f'#!/bin/sh\nexec "{sys._base_executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    for name, value in {"TZ": "America/New_York", "LC_ALL": "not_INSTALLED.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    java = "-Duser.timezone=America/New_York -Duser.language=tr -Duser.country=TR"
    engine = SparkEngine(conf={"spark.driver.extraJavaOptions": java})
    for name in ("airflow", "airflow_provider_scope", "deltalake", "adlfs"):
        command = [python, "-c", f"import {name}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert f"No module named '{name}'" in done.stderr
    base = tmp_path / "данные"
    land(base / "landing", "a b.orc", 1)
    land(base / "landing", "é%.orc", 2)

    assert run_dag(dag_of("without_airflow", str(base), engine)).state == "success"

    assert rows(base / "table", f"file://{base}") == EXPECTED
