"""Clusters that run the driver: where they are, what lies on them, and their drivers as processes."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.yarn import ADDRESS
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.triggers import job as job_trigger
from tests.support import kubernetes, livy, yarn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.waiting import Job
    from tests.support.hdfs import Hdfs

POD = {
    "spark.kubernetes.container.image": "spark",
    "spark.executor.instances": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}
YOUNG_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""An application of a few rows ends before Java's optimizing compiler gives back what it takes."""
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": YOUNG_JAVA,
    "spark.executor.extraJavaOptions": YOUNG_JAVA,
}


@dataclass
class Cluster:
    """A manager of applications, and a folder that its machines and this one see."""

    conn_id: str
    folder: Path
    conf: dict[str, str] = field(default_factory=dict)
    """What applications need there."""
    names: list[str] = field(default_factory=list)
    """Of every application that was seen."""

    def place(self, name: str) -> str:
        """Return the location of a folder."""
        return str(self.folder / name)

    def put(self, name: str, data: bytes) -> None:
        """Put a file that is an hour old."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - 3600,) * 2)

    def publish(self, name: str) -> None:
        """Put what is new in a folder of this disk where the cluster sees it."""

    def copy(self, name: str) -> Path:
        """Return a folder of this disk with what is in a folder of the cluster."""
        return self.folder / name

    def files(self, name: str) -> list[str]:
        """Return the names of the files in a folder; none if there is no such."""
        folder = self.folder / name
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def land(self, *ids: int) -> None:
        """Put a file with these rows where the source is."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": ids}), sink)
        self.put(f"in/{ids[0]}.parquet", sink.getvalue().to_pybytes())

    def rows(self) -> list[int]:
        """Return the ids in the table, sorted, as another reader sees them."""
        return sorted(DeltaTable(str(self.copy("table"))).to_pyarrow_table()["id"].to_pylist())

    def has_table(self) -> bool:
        return any(name.endswith(".json") for name in self.files("table/_delta_log"))

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of a task that loads the files into the table."""
        shared = {} if "://" in self.place("") else {"shared_folders": [self.place("")]}
        return {
            "task_id": "load",
            "delta_location": self.place("table"),
            "source": {"roots": self.place("in"), "format": "parquet"},
            "engine": {"spark_conn_id": self.conn_id, "conf": {**CONF, **self.conf}, **shared},
            "poll_interval": 0.5,
            **more,
        }

    def operator(self, **more: Any) -> DeltaIncrementalIngestOperator:
        return DeltaIncrementalIngestOperator(**self.arguments(**more))

    def land_people(self, rows: int) -> None:
        """Put a table where the source of `in_turn` is."""
        ids = [*range(rows)]
        write_deltalake(str(self.folder / "people"), pa.table({"id": ids, "at": ids}))
        self.publish("people")

    def in_turn(self, **more: Any) -> dict[str, Any]:
        """Return the arguments of a task that loads these rows by a cursor, each in a batch of its own."""
        source = {"table": self.place("people"), "cursor": {"column": "at"}, "max_rows_per_batch": 1}
        return self.arguments(source=source, **more)

    def manager(self) -> Any:
        return assembly.manager_of(connection_of(self.conn_id), None, Path("/dev/null"))

    def written(self) -> list[str]:
        """Return the names that are written down in the checkpoint of the table."""
        return [name for name in self.files("table/_checkpoint/plans") if "." not in name]

    def jobs(self) -> dict[str, Job]:
        """Return what the manager says of the applications whose names were ever seen, by name."""
        self.names = [*dict.fromkeys([*self.names, *self.written()])]
        manager = self.manager()
        jobs = {name: manager.get_job(name) for name in self.names}
        manager.close()
        return {name: job for name, job in jobs.items() if job}

    def drivers(self) -> list[psutil.Process]:
        """Return the processes of Java that run a plan of this folder."""
        plans = re.compile(f"{re.escape(self.place(''))}[^ ]*/_checkpoint/plans/")
        processes = psutil.process_iter(["name", "cmdline"])
        java = [process for process in processes if process.info["name"] == "java"]
        return [process for process in java if plans.search(" ".join(process.info["cmdline"] or ()))]


@dataclass
class OnHdfs(Cluster):
    """YARN, and a folder in HDFS."""

    hdfs: Hdfs | None = None
    root: str = ""
    published: list[Path] = field(default_factory=list)

    def place(self, name: str) -> str:
        return f"webhdfs://{self.hdfs.authority}{self.root}/{name}"

    def put(self, name: str, data: bytes) -> None:
        self.hdfs.put(f"{self.root}/{name}", data, int(time.time() - 3600) * 1000)

    def publish(self, name: str) -> None:
        for path in sorted((self.folder / name).rglob("*")):
            if path.is_file() and path not in self.published:
                self.put(str(path.relative_to(self.folder)), path.read_bytes())
                self.published.append(path)

    def copy(self, name: str) -> Path:
        target = Path(tempfile.mkdtemp(dir=self.folder)) / "copy"
        return self.hdfs.copy(f"{self.root}/{name}", target)

    def files(self, name: str) -> list[str]:
        try:
            answer = self.hdfs.call("GET", f"{self.root}/{name}", "LISTSTATUS").json()
        except requests.HTTPError:
            return []
        return sorted(status["pathSuffix"] for status in answer["FileStatuses"]["FileStatus"])


def a_context(**of_ti: Any) -> dict[str, Any]:
    ti = {
        "dag_id": "d",
        "run_id": "r",
        "task_id": "load",
        "map_index": -1,
        "try_number": 1,
        "start_date": None,
    }
    return {"ti": SimpleNamespace(**{**ti, **of_ti}), "outlet_events": {}}


@pytest.fixture(scope="session")
def livy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[livy.Livy]:
    server = livy.Livy(tmp_path_factory.getbasetemp())
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kubernetes_plane() -> Iterator[kubernetes.Kubernetes]:
    plane = kubernetes.Kubernetes()
    yield plane
    plane.stop()


@pytest.fixture(
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("livy", "kubernetes", "yarn")]
)
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", YOUNG_JAVA)
    if request.param == "livy":
        server = request.getfixturevalue("livy_server")
        connection = {"conn_type": "livy", "host": "127.0.0.1", "port": server.port}
        cluster = Cluster("cluster", tmp_path)
    elif request.param == "kubernetes":
        plane = request.getfixturevalue("kubernetes_plane")
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
        connection = {"conn_type": "spark", "host": f"k8s://{plane.url}", "extra": {"deploy-mode": "cluster"}}
        cluster = Cluster("cluster", tmp_path, conf=POD)
    else:
        manager = yarn.start()
        extra = {"deploy-mode": "cluster", ADDRESS: manager.resource_manager}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        for name, value in manager.environment().items():
            monkeypatch.setenv(name, value)
        root = f"/{tmp_path.name}-{time.time_ns()}"
        cluster = OnHdfs("cluster", tmp_path, hdfs=manager.hdfs, root=root)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    yield cluster
    for driver in cluster.drivers():
        driver.kill()


@pytest.fixture
def waits_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a deferrable task defer at once, and its trigger fire as soon as it can."""
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.5)
