"""The order of steps in which an engine commits a batch, without saying to what kind of table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    SourceUnreadableError,
    TableUnreadableError,
)
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.engine import Engine
from tests.support.faulty_storage import Call, Gate, LostAnswer, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import Baseline, TableState

TRIES = 3
"""How often a batch is tried when another commit gets in between."""


class ConflictError(Exception):
    """Another commit got in between; nothing was committed."""


class BatchLoop(Engine):
    """Base of the engines that the tests bring; a gate stands before each step on something shared."""

    def __init__(self, gate: Gate = open_gate) -> None:
        self.gate = gate

    # ---- what a table is, for the subclasses -----------------------------------------------------

    def look(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        raise NotImplementedError

    def open(self, work: Work) -> tuple[Any, int | None]:
        """Open the table's newest version (None without a table), and its newest transaction."""
        raise NotImplementedError

    def read(self, entry: OffsetEntry) -> Any:
        """Stat the files again, read them, and give the rows."""
        raise NotImplementedError

    def no_rows(self) -> Any:
        raise NotImplementedError

    def commit(self, work: Work, handle: Any, entry: OffsetEntry, rows: Any, *, abandoned: bool) -> None:
        """Commit on the handle: ConflictError if the pipeline's transaction moved since it was opened."""
        raise NotImplementedError

    def leave_half(self, work: Work) -> None:
        """Leave what an application leaves that dies while it writes."""

    # ---- the engine protocol ---------------------------------------------------------------------

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        try:
            return self.gate(Call("probe"), lambda: self.look(location, pipeline, baseline))
        except LostAnswer as err:
            raise TableUnreadableError(f"no answer from {location}") from err

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        while entries:
            for entry in entries:
                self.run_batch(work, entry, fence=False)
            entries = more() if more else ()

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        self.run_batch(work, entry, fence=True)

    def txn_version(self, entry: OffsetEntry) -> int:
        return entry.seq

    def run_batch(self, work: Work, entry: OffsetEntry, *, fence: bool) -> None:
        for _ in range(TRIES):
            try:
                handle, newest = self._step("open", entry, lambda: self.open(work))
                if newest is not None and newest >= self.txn_version(entry):
                    return
                # The caller of a fence knows that every batch below is settled.
                if not fence and not recovery.may_run(entry, newest, work.first):
                    kind = recovery.out_of_order(newest, entry, work.first)
                    raise kind(f"batch {entry.seq} cannot run on transaction {newest}")
                rows = self.no_rows() if fence else self._read(entry)
                self._commit(work, handle, entry, rows, fence=fence)
            except (ConflictError, LostAnswer):
                continue  # look again: it may have been this very batch
            newest = self._step("verify", entry, lambda: self.open(work))[1]
            if newest is not None and newest >= self.txn_version(entry):
                return
            raise BatchNotInTableError(f"batch {entry.seq} was committed without an error and is not there")
        raise BatchNotInTableError(f"batch {entry.seq}: others committed in between, {TRIES} times")

    def _step(self, verb: str, entry: OffsetEntry, effect: Callable[[], Any]) -> Any:
        try:
            return self.gate(Call(f"{verb} {entry.seq}", by_application=True), effect)
        except LostAnswer as err:
            raise TableUnreadableError(f"no answer to: {verb} {entry.seq}") from err

    def _read(self, entry: OffsetEntry) -> Any:
        try:
            return self.gate(Call(f"files {entry.seq}", by_application=True), lambda: self.read(entry))
        except LostAnswer as err:
            raise SourceUnreadableError(f"the files of batch {entry.seq} could not be read") from err

    def _commit(self, work: Work, handle: Any, entry: OffsetEntry, rows: Any, *, fence: bool) -> None:
        self.gate(
            Call(f"commit {entry.seq}", writes=True, by_application=True),
            lambda: self.commit(work, handle, entry, rows, abandoned=fence),
            lambda: self.leave_half(work),
        )
