"""The archive of Java's classes with a real Java: one run makes it, one takes it, a bad one is survived."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.specs import FileSource, SparkEngine
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, number: int) -> tuple[list[str], str]:
    """Load one more file; give what the run told, and Spark's log."""
    landing, log = folder / "landing", folder / f"spark.{number}.log"
    landing.mkdir(exist_ok=True)
    parquet.write_table(pa.table({"n": [number]}), landing / f"{number}.parquet")
    classes = folder / "classes.log"
    classes.unlink(missing_ok=True)
    told: list[str] = []
    options = f"-XX:TieredStopAtLevel=1 -Xlog:class+load:file={classes} -XX:ErrorFile={folder}/error.log"
    arguments = {
        "delta_location": str(folder / "table"),
        "sql": SELECT_ALL,
        "write": "append",
        "full_refresh": False,
        "source": FileSource(roots=str(landing), format="parquet", safety_buffer_seconds=0),
        "engine": SparkEngine(conf={"spark.driver.extraJavaOptions": options}),
    }
    ingest = ingest_from(dict.fromkeys(ARGUMENTS) | arguments)
    execution, request, _ = assemble(ingest, RunContext(task="t", log_file=log, report=told.append))
    execution.run(request)
    return told, log.read_text()


def from_archive(folder: Path) -> int:
    return (folder / "classes.log").read_text().count("shared objects file (top)")


@pytest.mark.loads
def test_an_archive_is_made_taken_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("AIRFLOW__AIRFLOW_PROVIDER_SCOPE__CLASS_ARCHIVES", str(cache))

    load(tmp_path, 1)
    assert from_archive(tmp_path) == 0
    told, log = load(tmp_path, 2)
    assert "stores Java's classes" in "".join(told)
    assert "[cds" not in log
    (archive,) = cache.glob("*.jsa")

    told, log = load(tmp_path, 3)
    assert from_archive(tmp_path) > 10_000
    assert "stores Java's classes" not in "".join(told)
    assert "[cds" not in log

    os.truncate(archive, 50_000_000)
    archive.rename(archive.with_name(f"{archive.name.split('-')[0]}-50000000.jsa"))
    load(tmp_path, 4)
    assert (tmp_path / "error.log").exists(), "Java took the half archive"
    assert not list(cache.glob("*.jsa"))

    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(rows["n"].to_pylist()) == [1, 2, 3, 4]
