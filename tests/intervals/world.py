"""The files of the intervals, or their rows, and what is true of the table in the end."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from airflow_provider_scope.protocol.intervals import IntervalLog, known_intervals
from airflow_provider_scope.sources.cursor.bounds import window_bounds
from airflow_provider_scope.stores.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.values import Window

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
        """Return the last line."""
        return f"intervals {self.intervals}, lost {self.lost}, doubled {self.doubled}"

    def add(self, other: Verdict) -> None:
        """Add what is true of another table."""
        self.intervals += other.intervals
        self.lost += other.lost
        self.doubled += other.doubled


class World:
    """A source and a table, below one folder."""

    columns: ClassVar[tuple[str, ...]]
    """Those that tell a row of the table from the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wanted(self) -> Counter[tuple[Any, ...]]:
        """Return the rows that should be there."""
        raise NotImplementedError

    def is_of(self, entry: OffsetEntry, window: Window) -> bool:
        """Return whether a batch names nothing but what is of its interval."""
        raise NotImplementedError

    def judge(self) -> Verdict:
        """Compare the table with the source, and look into the log of each interval."""
        verdict = Verdict()
        rows = DeltaTable(self.folder / "table").to_pyarrow_table()
        found = Counter(zip(*(rows[name].to_pylist() for name in self.columns), strict=True))
        wanted = self.wanted()
        verdict.lost, verdict.doubled = (wanted - found).total(), (found - wanted).total()
        storage, checkpoint = LocalStorage(), f"file://{self.folder}/table/_checkpoint"
        for window in known_intervals(storage, checkpoint):
            log = IntervalLog(storage, checkpoint, window)
            entries = [log.offset(seq) for seq in log.logged()]
            is_whole = not log.open_entries() and all(self.is_of(entry, window) for entry in entries)
            verdict.intervals += is_whole
        return verdict


class FileWorld(World):
    """A landing folder and a table."""

    columns = ("source_file_uri", "number")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
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

    def wanted(self) -> Counter[tuple[Any, ...]]:
        """Return the rows of all files."""
        return Counter((uri, number) for uri in self.files for number in range(ROWS))

    def is_of(self, entry: OffsetEntry, window: Window) -> bool:
        """Return whether all files of a batch are of its interval."""
        return all(file.modified_ms in window for file in entry.files)


class RowWorld(World):
    """A Delta table with a time in each row, and a table that is loaded from it."""

    columns = ("number",)

    def __init__(self, folder: Path, days: Sequence[datetime]) -> None:
        super().__init__(folder)
        self.numbers = 0
        self._add(days[0] - timedelta(microseconds=1))
        self.before = self.numbers
        """Rows of before all intervals, which nobody loads."""
        for day in days:
            self.land_day(day)

    def land_day(self, day: datetime) -> None:
        """Add the rows of a day: at both of its ends, which its neighbours must not take, and between."""
        self._add(day, day + DAY / 2, day + DAY / 2, day + DAY - timedelta(microseconds=1))

    def _add(self, *instants: datetime) -> None:
        numbers = range(self.numbers, self.numbers + len(instants))
        self.numbers = numbers.stop
        rows = pa.table({"at": pa.array(instants, pa.timestamp("us", "UTC")), "number": numbers})
        write_deltalake(self.folder / "source", rows, mode="append")

    def wanted(self) -> Counter[tuple[Any, ...]]:
        """Return all rows but those of before."""
        return Counter((number,) for number in range(self.before, self.numbers))

    def is_of(self, entry: OffsetEntry, window: Window) -> bool:
        """Return whether a batch has the rows between the ends of its interval."""
        first, end = window_bounds(window)
        return (entry.slice.first, entry.slice.end) == (first.encode(), end.encode())


class ChainWorld(World):
    """A landing folder, and three tables of which each follows the one before it."""

    columns = ("order_id", "status", "active")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.loads = 0
        self.versions: dict[tuple[int, str], bool] = {}

    def land(self, orders: dict[int, str | None]) -> None:
        """Add a file: order -> its status, None if it is deleted."""
        self.loads += 1
        landing = self.folder / "landing"
        landing.mkdir(exist_ok=True)
        lines = []
        for order, status in orders.items():
            is_gone = status is None
            lines.append(json.dumps({"order_id": order, "status": status or "", "deleted": is_gone}))
            self.versions.update({known: False for known in self.versions if known[0] == order})
            if status:
                self.versions[order, status.upper()] = True
        hidden = landing / f".{self.loads}"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1e9, 1e9))  # files that were just written are held back
        hidden.rename(landing / f"{self.loads}.json")

    def judge(self) -> Verdict:
        """Compare the versions in the third table with what became of each order."""
        rows = DeltaTable(self.folder / "tables" / "c").to_pyarrow_table().to_pylist()
        found = Counter((row["order_id"], row["status"], row["_valid_to"] is None) for row in rows)
        wanted = Counter((*version, active) for version, active in self.versions.items())
        commits = len(DeltaTable(self.folder / "tables" / "c").history())
        return Verdict(commits, (wanted - found).total(), (found - wanted).total())
