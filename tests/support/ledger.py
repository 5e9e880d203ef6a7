"""A source with a state that only the tests have: rows of a text file, by a cursor.

Each line is a row: the value of its cursor, and its id. Rows are added behind the others, and two neighbours
have the same value, so a batch often ends between them. Which rows are new is known when a batch is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from airflow_provider_scope.exceptions import (
    CheckpointCorruptError,
    EmptyRefreshError,
    SourceFileGoneError,
    SourceNotFoundError,
)
from airflow_provider_scope.values import KINDS, WithoutFiles
from tests.support.delta_engine import TABLE, DeltaEngine
from tests.support.memory_engine import MemoryEngine, Row
from tests.support.numbers import Numbers, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.stores.protocol import Storage


class State(NamedTuple):
    """What is known behind a batch."""

    last: int
    known: tuple[int, ...]
    """Ids of the rows that have the last value and are in the table."""
    version: int
    """How many lines the file had."""

    def encode(self) -> str:
        return json.dumps(self)


INITIAL = State(0, (), 0)


def decode(text: str | None) -> State:
    if text is None:
        return INITIAL
    try:
        last, known, version = json.loads(text)
    except ValueError as err:
        raise CheckpointCorruptError(f"{text!r} is no state of a ledger") from err
    return State(last, tuple(known), version)


@dataclass(frozen=True, slots=True)
class LedgerSlice(WithoutFiles):
    """The rows beyond a state, in a version of the file."""

    kind: ClassVar[str] = "ledger"
    before: str | None
    version: int

    @property
    def ids(self) -> range:
        """Return the rows that came since the version of the state; a test's names for what a batch holds."""
        return range(decode(self.before).version + 1, self.version + 1)

    def __contains__(self, number: int) -> bool:
        return number in self.ids

    def text(self) -> str:
        return f"rows beyond {self.before} in version {self.version}"


KINDS[LedgerSlice.kind] = LedgerSlice


def cursor_of(number: int) -> int:
    return (number + 1) // 2


def read_lines(storage: Storage, path: str) -> list[tuple[int, int]]:
    """Return cursor and id of each row."""
    data = storage.read(path)
    if data is None:
        raise SourceNotFoundError(f"{path} does not exist")
    return [(int(cursor), int(number)) for cursor, number in map(str.split, data.decode().splitlines())]


def beyond(before: State, lines: Sequence[tuple[int, int]]) -> list[int]:
    """Return the ids of the rows that are not in the table."""
    at_last = [n for cursor, n in lines if cursor == before.last and n not in before.known]
    return at_last + [n for cursor, n in lines if cursor > before.last]


def state_after(before: State, numbers: Sequence[int], version: int) -> State:
    """Return the state after the rows that a batch writes."""
    last = max([before.last, *map(cursor_of, numbers)])
    known = [n for n in numbers if cursor_of(n) == last]
    known += before.known if last == before.last else ()
    return State(last, tuple(sorted(known)), version)


# ---- what the worker does --------------------------------------------------------------------------


@dataclass
class Ledger(Numbers):
    """One slice at a time: it begins at the state after the one before."""

    kind: ClassVar[str] = LedgerSlice.kind
    one_at_a_time: ClassVar[bool] = True
    lines: int = 0

    def check(self, entry: OffsetEntry) -> None:
        decode(entry.slice.before)

    def state_after(self, entry: OffsetEntry) -> str | None:
        rows_of(self.log.storage, self.path, entry)
        return None

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        self.lines = len(read_lines(self.log.storage, self.path))
        report.nothing = f"0 new rows of {self.lines}"
        if request.refresh and not self.lines:
            raise EmptyRefreshError(f"{self.path} holds no row")

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> Any:
        return PendingLines(None if refresh else view.state, self.lines, self.at_most)


@dataclass
class PendingLines:
    before: str | None
    lines: int
    at_most: int

    @property
    def remaining(self) -> int:
        return self.lines - decode(self.before).version

    def cut(self) -> LedgerSlice | None:
        """Cut off a slice; the next one cannot be known before it is committed."""
        at = decode(self.before).version
        if at >= self.lines:
            return None
        found = LedgerSlice(self.before, min(at + self.at_most, self.lines))
        self.before = decode(self.before)._replace(version=found.version).encode()
        return found


# ---- what the engines do ---------------------------------------------------------------------------


def rows_of(storage: Storage, path: str, entry: OffsetEntry) -> list[Row]:
    lines = read_lines(storage, path)[: entry.slice.version]
    if len(lines) < entry.slice.version:
        raise SourceFileGoneError(f"{path} has no version {entry.slice.version} any more")
    return [row_of(number) for number in beyond(decode(entry.slice.before), lines)]


def state_of(entry: OffsetEntry, numbers: Sequence[int]) -> str:
    return state_after(decode(entry.slice.before), numbers, entry.slice.version).encode()


class LedgerInMemory(MemoryEngine):
    path = "file:///landing/numbers.txt"

    def read(self, entry: OffsetEntry) -> Any:
        return rows_of(self.storage, self.path, entry)

    def state(self, entry: OffsetEntry, rows: Any) -> str:
        return state_of(entry, [number for _, number, _ in rows])


class LedgerInDelta(DeltaEngine):
    def __init__(self, gate: Any, storage: Storage, path: str) -> None:
        super().__init__(gate)
        self.storage = storage
        self.path = path

    def read(self, entry: OffsetEntry) -> pa.Table:
        rows = rows_of(self.storage, self.path, entry)
        files, ids, days = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table({"id": ids, "day": days, "file": files}, schema=TABLE)

    def notes(self, entry: OffsetEntry, rows: pa.Table) -> dict[str, Any]:
        return {"state": state_of(entry, rows["id"].to_pylist())}
