"""Source, table and checkpoint on S3, with Spark started as in production; moto stands for S3."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from tests.support import s3
from tests.support.faulty_service import Answer, Fault, in_front_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.faulty_service import FaultyService

pytestmark = [pytest.mark.spark, pytest.mark.s3]

NAMES = [
    *("a b.parquet", "50%.parquet", "a%20b.parquet", "c+d.parquet", "é😀.parquet", "cafe\u0301.parquet"),
    *("tab\t.parquet", "x=1/f#1&2.parquet"),
]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyService]:
    with in_front_of(s3.address()) as service:
        connection = {
            "conn_type": "aws",
            "login": s3.KEY_ID,
            "password": s3.SECRET,
            "extra": {"endpoint_url": service.url, "region_name": s3.REGION},
        }
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
        yield service


@pytest.fixture
def bucket(service: FaultyService) -> str:
    return s3.make_bucket(s3.address())


def land(bucket: str, name: str, *values: int) -> None:
    made = io.BytesIO()
    pq.write_table(pa.table({"a": list(values)}), made)
    s3.access(s3.address()).client().put_object(Bucket=bucket, Key=f"landing/{name}", Body=made.getvalue())


def dag_of(name: str, bucket: str) -> DAG:
    with DAG(name, schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=f"s3://{bucket}/table",
            source=FileSource(
                # Hadoop's name of the same bucket
                roots=f"s3a://{bucket}/landing",
                patterns=r"\.parquet$",
                format="parquet",
                safety_buffer_seconds=0,
            ),
            sql="SELECT a, source_file_uri AS uri FROM @data",
            storage_conn_id="lake",
        )
    return dag


def result(run: Any) -> Any:
    (ti,) = run.get_task_instances()
    return ti.xcom_pull(task_ids="ingest")


def copied(bucket: str, folder: Path) -> DeltaTable:
    """Copy a table to a disk, past this package, where Delta's own reader opens it."""
    client = s3.access(s3.address()).client()
    for one in client.list_objects_v2(Bucket=bucket, Prefix="table/")["Contents"]:
        path = folder / one["Key"]
        if not one["Key"].endswith("/"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read())
    return DeltaTable(str(folder / "table"))


def rows(table: DeltaTable) -> list[tuple[int, str]]:
    return sorted((row["a"], row["uri"]) for row in table.to_pyarrow_table().to_pylist())


def test_files_are_loaded_once_and_new_ones_by_the_next_run(run_dag, bucket, tmp_path, capfd):
    for number, name in enumerate(NAMES):
        land(bucket, name, number)
    land(bucket, "a//b.parquet", 99)
    dag = dag_of("on_s3", bucket)

    first = run_dag(dag)
    assert first.state == "success"
    assert (result(first)["files"], result(first)["rows"]) == (8, 8)
    assert result(first)["left_out"] == {"unreadable name": 1}
    expected = [(number, f"s3://{bucket}/landing/{name}") for number, name in enumerate(NAMES)]
    assert rows(copied(bucket, tmp_path / "first")) == expected

    second = run_dag(dag)
    assert (second.state, result(second)["files"]) == ("success", 0)
    assert "8 were loaded before" in result(second)["why"]

    land(bucket, "later.parquet", 10, 11)
    third = run_dag(dag)
    assert (third.state, result(third)["files"], result(third)["rows"]) == ("success", 1, 2)
    table = copied(bucket, tmp_path / "third")
    assert [row[0] for row in rows(table)] == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert table.version() == 1
    assert not list((tmp_path / "third").rglob("*.probe"))
    assert s3.SECRET not in "".join(capfd.readouterr())


def commit_of(version: int) -> Any:
    return lambda method, target: method == "PUT" and target.endswith(f"/_delta_log/{version:020}.json")


def test_a_commit_of_another_writer_that_comes_first_stays(run_dag, service, bucket, tmp_path):
    """Delta's own class for S3 writes over it: the store has to refuse the second commit."""
    land(bucket, "a.parquet", 1)
    dag = dag_of("overtaken", bucket)
    assert run_dag(dag).state == "success"
    land(bucket, "b.parquet", 2)
    theirs = b'{"commitInfo":{"timestamp":1,"operation":"SET TBLPROPERTIES","operationParameters":{}}}\n'
    client = s3.access(s3.address()).client()
    key = f"table/_delta_log/{1:020}.json"
    overtake = Fault(
        commit_of(1),
        answer=Answer(503),
        meanwhile=lambda: client.put_object(Bucket=bucket, Key=key, Body=theirs),
    )
    service.faults.append(overtake)

    runs = [run_dag(dag).state for _ in range(2)]

    assert overtake.times == 0
    assert runs[-1] == "success"
    assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == theirs
    table = copied(bucket, tmp_path)
    assert [row[0] for row in rows(table)] == [1, 2]
    assert table.version() == 2


def test_a_commit_whose_answer_is_lost_is_made_once(run_dag, service, bucket, tmp_path):
    land(bucket, "a.parquet", 1)
    dag = dag_of("lost_answer", bucket)
    assert run_dag(dag).state == "success"
    land(bucket, "b.parquet", 2)
    lost = Fault(commit_of(1), takes_effect=True, answer=Answer(503))
    service.faults.append(lost)

    runs = [run_dag(dag).state for _ in range(2)]

    assert lost.times == 0
    assert runs[-1] == "success"
    table = copied(bucket, tmp_path)
    assert [row[0] for row in rows(table)] == [1, 2]
    assert table.version() == 1
