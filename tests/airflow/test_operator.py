"""The operator in real Dag runs, with Spark started by spark-submit as in production."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG, Asset, task
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, SparkEngine
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def land(folder: Path, name: str, *values: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": list(values)}), folder / name)
    old = time.time() - 3600
    os.utime(folder / name, (old, old))


def land_bytes(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    old = time.time() - 3600
    os.utime(folder / name, (old, old))


def parquet(root: Path | str, **more: Any) -> FileSource:
    return FileSource(roots=str(root), patterns=r"\.parquet$", format="parquet", **more)


def values(table: Path) -> list[Any]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["a"].to_pylist())


def result(run: Any, task_id: str = "ingest", map_index: int = -1) -> Any:
    for ti in run.get_task_instances():
        if ti.task_id == task_id and ti.map_index == map_index:
            return ti.xcom_pull(task_ids=task_id, map_indexes=map_index)
    raise AssertionError(task_id)


@pytest.mark.loads
def test_two_runs_in_one_process_render_their_own_values(run_dag, tmp_path):
    """Frozen specs would not be rendered, and mutable ones would keep the first run's values."""
    land(tmp_path / "one", "a.parquet", 1)
    land(tmp_path / "two", "a.parquet", 2)
    with DAG("rendered", schedule=None, params={"part": "one"}) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=f"{tmp_path}/table_{{{{ params.part }}}}",
            source=parquet(f"{tmp_path}/{{{{ params.part }}}}"),
            sql="SELECT a + :plus AS a FROM @data",
            sql_params={"plus": 10},
        )

    first = run_dag(dag, run_conf={"part": "one"})
    second = run_dag(dag, run_conf={"part": "two"})

    assert (first.state, second.state) == ("success", "success")
    assert values(tmp_path / "table_one") == [11]
    assert values(tmp_path / "table_two") == [12]


def test_a_run_with_nothing_new_starts_no_spark_and_writes_nothing(run_dag, tmp_path, monkeypatch, spark):
    land(tmp_path / "landing", "a.parquet", 1)
    with DAG("nothing_new", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(tmp_path / "table"),
            source=parquet(tmp_path / "landing"),
            outlets=[Asset("table")],
        )
    with pytest.MonkeyPatch.context() as patch:
        warm.use_in_tasks(patch, spark)
        first = result(run_dag(dag))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "table").rglob("*")}
    monkeypatch.setenv("JAVA_HOME", "/there/is/no/java")

    second = result(run_dag(dag))

    assert first["files"] == 1
    assert first["rows"] == 1
    assert second["files"] == 0
    assert "1 were loaded before" in second["why"]
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "table").rglob("*")} == before


@pytest.mark.loads
def test_an_xcom_of_another_task_inside_a_spec_and_a_mapped_operator(run_dag, tmp_path):
    land(tmp_path / "one", "a.parquet", 1)
    land(tmp_path / "two", "a.parquet", 2)
    with DAG("mapped", schedule=None) as dag:

        @task
        def folder() -> str:
            return str(tmp_path / "one")

        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(tmp_path / "from_xcom"),
            source=FileSource(roots=[folder()], patterns=r"\.parquet$", format="parquet"),
        )
        DeltaIncrementalIngestOperator.partial(
            task_id="mapped", source=parquet(tmp_path / "two"), max_active_tis_per_dag=1
        ).expand(delta_location=[str(tmp_path / "mapped_a"), str(tmp_path / "mapped_b")])

    run = run_dag(dag)

    assert run.state == "success"
    assert dag.get_task("ingest").upstream_task_ids == {"folder"}
    assert values(tmp_path / "from_xcom") == [1]
    assert values(tmp_path / "mapped_a") == [2]
    assert values(tmp_path / "mapped_b") == [2]


def test_a_mapped_operator_waits_for_the_task_whose_xcom_is_inside_one_of_its_specs():
    with DAG("mapped", schedule=None) as dag:

        @task
        def folder() -> str:
            return "/in"

        DeltaIncrementalIngestOperator.partial(
            task_id="mapped", source=parquet("/in", columns=folder())
        ).expand(delta_location=["/a", "/b"])

    assert dag.get_task("mapped").upstream_task_ids == {"folder"}


@pytest.mark.usefixtures("warm_spark")
def test_sql_that_does_not_work_keeps_its_batch_and_the_mended_sql_takes_it(run_dag, tmp_path):
    land(tmp_path / "landing", "a.parquet", 1)

    def make(sql: str) -> DAG:
        with DAG("mended", schedule=None) as dag:
            DeltaIncrementalIngestOperator(
                task_id="ingest",
                delta_location=str(tmp_path / "table"),
                source=parquet(tmp_path / "landing"),
                sql=sql,
                retries=3,
            )
        return dag

    broken = run_dag(make("SELECT typo FROM @data"))
    land(tmp_path / "landing", "b.parquet", 2)
    mended = run_dag(make("SELECT a FROM @data"))

    assert broken.state == "failed"  # at once: retrying SQL that does not compile helps nobody
    assert [ti.try_number for ti in broken.get_task_instances()] == [1]
    assert mended.state == "success"
    assert values(tmp_path / "table") == [1, 2]


@pytest.mark.usefixtures("warm_spark")
def test_archives_and_compressions_that_spark_reads_wrongly_are_named_and_not_loaded(run_dag, tmp_path):
    """Their bytes would be rows; a `snappy` would give none, and a `zst` that is cut off some of its rows."""
    text = b"1\n2\n"
    land_bytes(tmp_path / "landing", "a.txt.gz", gzip.compress(text))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("b.txt", text)
    land_bytes(tmp_path / "landing", "b.zip", packed.getvalue())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("c.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    land_bytes(tmp_path / "landing", "c.tar.gz", packed.getvalue())
    land_bytes(tmp_path / "landing", "d.txt.xz", lzma.compress(text))
    land_bytes(tmp_path / "landing", "e.txt.snappy", pa.compress(text, codec="snappy", asbytes=True))
    frame = pa.compress(text * 1000, codec="zstd", asbytes=True)
    land_bytes(tmp_path / "landing", "f.txt.zst", frame + frame[:-10])
    with DAG("packed", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(tmp_path / "table"),
            source=FileSource(roots=str(tmp_path / "landing"), patterns=".*", format="text"),
            sql="SELECT value AS a FROM @data",
        )

    report = result(run_dag(dag))

    assert values(tmp_path / "table") == ["1", "2"]
    assert report["left_out"] == {"archive or unreadable compression": 5}


def test_a_spark_that_cannot_start_says_why_and_keeps_the_batch(run_dag, tmp_path, monkeypatch, spark):
    land(tmp_path / "landing", "a.parquet", 1)

    def make(engine: SparkEngine) -> DAG:
        with DAG("no_spark", schedule=None) as dag:
            DeltaIncrementalIngestOperator(
                task_id="ingest",
                delta_location=str(tmp_path / "table"),
                source=parquet(tmp_path / "landing"),
                engine=engine,
            )
        return dag

    failed = run_dag(make(SparkEngine(conf={"spark.master": "local[2]", "spark.driver.memory": "1k"})))
    warm.use_in_tasks(monkeypatch, spark)
    again = run_dag(make(SparkEngine()))

    assert failed.state == "failed"
    assert again.state == "success"
    assert values(tmp_path / "table") == [1]
