"""A source with something bad in it, through the operator: put aside, shown, mended and given back."""

from __future__ import annotations

import csv
import gzip
import os
import shlex
import time
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Checkpoint, FileSource, TableSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

READINGS = "Station,Zeit,°C"
AGE_SECONDS = 3_600


def land(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    old = time.time() - AGE_SECONDS
    os.utime(path, (old, old))


def make(root: Path) -> DAG:
    with DAG("measures", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(root / "table"),
            source=FileSource(
                roots=str(root / "in [1]"),
                patterns=r"\.csv(\.gz)?$",
                format="csv",
                columns="Station string, Zeit timestamp_ntz, `°C` decimal(4,1)",
                options={"header": "true"},
                bad_records="quarantine",
            ),
            table=TableSpec(expect={"on earth": "`°C` BETWEEN -90 AND 60"}),
            checkpoint=Checkpoint(location=str(root / "its log")),
        )
    return dag


def scope(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    from airflow.cli.cli_parser import get_parser

    capsys.readouterr()
    args = get_parser().parse_args(["scope", *words])
    args.func(args)
    return capsys.readouterr().out


def report_of(run: Any) -> dict[str, Any]:
    (ti,) = run.get_task_instances()
    return ti.xcom_pull(task_ids="ingest")


def rows(root: Path) -> list[tuple[str, str, str]]:
    table = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
    return sorted((row["Station"], row["Zeit"].isoformat(), str(row["°C"])) for row in table)


@pytest.mark.loads
def test_bad_records_go_aside_and_a_mended_file_is_given_back(run_dag, tmp_path, capsys):
    folder = tmp_path / "in [1]"
    good = f"{READINGS}\nKöln,2026-01-01T00:00:00,-3.5\nKöln,2026-01-01 01:00,warm\n"
    good += '"Uelzen, Stadt",2026-01-01,99.0\n'
    land(folder / "a.csv", good.encode())
    whole = f"{READINGS}\nKiel,2026-01-01 02:00:00,1.0\n" + "Kiel,2026-01-01 03:00:00,2.0\n" * 3_000
    land(folder / "b 100%.csv.gz", gzip.compress(whole.encode())[:-30])
    dag = make(tmp_path)

    first = run_dag(dag)

    assert first.state == "success"
    assert rows(tmp_path) == [("Köln", "2026-01-01T00:00:00", "-3.5")]
    report = report_of(first)
    assert (report["files"], report["rows"]) == (2, 1)
    rule = "it cannot be read: Unexpected end of input stream"
    assert report["quarantined"] == {
        "records": {"count": 1, "out_of": 3, "rules": {"°C is not decimal(4,1)": 1}},
        "rows": {"count": 1, "out_of": 2, "rules": {"on earth": 1}},
        "files": {"count": 1, "out_of": 2, "rules": {rule: 1}},
    }
    (warning,) = report["warnings"]
    counts = "1 of 3 records, 1 of 2 rows, 1 of 2 files"
    told, command = warning.split("`")[:2]
    assert told == f"batch 0: {counts} are in the quarantine; "
    shown = scope(capsys, *shlex.split(command)[2:]).replace(str(tmp_path), "")
    lines = shown.splitlines()
    assert "SELECT * FROM delta.`file:///table_quarantine` WHERE pipeline = '" in lines.pop()
    assert lines == [
        "quarantine  file:///table_quarantine",
        "            2 records, and 1 file as a whole",
        "batch 0: rows of the SELECT",
        "  1 record: on earth",
        '  such as a row: {"Station":"Uelzen, Stadt","Zeit":"2026-01-01T00:00:00.000000","°C":99.0}',
        "batch 0: file:///in [1]/a.csv",
        "  1 record: °C is not decimal(4,1)",
        '  such as record 2: {"Station":"Köln","Zeit":"2026-01-01 01:00","°C":"warm"}',
        "batch 0: file:///in [1]/b 100%.csv.gz",
        "  the whole file: it cannot be read: Unexpected end of input stream",
    ]
    assert f"quarantined {counts} of batch 0" in scope(
        capsys, "status", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "its log")
    )

    land(folder / "b 100%.csv.gz", gzip.compress(whole.encode()))
    assert report_of(run_dag(dag))["files"] == 0  # a changed file does not count as new by itself
    land(folder / "b repaired.csv.gz", gzip.compress(whole.encode()))
    last = report_of(run_dag(dag))

    assert (last["files"], last["rows"], last["quarantined"]) == (1, 3_001, {})
    expected = list(csv.reader(whole.splitlines()))[1:]
    assert len(rows(tmp_path)) == 1 + len(expected)
    assert report_of(run_dag(dag))["files"] == 0
