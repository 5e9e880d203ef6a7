"""The rules of the protocol that look odd, each with a way to leave it out.

One for each mutation of the protocol's model. Aside: three that are about purging the log (which no run
does), two about SCOPE jobs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import StorageError
from airflow_provider_scope.protocol import recovery, run, seen, view
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import encode_offset
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.sources.files import discovery
from airflow_provider_scope.sources.files.source import Files, PendingFiles
from airflow_provider_scope.values import Position, position
from tests.crash.schedules import play
from tests.support.batch_loop import BatchLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_provider_scope.protocol.records import OffsetEntry
    from tests.crash.tally import Tally


LIMIT = 4000
"""Schedules after which nothing is found any more; most rules need less than a hundred."""


@dataclass(frozen=True)
class Rule:
    """A rule, the schedules that need it, and what they find without it."""

    name: str
    leave_out: Callable[[pytest.MonkeyPatch], None]
    kind: str
    finds: str
    """``lost``, ``doubled`` or ``failures``."""
    first: int = 0
    """The seed that is played first: one that shows it, as long as nothing else changes the schedules.

    Where the test of a rule takes seconds, this is to be what ``search`` gives now.
    """

    def search(self) -> int | None:
        """Return the seed of a schedule that finds something."""
        seeds = (self.first, *range(LIMIT))
        return next((seed for seed in seeds if getattr(self.found(seed), self.finds)), None)

    def found(self, seed: int) -> Tally:
        return play(self.kind, seed)[0]


def no_predecessor_check(patch: pytest.MonkeyPatch) -> None:
    """Let an application commit a batch although the one before it is not in the table."""
    patch.setattr(recovery, "may_run", lambda entry, txn, _first=0: (-1 if txn is None else txn) < entry.seq)


def blind_put(patch: pytest.MonkeyPatch) -> None:
    """Go on with the next number after a number was lost, without reading the winner's entry."""

    def put(log: CheckpointLog, entry: OffsetEntry) -> OffsetEntry:
        path = f"{log.location}/offsets/{entry.seq:020}"
        is_free = log.storage.read(path) is None
        log.storage.put_if_absent(path, encode_offset(entry))
        return entry if is_free else entry.with_files(())

    patch.setattr(CheckpointLog, "put_offset", put)


def ignore_lost(patch: pytest.MonkeyPatch) -> None:
    """Take a put without an answer for one that failed, and log the files under the next number."""

    def put(log: CheckpointLog, entry: OffsetEntry) -> OffsetEntry:
        try:
            return original(log, entry)
        except StorageError:
            return entry.with_files(())

    original = CheckpointLog.put_offset
    patch.setattr(CheckpointLog, "_put_bytes", _put_without_reading_back)
    patch.setattr(CheckpointLog, "put_offset", put)


def _put_without_reading_back(log: CheckpointLog, path: str, data: bytes, seq: int | None = None) -> bytes:
    return log.storage.put_if_absent(path, data)


def commit_before_probe(patch: pytest.MonkeyPatch) -> None:
    """Put commit records when the application ended, whatever the table says."""
    original = MicroBatchExecution._commit

    def commit(self: MicroBatchExecution, *, already_there: bool) -> None:
        if already_there:
            original(self, already_there=True)
            return
        for entry in self.view.open:
            committed = CommittedBatch(self.view.table.version, None, None)
            self._record(entry, committed, already_there=False)

    patch.setattr(MicroBatchExecution, "_commit", commit)


def epoch_reuse(patch: pytest.MonkeyPatch) -> None:
    """Let the transaction's version restart with every refresh."""
    patch.setattr(BatchLoop, "txn_version", lambda _self, entry: entry.seq - (entry.refresh_start or 0))
    patch.setattr(recovery, "check_transaction", lambda *_args: None)


def probe_last(patch: pytest.MonkeyPatch) -> None:
    """Read ``offsets/``, then ``commits/``, then the table."""

    class OffsetsFirst:
        def __init__(self, log: CheckpointLog) -> None:
            self.log = log
            self.numbers = log.logged()

        def logged(self) -> list[int]:
            return self.numbers

        def __getattr__(self, name: str) -> Any:
            return getattr(self.log, name)

    original = run.read_log
    patch.setattr(
        run,
        "read_log",
        lambda log, *args, **kwargs: original(OffsetsFirst(log), *args, **kwargs),  # type: ignore[arg-type]
    )


def segments_of_any_refresh(patch: pytest.MonkeyPatch) -> None:
    """Let the segments go on through a refresh, as if the files before it still counted as loaded."""
    patch.setattr(Epoch, "folder", "0")
    patch.setattr(Epoch, "start", 0)


def skip_by_watermark_file(patch: pytest.MonkeyPatch) -> None:
    """Let ``late_files="skip"`` compare with ``watermark.json`` and the open batches."""
    original = Files.pending

    def pending(self: Files, found: Any, report: Any, *, refresh: bool) -> Any:
        if refresh:
            return original(self, found, report, refresh=True)
        marks = [position(file) for entry in found.open for file in entry.files]
        value = json.loads(self.log.storage.read(f"{self.log.location}/watermark.json") or b"{}")
        if value.get("path"):
            modified = round(datetime.fromisoformat(value["modifiedTime"]).timestamp() * 1000)
            marks.append(Position(modified, "file://" + value["path"]))
        highest = max(marks, default=None)
        new = discovery.unseen(self.candidates.files, {}, self.rules, highest, seen.Tally())
        return PendingFiles(self, new, found.newest.slice.highest if found.newest else None)

    patch.setattr(Files, "pending", pending)


def restore_checked_only_at_open(patch: pytest.MonkeyPatch) -> None:
    """Put commit records without comparing the table's id and newest RESTORE once more."""
    original = view.record_commit

    def record(*args: Any, **kwargs: Any) -> Any:
        with patch.context() as inner:
            inner.setattr(recovery, "check_identity", lambda *_args: None)
            return original(*args, **kwargs)

    patch.setattr(run, "record_commit", record)


RULES = (
    Rule("a batch runs only after its predecessor", no_predecessor_check, "sloppy", "lost", first=2),
    Rule("the winner's entry is read before the rest is planned", blind_put, "append", "doubled", first=350),
    Rule("an answer that was lost is looked up", ignore_lost, "append", "doubled", first=29),
    Rule("a commit record needs the table's word", commit_before_probe, "append", "lost", first=92),
    Rule("numbers never restart", epoch_reuse, "refresh", "lost", first=20),
    Rule("commits, then the table, then offsets are read", probe_last, "refresh", "failures", first=96),
    Rule(
        "a segment of another refresh does not count", segments_of_any_refresh, "refresh", "lost", first=153
    ),
    Rule(
        "late files are told by the log, not by watermark.json",
        skip_by_watermark_file,
        "skip",
        "doubled",
        first=43,
    ),
    Rule(
        "the table's identity is compared for every record",
        restore_checked_only_at_open,
        "diverge",
        "failures",
        first=27,
    ),
)
