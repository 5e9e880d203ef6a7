"""Two intervals that merge the same keys at the same time, each by a Dag run in a process of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.processes import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.loads]

NEW_YEAR = datetime(2014, 1, 1, tzinfo=UTC)
BATCHES = 3
SHARED = [1, 2, 3]
"""Keys that each file of each interval has."""


def own_key(day: int, number: int) -> int:
    return 100 * (day + 1) + number


def land(folder: Path) -> None:
    for day in range(2):
        for number in range(BATCHES):
            path = folder / f"{day}-{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            keys = [*SHARED, own_key(day, number)]
            pq.write_table(pa.table({"id": keys, "by": [f"{day}-{number}"] * len(keys)}), path)
            modified = (NEW_YEAR + timedelta(days=day, seconds=number)).timestamp()
            os.utime(path, (modified, modified))


class Interval:
    """One interval, run by processes."""

    def __init__(self, folder: Path, day: int) -> None:
        self.home = folder / f"airflow{day}"
        self.home.mkdir()
        self.report = self.home / "report"
        made = os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].removeprefix("sqlite:///")
        with (
            closing(sqlite3.connect(made)) as here,
            closing(sqlite3.connect(self.home / "airflow.db")) as copy,
        ):
            here.backup(copy)
        end = (NEW_YEAR + timedelta(days=day + 1)).isoformat()
        self.arguments = [str(folder / "landing"), str(folder / "table"), end, str(self.report)]

    def start(self) -> subprocess.Popen[str]:
        """Start a process, which waits until it is told to run."""
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
        }
        self.report.unlink(missing_ok=True)
        with (self.home / "output").open("a") as output:
            made = subprocess.Popen(
                [sys.executable, "-m", "tests.support.one_interval", *self.arguments],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert made.stdout
        assert made.stdout.readline() == "ready\n"
        return made


def run_at_once(intervals: list[Interval]) -> list[Interval]:
    """Run intervals at the same time, and give those that were refused, by the one error that says why."""
    processes = [interval.start() for interval in intervals]
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate()[0] for process in processes]
    refused = []
    for interval, text in zip(intervals, told, strict=True):
        said = text + (interval.home / "output").read_text()
        state = interval.report.read_text() if interval.report.exists() else "no report"
        if state != "success":
            assert state == "failed", said
            assert "BatchNotInTableError" in said, said
            refused.append(interval)
    return refused


def test_two_intervals_that_merge_the_same_keys_converge_or_are_refused_by_name(
    airflow_db: None, tmp_path: Path
) -> None:
    land(tmp_path / "landing")
    left = [Interval(tmp_path, day) for day in range(2)]
    for _ in range(5):
        left = run_at_once(left)
        if not left:
            break
    assert not left

    table = DeltaTable(str(tmp_path / "table"))
    found: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    rows = {row["id"]: row["by"] for row in found}
    own = {own_key(day, n): f"{day}-{n}" for day in range(2) for n in range(BATCHES)}
    assert len(found) == len(rows) == len(SHARED) + len(own)
    assert {key: rows[key] for key in own} == own
    # The last batch of the table wins: of one interval, and as a whole.
    last = f"{BATCHES - 1}"
    assert {rows[key] for key in SHARED} in ({f"0-{last}"}, {f"1-{last}"})
    assert table.version() == 2 * BATCHES - 1, "each batch is one commit"
