"""A source that only the tests have: numbers from a text file, one a line, cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.exceptions import (
    CheckpointCorruptError,
    EmptyRefreshError,
    SourceFileGoneError,
    SourceNotFoundError,
)
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.protocol.source import Source
from airflow_provider_scope.values import KINDS, WithoutState
from tests.support.memory_engine import MemoryEngine, Row

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.stores.protocol import Storage


@dataclass(frozen=True, slots=True)
class NumberSlice(WithoutState):
    """Numbers from ``first`` to ``last``, both included."""

    kind: ClassVar[str] = "numbers"
    first: int
    last: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def text(self) -> str:
        return f"{self.first} to {self.last}"


KINDS[NumberSlice.kind] = NumberSlice


def read_numbers(storage: Storage, path: str) -> list[int]:
    data = storage.read(path)
    if data is None:
        raise SourceNotFoundError(f"{path} does not exist")
    return [int(line) for line in data.decode().split()]


def row_of(number: int) -> Row:
    return "numbers", number, 1


# ---- what the worker does --------------------------------------------------------------------------


@dataclass
class Numbers(Source):
    """Many slices at once: all that are not given up tell what is new."""

    log: CheckpointLog
    path: str
    at_most: int
    kind: ClassVar[str] = NumberSlice.kind
    one_at_a_time: ClassVar[bool] = False
    found: list[int] = field(default_factory=list)

    def begin_report(self, now_ms: int) -> RunReport:
        return RunReport(roots=(self.path,), now_ms=now_ms)

    def check(self, entry: OffsetEntry) -> None:
        if not 0 <= entry.slice.first <= entry.slice.last:
            raise CheckpointCorruptError(f"Batch {entry.seq} is of {entry.slice.text()}.")

    def state_after(self, entry: OffsetEntry) -> str | None:
        check_there(self.log.storage, self.path, entry)
        return None

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        self.found = read_numbers(self.log.storage, self.path)
        report.nothing = f"0 new numbers of {len(self.found)}"
        if request.refresh and not self.found:
            raise EmptyRefreshError(f"{self.path} holds no number")

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> PendingNumbers:
        held = [] if refresh else self.held(view)
        return PendingNumbers([n for n in self.found if not any(n in one for one in held)], self.at_most)

    def held(self, view: LogView) -> list[NumberSlice]:
        """Return the slices since the refresh that are in the table, or still to come."""
        done = set(self.log.committed())
        return [
            self.log.offset(seq).slice
            for seq in range(view.refresh_start or 0, view.next_seq)
            if view.counts_as_loaded(seq, self.log.commit(seq) if seq in done else None)
        ]


@dataclass
class PendingNumbers:
    numbers: list[int]
    at_most: int

    @property
    def remaining(self) -> int:
        return len(self.numbers)

    def cut(self) -> NumberSlice | None:
        if not self.numbers:
            return None
        first = self.numbers[0]
        # What was given up before others leaves a gap behind itself.
        together = [n for _, n in takewhile(lambda at: at[1] == first + at[0], enumerate(self.numbers))]
        last = together[: self.at_most][-1]
        self.numbers = [n for n in self.numbers if n > last]
        return NumberSlice(first, last)


# ---- what the engines do ---------------------------------------------------------------------------


def check_there(storage: Storage, path: str, entry: OffsetEntry) -> range:
    there = set(read_numbers(storage, path))
    wanted = range(entry.slice.first, entry.slice.last + 1)
    if missing := [number for number in wanted if number not in there]:
        raise SourceFileGoneError(f"{path} has no {missing} of batch {entry.seq} any more")
    return wanted


def rows_of(storage: Storage, path: str, entry: OffsetEntry) -> list[Row]:
    return [row_of(number) for number in check_there(storage, path, entry)]


class NumbersInMemory(MemoryEngine):
    path = "file:///landing/numbers.txt"

    def read(self, entry: OffsetEntry) -> Any:
        return rows_of(self.storage, self.path, entry)
