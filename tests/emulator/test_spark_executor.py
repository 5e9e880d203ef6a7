"""Scripts on Spark."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.emulator.execution import Task
from airflow_provider_scope.emulator.instant import InstantExecutor
from tests.emulator.conftest import Jobs
from tests.emulator.test_instant import (
    LOCATION,
    NESTED,
    SAME_TYPES,
    nested_rows,
    rows,
    script,
    write,
    write_nested,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def emulator(spark, start_emulator):
    """The emulator's executor takes the session of the suite."""
    from airflow_provider_scope.emulator.spark_executor import SparkExecutor

    return start_emulator(executor=lambda account: SparkExecutor(account, session=spark))


@pytest.fixture
def root(emulator):
    return emulator.account.root


@pytest.fixture
def run(emulator):
    jobs = Jobs(emulator.url)

    def run(text):
        return jobs.until(jobs.put(script=text).json()["jobId"], seconds=120)

    return run


def task_of(text):
    return Task(str(uuid.uuid4()), text, names_job=True, is_cancelled=lambda: False)


def test_a_script_appends_what_its_select_gives(root, run):
    write(root / "in/a b%20.ss", 1, 2, 3)
    (root / "in/b.ss").write_text("name,id\nx,4\n")
    (root / "in/c.ss").write_bytes(b"manifest")
    write(root / "in/c/1.du", 5)
    select = "SELECT (id + 10L) AS id, name, uri FROM @data WHERE id != 2"
    job = run(script("/in/a b%20.ss", "/in/b.ss", "/in/c.ss", select=select))
    assert job.get("errorMessage") is None
    assert rows(root) == [
        (11, "/in/a b%20.ss"),
        (13, "/in/a b%20.ss"),
        (14, "/in/b.ss"),
        (15, "/in/c.ss"),
    ]


def test_a_refresh_replaces_all_rows(root, run):
    write(root / "in/a.ss", 1)
    write(root / "in/b.ss", 2)
    assert run(script("/in/a.ss"))["result"] == "Succeeded"
    assert run(script("/in/b.ss", refresh=True))["result"] == "Succeeded"
    assert rows(root) == [(2, "/in/b.ss")]


def test_both_executors_give_the_same_rows_and_schema(emulator, root, run):
    text = (
        f"CREATE TABLE @t (id int, name string, size long?, made DateTime?, changed DateTime?)\n"
        f'PARTITIONED BY (name) LOCATION "{LOCATION}" OPTIONS (LAYOUT = DELTA);\n'
        "@d = EXTRACT id : int, name : string, size = FILE.LENGTH(), made = FILE.CREATED(),\n"
        'changed = FILE.MODIFIED() FROM "/in/a.ss", "/in/b.ss" USING Extractors.SStream();\n'
        "@b = SELECT * FROM @d;\n"
        "INSERT INTO @t SELECT id, name, size, made, changed FROM @b;"
    )
    write(root / "in/a.ss", 1, 2)
    pq.write_table(pa.table({"id": pa.array([3], pa.int32()), "name": ["z"]}), root / "in/b.ss")
    assert run(text)["result"] == "Succeeded"
    location = root / "lake/tables/orders"
    by_spark = DeltaTable(location)
    instant = task_of(text.replace("orders", "again"))
    assert InstantExecutor(emulator.account).execute(instant).failure == ""
    again = DeltaTable(root / "lake/tables/again")
    assert by_spark.schema() == again.schema()
    assert by_spark.metadata().partition_columns == ["name"]
    key = lambda row: row["id"]  # noqa: E731
    left, right = (sorted(t.to_pyarrow_table().to_pylist(), key=key) for t in (by_spark, again))
    assert len(left) == 3
    assert left == right


@pytest.mark.parametrize(
    ("insert", "row"),
    [
        ("SELECT name AS b, uri AS a, id AS n", {"a": "n", "b": "/in/a.ss", "n": 1, "c": None}),
        ("(n, b, a) SELECT id, name, uri", {"a": "/in/a.ss", "b": "n", "n": 1, "c": None}),
        ("(b) SELECT name", {"a": None, "b": "n", "n": None, "c": None}),
    ],
)
def test_an_insertion_goes_by_its_list_or_else_by_position(root, run, insert, row):
    write(root / "in/a.ss", 1)
    text = SAME_TYPES.replace("{insert}", insert)
    added = "ALTER TABLE @t ADD COLUMN IF NOT EXISTS c int?;\n"
    text = text.replace("INSERT", f"{added}INSERT") if "(" in insert else f"{text}\n{added}"
    job = run(text)
    assert job.get("errorMessage") is None
    assert DeltaTable(root / "lake/tables/orders").to_pyarrow_table().to_pylist() == [row]


def test_a_script_that_is_run_again_commits_nothing_twice(spark, emulator, root):
    from airflow_provider_scope.emulator.spark_executor import SparkExecutor

    write(root / "in/a.ss", 1)
    executor = SparkExecutor(emulator.account, session=spark)
    task = task_of(script("/in/a.ss", refresh=True))
    assert executor.execute(task).failure == ""
    version = DeltaTable(root / "lake/tables/orders").version()
    assert executor.execute(task).failure == ""
    assert DeltaTable(root / "lake/tables/orders").version() == version
    assert rows(root) == [(1, "/in/a.ss")]
    newest = DeltaTable(root / "lake/tables/orders").history(1)[0]
    assert newest["userMetadata"] == f'{{"scopeJobId": "{task.job_id}"}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (script("/in/none.ss"), "does not exist"),
        (script("/in/null.ss"), "cannot hold null"),
        (
            script("/in/a.ss", select="SELECT id, My.Code(name) AS name, uri FROM @data"),
            "E_CSC_USER_SYNTAXERROR",
        ),
        (
            script("/in/a.ss", select="SELECT other AS id, name, uri FROM @data").replace(
                "id : long", "other : long"
            ),
            "no column other",
        ),
    ],
    ids=["file", "null", "select", "column"],
)
def test_a_script_that_cannot_run_fails_and_commits_nothing(root, run, text, message):
    write(root / "in/a.ss", 1)
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "name": ["n"]}), root / "in/null.ss")
    job = run(text)
    assert job["result"] == "Failed"
    assert message in job["errorMessage"][0]["message"]
    assert not (root / "lake").exists() or rows(root) == []


def test_arrays_and_maps_come_through_as_on_the_other_executor(root, run):
    write_nested(root)
    job = run(NESTED)
    assert job.get("errorMessage") is None
    assert nested_rows(root / "lake/tables/orders") == [
        (1, ["x", None], [("a", [1, None])]),
        (2, [], None),
    ]


def test_a_range_is_replaced_by_a_deletion_and_an_insertion(root, run):
    write(root / "in/a.ss", 1, 2, 3, 4)
    assert run(script("/in/a.ss"))["result"] == "Succeeded"
    write(root / "in/b.ss", 3)
    deleting = (
        f'DECLARE TABLE @rw LOCATION "{LOCATION}" OPTIONS (LAYOUT = DELTA);\n'
        "DELETE FROM @rw WHERE id >= 2 && id < 4;\n@data ="
    )
    text = script("/in/b.ss", select="SELECT id, name, uri FROM @data WHERE id >= 2 && id < 4")
    job = run(text.replace("@data =", deleting, 1))
    assert job.get("errorMessage") is None
    assert rows(root) == [(1, "/in/a.ss"), (3, "/in/b.ss"), (4, "/in/a.ss")]


@pytest.mark.loads
def test_the_command_starts_one_session_for_all_jobs(tmp_path):
    write(tmp_path / "in/a.ss", 1)
    write(tmp_path / "in/b.ss", 2)
    command = [sys.executable, "-m", "airflow_provider_scope.emulator", "--executor", "spark"]
    process = subprocess.Popen(
        [*command, "--root", tmp_path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        jobs = Jobs(process.stdout.readline().strip())
        for name in ("a", "b"):
            select = "SELECT (id * 2L) AS id, name, uri FROM @data"
            job_id = jobs.put(script=script(f"/in/{name}.ss", select=select)).json()["jobId"]
            assert jobs.until(job_id, seconds=120).get("errorMessage") is None
        assert rows(tmp_path) == [(2, "/in/a.ss"), (4, "/in/b.ss")]
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
