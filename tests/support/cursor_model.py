"""What a cursor is meant to do, in plain Python; and single loads of rows on Spark to compare with it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from airflow_provider_scope.spark.cursor import reading_of
from airflow_provider_scope.specs import TableSource
from airflow_provider_scope.values import CursorSlice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from airflow_provider_scope.sources.cursor.spec import Cursor

Row = dict[str, Any]


@dataclass
class Replay:
    """Loads by a cursor, of whatever is given as the source each time; the table is the caller's."""

    spark: Any
    folder: Path
    cursor: Cursor
    max_rows: int | None = None
    state: str | None = None
    more: bool = False
    loads: int = 0

    def load(self, source: pa.Table) -> list[Row]:
        """Return the rows that a load takes, and keep its state."""
        cursor, path = self.cursor, self.folder / f"source.{self.loads}.parquet"
        # Not by createDataFrame: it makes times without zone into instants.
        pq.write_table(source, path)
        data = self.spark.read.parquet(str(path))
        plan = TableSource(table="/t", cursor=cursor, max_rows_per_batch=self.max_rows)
        first, end = cursor.bounds
        found = CursorSlice(
            self.state, cursor.column, first and first.encode(), end and end.encode(), None, None
        )
        self.loads += 1
        folder = f"file://{self.folder}/boundary/{self.loads}"
        batch = reading_of(plan, found, folder, data, checkpoint=None)
        with ExitStack() as block:
            new = batch.held(block)
            self.state, self.more = new.state, '"more": true' in (new.state or "")
            return list(new.rows.toArrow().to_pylist())


@dataclass
class Model:
    """The same, with the cursor's values as they are in Python; rows are read as a whole each time."""

    column: str
    func: str = "max"
    lag: Any = None
    missing: str = "raise"
    dedup_key: tuple[str, ...] | None = None
    initial: Any = None
    is_open: bool = False
    last: Any = None
    known: Counter[Any] = field(default_factory=Counter)

    def load(self, rows: list[Row]) -> list[Row]:
        taken, read = self.take(rows)
        self.note(taken, read, is_any_taken=bool(taken))
        return taken

    def take(self, rows: list[Row]) -> tuple[list[Row], Counter[Any]]:
        """Return the rows that are new, and the marks of all that were read."""
        start = self.start()
        taken, seen, read = [], Counter[Any](), Counter[Any]()
        for row in rows:
            value = row[self.column]
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                if self.missing == "raise":
                    raise ValueError(row)
                taken += [row] if self.missing == "include" else []
                continue
            if start is not None and (self.before(value, start) or (self.is_open and value == start)):
                continue
            read[self.mark(row)] += 1
            if self.last is not None and not self.before(self.last, value) and self.compares:
                seen[self.mark(row)] += 1
                is_first = 1 if self.dedup_key else seen[self.mark(row)]
                if is_first <= self.known[self.mark(row)]:
                    continue
            taken.append(row)
        return taken, read

    def note(self, taken: list[Row], read: Counter[Any], *, is_any_taken: bool) -> None:
        values = [r[self.column] for r in taken if self.is_there(r[self.column])]
        for value in values:
            if self.last is None or self.before(self.last, value):
                self.last = value
        start = self.start()
        loaded = Counter(self.mark(row) for row in taken if self.is_there(row[self.column]))
        both = self.known + loaded
        if self.dedup_key is None and is_any_taken:
            # Of each value, what it has now: a row that changed, and changed back, is new again.
            values = {at for at, _ in read}
            both = Counter({m: n for m, n in self.known.items() if m[0] not in values}) + read
        self.known = Counter({m: n for m, n in both.items() if start is None or not self.before(m[0], start)})

    def start(self) -> Any:
        if self.last is None:
            return self.initial
        if not self.lag:
            return self.last
        start = self.last - self.lag if self.func == "max" else self.last + self.lag
        return self.initial if self.initial is not None and self.before(start, self.initial) else start

    @property
    def compares(self) -> bool:
        return self.dedup_key != () and not self.is_open

    def before(self, one: Any, other: Any) -> bool:
        return bool(one < other if self.func == "max" else one > other)

    def mark(self, row: Row) -> Any:
        names = self.dedup_key or tuple(sorted(row))
        return row[self.column], tuple(row[name] for name in names)

    @staticmethod
    def is_there(value: Any) -> bool:
        return value is not None and not (isinstance(value, float) and not math.isfinite(value))


@dataclass
class Groups:
    """A cursor for each group: as many models as there are groups, each over the rows of its own."""

    per: str
    model: Callable[[], Model]
    models: dict[Any, Model] = field(default_factory=dict)

    def load(self, rows: list[Row]) -> list[Row]:
        groups = defaultdict[Any, list[Row]](list)
        for row in rows:
            groups[row[self.per]].append(row)
        models = {group: self.models.get(group) or self.model() for group in groups}
        loads = {group: models[group].take(of_group) for group, of_group in groups.items()}
        self.models |= models
        taken = [row for of_group, _ in loads.values() for row in of_group]
        for group, (of_group, read) in loads.items():
            # A load that takes no row leaves all that is known as it is.
            models[group].note(of_group, read, is_any_taken=bool(taken))
        return taken
