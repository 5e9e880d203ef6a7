"""The files of the intervals, and what is true of the table in the end."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.checkpoint.intervals import IntervalLog, known_intervals
from airflow_provider_scope.execution import repair
from airflow_provider_scope.storage.local import LocalStorage

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

ROWS = 3
"""Of each file."""
DAY = timedelta(days=1)


@dataclass(slots=True)
class Verdict:
    """What is true in the end."""

    intervals: int = 0
    """Those whose batches are all committed, and name files of their own time alone."""
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        """Give the last line."""
        return f"intervals {self.intervals}, lost {self.lost}, doubled {self.doubled}"


class World:
    """A landing folder and a table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: Counter[str] = Counter()

    def land(self, day: datetime, **ages: timedelta) -> None:
        """Add files to a day, each modified so long after its midnight."""
        landing = self.folder / "landing" / f"{day:%Y-%m-%d}"
        landing.mkdir(parents=True, exist_ok=True)
        for name, age in ages.items():
            path = landing / f"{name}.parquet"
            # Hidden until it has its time, as a writer should do it that keeps times.
            hidden = landing / f".{name}"
            parquet.write_table(pa.table({"number": pa.array(range(ROWS), pa.int64())}), hidden)
            modified = (day + age).timestamp()
            os.utime(hidden, (modified, modified))
            hidden.rename(path)
            self.files[f"file://{path}"] += 1

    def land_day(self, day: datetime) -> None:
        """Add the files of a day: two at its ends, which its neighbours must not take, and one between."""
        self.land(day, first=timedelta(), noon=DAY / 2, last=DAY - timedelta(milliseconds=1))

    def judge(self) -> Verdict:
        """Compare the table with the files, and look into the log of each interval."""
        verdict = Verdict()
        rows = DeltaTable(self.folder / "table").to_pyarrow_table()
        pairs = zip(rows["source_file_uri"].to_pylist(), rows["number"].to_pylist(), strict=True)
        found = Counter(pairs)
        wanted = Counter((uri, number) for uri in self.files for number in range(ROWS))
        verdict.lost, verdict.doubled = (wanted - found).total(), (found - wanted).total()
        storage, checkpoint = LocalStorage(), f"file://{self.folder}/table/_checkpoint"
        for window in known_intervals(storage, checkpoint):
            log = IntervalLog(storage, checkpoint, window)
            files = [file for seq in log.logged() for file in log.offset(seq).files]
            is_whole = not repair.open_entries(log) and all(file.modified_ms in window for file in files)
            verdict.intervals += is_whole
        return verdict
