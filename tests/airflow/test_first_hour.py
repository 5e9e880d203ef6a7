"""The mistakes of a first hour, each made in a real Dag: what the user reads, and what is left as it was.

Those that are caught before Spark starts are run where there is no Java: a start of Spark would be an error
of its own, with other words.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import InputError, ScopeProviderError, SqlError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "nr bigint, wort string, preis double"
FILES = {
    "good/ä ☃.csv": "nr,wort,preis\n2,ä,0.5\n1,,\n",
    "tabs/x.tsv": "nr\twort\tpreis\n1\tä\t0.5\n",
    "semicolons/s.csv": "nr;wort;preis\n1;ä;0.5\n",
    "value/v.csv": "nr,wort,preis\n1,ä,0.5\nzwei,b,1.5\n",
}


@dataclass(frozen=True)
class Mistake:
    """What somebody writes, and what they have to read; ``~`` is the folder of the test."""

    source: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str = "InputError"
    what: tuple[str, ...] = ()
    kept: str = "everything; nothing was read or written"
    do: tuple[str, ...] = ()
    tries: int = 1


WHEN_PARSED = {
    "the table inside of the root": Mistake(
        {"roots": "~", "format": "parquet", "options": None, "columns": None},
        what=("The root file://~ contains the table file://~/table", "a run would load its own output"),
        do=("name the folders next to it in `roots`", "patterns that match only your files"),
    ),
    "a checkpoint that VACUUM deletes": Mistake(
        arguments={"checkpoint": {"location": "~/table/checkpoint"}},
        what=("The checkpoint file://~/table/checkpoint lies in the table file://~/table", "VACUUM"),
        do=("use file://~/table/_checkpoint",),
    ),
    "a memory that is none": Mistake(
        arguments={"engine": {"conf": {"spark.driver.memory": "1 gigabyte"}}},
        what=("conf['spark.driver.memory']='1 gigabyte' is not valid", "one of k, m, g and t"),
        do=("write '4g' for 4 GiB",),
    ),
    "a mode that there is not": Mistake(
        arguments={"mode": "interval"},
        what=("mode='interval' is not valid", "'incremental', 'data_interval'"),
    ),
    "an argument with a typing error": Mistake(
        arguments={"max_batches_per_runs": 1},
        what=("DeltaIncrementalIngestOperator has no argument max_batches_per_runs",),
        do=("write 'max_batches_per_run' for 'max_batches_per_runs'",),
    ),
    "a field with a typing error": Mistake(
        {"pattern": "x"},
        what=("source has unknown keys: pattern",),
        do=("write 'patterns' for 'pattern'",),
    ),
    "a column that is not declared": Mistake(
        arguments={"sql": "SELECT nr, wrot FROM @data"},
        error="SqlError",
        what=("The SQL names columns that `source.columns` does not declare: wrot (did you mean wort?)",),
        do=("correct the name, or declare the column",),
    ),
}

BEFORE_SPARK = {
    "a root that is missing": Mistake(
        {"roots": "~/nowhere"},
        error="SourceNotFoundError",
        what=("The source folder file://~/nowhere does not exist",),
        kept="the table and the checkpoint; nothing was written",
        do=("check `roots`", "wait for it with a sensor"),
        tries=2,
    ),
    "a Spark connection that does not exist": Mistake(
        arguments={"engine": {"spark_conn_id": "spark_prod"}},
        error="ConnectionMissingError",
        what=("Airflow has no connection 'spark_prod'",),
        do=("airflow connections add spark_prod", "correct its name in the Dag"),
        tries=2,
    ),
    "deploy mode cluster": Mistake(
        arguments={"engine": {"conf": {"spark.submit.deployMode": "cluster"}}},
        what=("conf['spark.submit.deployMode'] asks for deploy mode cluster, which is not supported",),
        do=("leave spark.submit.deployMode out of conf",),
    ),
    "deploy mode cluster in the connection": Mistake(
        arguments={"engine": {"spark_conn_id": "spark_cluster"}},
        what=("The Spark connection 'spark_cluster' asks for deploy mode cluster, which is not supported",),
        do=("use client mode", "deploy mode `client` in the connection"),
    ),
    "a table that holds rows already": Mistake(
        arguments={"delta_location": "~/full"},
        error="UnknownRowsError",
        what=("The table file://~/full holds rows", "there is no record"),
        kept="the table, the log and all files; nothing was written",
        do=("full_refresh=True", "starting_timestamp", "airflow scope accept-table"),
    ),
}

IN_SPARK = {
    "CSV that is read as JSON": Mistake(
        {"format": "json", "patterns": "csv$", "options": None},
        error="BadRecordError",
        what=("ä ☃.csv", "it is not JSON"),
        kept="the batches before it; this one wrote no row and stays logged",
        do=("correct `format` if the file holds no JSON",),
    ),
    "another delimiter": Mistake(
        {"roots": "~/semicolons"},
        error="BadFileError",
        what=("semicolons/s.csv", "Header length: 1, schema size: 3", "line 1: 'nr;wort;preis'"),
        kept="the batches before it; this one wrote no row and stays logged",
        do=("all headers of a batch have to be its columns", "`sep`"),
    ),
    "a value of another type": Mistake(
        {"roots": "~/value"},
        error="BadRecordError",
        what=("value/v.csv", "number 2 of the file", "nr is not bigint", "zwei"),
        kept="the batches before it; this one wrote no row and stays logged",
        do=("string", "quarantine"),
    ),
}
NO_JARS = "a machine without Delta's jars"
OF_SUBMISSION = {
    NO_JARS: Mistake(
        {},
        {"engine": {"packages": (), "server": "never"}},
        error="DeltaJarsError",
        what=("has no class org.apache.spark.sql.delta.DeltaLog",),
        kept="the table; no row of this batch was written, and the batch stays logged",
        do=("`packages` and `jars`",),
        tries=2,
    )
}

WITHOUT_FILES = {
    "an empty folder": ("empty", 0, "0 files: file://~/empty holds no file"),
    "patterns that match nothing": (
        "tabs",
        1,
        "0 files: none of the 1 files in file://~/tabs, such as x.tsv, matches the patterns",
    ),
}


@pytest.fixture
def home(tmp_path):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        os.utime(file, (time.time() - 3600,) * 2)
    (tmp_path / "empty").mkdir()
    write_deltalake(str(tmp_path / "full"), pa.table({"nr": [9], "wort": ["old"], "preis": [1.0]}))
    return tmp_path


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/there/is/no/java")


def put(value: Any, home: Path) -> Any:
    if isinstance(value, dict):
        return {name: put(inner, home) for name, inner in value.items()}
    return value.replace("~", str(home)) if isinstance(value, str) else value


def dag_of(mistake: Mistake, home: Path) -> DAG:
    source = {
        "roots": "~/good",
        "format": "csv",
        "options": {"header": "true"},
        "columns": COLUMNS,
        **mistake.source,
    }
    with DAG("first_hour", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="load",
            retries=1,
            retry_delay=timedelta(0),
            **put({"delta_location": "~/table", "source": source, **mistake.arguments}, home),
        )
    return dag


def check_words(said: str, mistake: Mistake, home: Path) -> None:
    """Look for the three parts, in their order, as lines of their own."""
    what, _, rest = said.partition("\nKept: ")
    kept, _, do = rest.partition("\nWhat to do: ")
    first, *more = do.splitlines()
    do = "\n".join([first, *itertools.takewhile(lambda line: line.startswith("- "), more)])
    for part, words in ((what, mistake.what), (kept, (mistake.kept,)), (do, mistake.do)):
        for word in words:
            assert put(word, home) in part, said


def files_of(home: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in home.rglob("*") if p.is_file()}


def run_of(mistake: Mistake, home: Path, run_dag: Any, capfd: Any) -> str:
    """Run it, check what the task showed, and give that."""
    run = run_dag(dag_of(mistake, home))

    (ti,) = run.get_task_instances()
    shown = capfd.readouterr().out
    assert (run.state, ti.try_number) == ("failed", mistake.tries), shown
    before_stack, *said = re.split(rf"{mistake.error}: ", shown)
    assert "Traceback" not in before_stack, shown
    assert len(said) == 2 * mistake.tries, shown  # before the stack, and at its end
    check_words(said[-1], mistake, home)
    return shown


@pytest.mark.parametrize("mistake", WHEN_PARSED.values(), ids=WHEN_PARSED)
def test_a_mistake_that_shows_when_the_dag_is_parsed(home, mistake):
    before = files_of(home)

    with pytest.raises(ScopeProviderError) as caught:
        dag_of(mistake, home)

    assert isinstance(caught.value, SqlError if mistake.error == "SqlError" else InputError)
    check_words(str(caught.value), mistake, home)
    assert files_of(home) == before


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("mistake", BEFORE_SPARK.values(), ids=BEFORE_SPARK)
def test_a_mistake_that_shows_before_spark_starts(run_dag, home, mistake, capfd, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", "spark://master:7077?deploy-mode=cluster")
    before = files_of(home)

    shown = run_of(mistake, home, run_dag, capfd)

    assert "starting Spark" not in shown
    assert files_of(home) == before


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("case", WITHOUT_FILES.values(), ids=WITHOUT_FILES)
def test_no_file_is_no_error_but_is_said(run_dag, home, case, capfd):
    root, warnings, words = case
    run = run_dag(dag_of(Mistake({"roots": f"~/{root}"}), home))

    (ti,) = run.get_task_instances()
    assert (run.state, ti.try_number) == ("success", 1)
    assert ti.xcom_pull(task_ids="load")["why"].startswith(put(words, home))
    assert capfd.readouterr().out.count("[warning  ]") == warnings
    assert not (home / "table").exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "is_submitted"),
    [
        *((name, False) for name in IN_SPARK),
        pytest.param("a value of another type", True, marks=pytest.mark.loads),
        pytest.param(NO_JARS, True, marks=pytest.mark.loads),
    ],
)
def test_a_mistake_that_spark_finds(run_dag, home, name, capfd, request, *, is_submitted):
    """In production its error comes from another process, and takes the same way from there."""
    if not is_submitted:
        request.getfixturevalue("warm_spark")

    run_of({**IN_SPARK, **OF_SUBMISSION}[name], home, run_dag, capfd)

    assert not DeltaTable.is_deltatable(str(home / "table"))
    log = home / "table" / "_checkpoint"
    assert [p.name for p in (log / "offsets").iterdir()] == ["0".zfill(20)]
    assert not list((log / "commits").glob("*"))
