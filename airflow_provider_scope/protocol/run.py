"""The protocol that keeps every run exactly-once."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    InputError,
    RecordsVacuumedError,
    ScopeProviderError,
    StateUnknownError,
)
from airflow_provider_scope.protocol import bad_records, first_run, recovery, takeover
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.records import OffsetEntry
from airflow_provider_scope.protocol.report import READ, BatchReport
from airflow_provider_scope.protocol.view import (
    LogView,
    accept_missing_table,
    commit_not_shown,
    loaded_in_table,
    pinned_columns,
    read_log,
    record_commit,
    recorded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_scope.protocol.commands import Address
    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.recovery import CommittedBatch
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Pending, Request, Source
    from airflow_provider_scope.values import Slice

logger = logging.getLogger(__name__)

REOPENINGS = 3
"""How often a run starts again at step 0 because another run's refresh overtook it."""


class MicroBatchExecution:
    """One run of a pipeline.

    The log is linear; ``seq`` = 0, 1, 2, ... for the life of the pipeline. Anybody may run it at any
    time, several at once; any of them may die at any point.

    0. Open. ``pipeline.json``, then ``commits/``, then the table, then ``offsets/``: the reverse of
       the order of writing, so that another run's progress never looks like damage. What another program
       loaded before the first entry is recorded here.
    1. Recover. Refuse a table that was restored, recreated, or is behind or ahead of the log. An open
       batch is never planned again: its slice is what its entry says.
    2. Discover. Look once where the source ends; leave out what the log holds.
    3. Plan batches: the source cuts what is left into slices.
    4. Log each batch with put-if-absent under the next number, having read every entry below it. Losing
       the number is not an error: read the winner's entry, plan the rest, go on.
    5. Run the open batches in order. The engine commits each with ``txn(pipeline, seq)`` in the
       transaction of its rows, and only when the table's newest transaction is the predecessor.
    6. Commit. Probe the table; put ``commits/<seq>`` for what is in it, and only for that.
    7. Audit. Bring ``sources/`` and ``watermark.json`` up to the log.

    :param now_ms: The clock, milliseconds since the epoch.
    :param new_id: Gives a fresh UUID as text, for a new pipeline.
    :param after: Called with the result when a run is over; it never fails the run.
    """

    request: Request
    """What the run is asked to do, once it has begun."""
    report: RunReport
    """The report of the run, as far as it has come."""
    view: LogView
    """The log and the table, as far as the run knows them."""

    def __init__(
        self,
        log: CheckpointLog,
        audit: AuditFiles,
        source: Source,
        engine: Engine,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        after: Callable[[LogView, RunReport], None] | None = None,
    ) -> None:
        self.log = log
        self.audit = audit
        self.source = source
        self.engine = engine
        self.now_ms = now_ms
        self.new_id = new_id
        self.after = after
        self.audits = True
        """Whether the derived files are brought up to date at the end."""
        self.is_warned = False
        self.first_batch: int | None = None
        """The first batch of this run, once it has read the log."""

    def run(self, request: Request) -> RunReport:
        """Do steps 0 to 7 and give the report.

        :raises ScopeProviderError: See ``exceptions``; what was committed before stays recorded. The commands
            that it names are complete.
        """
        self.request, self.report = request, self.source.begin_report(self.now_ms())
        self.view = LogView(request.table, self.log.location, None, recovery.MISSING_TABLE)
        try:
            self._run()
        except ScopeProviderError as err:
            err.do = _addressed(request, self.view.open).complete(err.do)
            raise
        return self.report

    def _run(self) -> None:
        request, report = self.request, self.report
        self.view = self.open(request)
        self.first_batch = request.first_batch
        if self.first_batch is None:
            self.first_batch = self.view.open[0].seq if self.view.open else self.view.next_seq
        else:
            self.request = _rest_of(request, self.first_batch, self.view)
            if self.request.refresh != request.refresh:
                self.view = self.open(self.request)
            request = self.request
            report.batches += recorded(self.log, self.view, self.first_batch)
        if request.loads_files_again:
            self._read_loaded()
        self.source.discover(request, self.view, report)
        was_open = self.view.open
        logged = self._log_batches()
        for _ in logged:
            self._run_open(logged)
        floor = self.view.overwrite_start or 0
        reported = {*report.superseded, *(batch.record.seq for batch in report.batches)}
        report.superseded += tuple(e.seq for e in was_open if e.seq < floor and e.seq not in reported)
        self._run_open()
        self.engine.finish(self.log.location)
        self._audit()
        if self.after:
            self.after(self.view, report)

    # ---- 0, 1 ----------------------------------------------------------------------------------

    def open(self, request: Request) -> LogView:
        """Read the log and the table, and refuse those that a run cannot go on with.

        :raises ScopeProviderError: As said.
        """
        history = self.audit if self.source.reads_history and not request.refresh else None
        while True:
            view = read_log(self.log, self.engine, request.table, history)
            if view.is_first and self.source.take_over(view, request, self.new_id, self.now_ms()):
                continue
            if self.check(request, view):
                return view

    def check(self, request: Request, view: LogView) -> bool:
        """Refuse a table, a log and open batches that a run cannot go on with; the source is not listed.

        :return: False if another run has logged a batch meanwhile: the log has to be read again.
        :raises ScopeProviderError: As said.
        """
        with _addressed(request, view.open).completes_errors():
            if view.pipeline is not None:
                self._check(request, view)
            return first_run.check(self.log, self.engine, view, request, self.source)

    def _read_loaded(self) -> None:
        """Read which files were loaded, so that those that a full refresh leaves out are named."""
        try:
            self.view.seen = loaded_in_table(self.log, self.audit, self.engine, self.view)
        except ScopeProviderError as err:
            self.report.warnings[READ] = (
                "It is not known which loaded files the source no longer has. Their rows are not in the new "
                f"table. {err.what}"
            )

    def _check(self, request: Request, view: LogView) -> None:
        """Refuse a table that diverged from the log, and entries that the source does not have."""
        view.check(is_void=request.replaces_table)
        if view.newest:
            self._check_kind(view.newest)
        if not request.replaces_table:  # else they are superseded
            self._check_open(view)

    def _check_open(self, view: LogView) -> None:
        for entry in view.open:
            self._check_kind(entry)
            self.source.check(entry)

    def _check_kind(self, entry: OffsetEntry) -> None:
        if entry.slice.kind != self.source.kind:
            raise InputError(
                f"Batch {entry.seq} of {self.log.location} is a batch of the kind {entry.slice.kind!r}, "
                f"but the source of this task is of the kind {self.source.kind!r}: the log does not say "
                "what of that source is loaded.",
                kept="the table and all records; nothing was written",
                do="use the kind of source that the pipeline began with; or give the task its own table "
                "and checkpoint",
            )

    # ---- 3 -------------------------------------------------------------------------------------

    def _pending(self, *, refresh: bool) -> Pending:
        """Ask the source what is new, and log its warnings: a run that fails has no report."""
        self.check_state(self.request, self.view, refresh=refresh)
        pending = self.source.pending(self.view, self.report, refresh=refresh)
        text = self.report.warnings.get(READ)
        if text and not self.is_warned:
            logger.warning(text)
            self.is_warned = True
        return pending

    def check_state(self, request: Request, view: LogView, *, refresh: bool) -> None:
        """Refuse to go on from a state that nothing tells.

        :raises StateUnknownError: As said, and what is in the table is not replaced.
        """
        if view.is_state_lost and not (refresh and request.replaces_table):
            raise StateUnknownError(
                f"It is not known what of the source is in {request.table}: the table was accepted without "
                "a state.",
                kept="the table and all records; no batch was logged",
                do=recovery.load_again(self.log.location),
            )

    def _entry(self, batch_slice: Slice, *, refresh: bool) -> OffsetEntry:
        view, seq = self.view, self.view.next_seq
        replaces_all = refresh and not self.request.where
        void = view.newest.void_watermark if view.newest else None
        if replaces_all:
            void = takeover.void_watermark(self.log.watermark(), view.takeover, view.newest)
        return OffsetEntry(
            seq=seq,
            mode="overwrite" if refresh else "append",
            where=self.request.where,
            slice=batch_slice,
            refresh_start=seq if refresh else view.refresh_start,
            overwrite_start=seq if replaces_all else view.overwrite_start,
            takeovers=view.takeover.number + 1 if view.takeover else 0,
            void_watermark=void,
        )

    # ---- 4 -------------------------------------------------------------------------------------

    def _log_batches(self) -> Iterator[None]:
        """Log what is new; yield where the open batches have to be run first."""
        request = self.request
        pending: Pending | None = None
        refresh = request.refresh
        logged = 0
        while request.max_batches is None or logged < request.max_batches:
            if self.source.one_at_a_time and self.view.open and not (refresh and request.replaces_table):
                yield
                pending = None
            if pending is None:
                pending = self._pending(refresh=refresh)
            batch_slice = pending.cut()
            if batch_slice is None:
                break
            entry = self._entry(batch_slice, refresh=refresh)
            if self.view.pipeline is None:
                self._create_pipeline()
            try:
                logged_entry = self.log.put_offset(entry)
            except RecordsVacuumedError:
                logger.info(
                    "other runs went beyond batch %d in the meantime; reading the log again", entry.seq
                )
                self.view = self.open(replace(request, refresh=refresh))
                pending = None
                continue
            self._check_kind(logged_entry)
            self.source.check(logged_entry)
            self.view.append(logged_entry)
            if logged_entry == entry:
                logged += 1
                refresh = False
                logger.debug("logged batch %d: %s", entry.seq, entry.slice.text())
            else:
                logger.info("batch %d was logged by another run; planning the rest", entry.seq)
                pending = None
        if pending is None and not self.source.one_at_a_time:  # all was logged before the run waited
            pending = self._pending(refresh=False)
        self.report.pending_files = pending.remaining if pending else 0

    def _create_pipeline(self) -> None:
        new_id = self.new_id()
        self.view.pipeline = self.log.begin(new_id, self.view.table)
        if self.view.pipeline.pipeline != new_id:
            logger.info("the pipeline of %s was created by another run", self.request.table)

    # ---- 5, 6 ----------------------------------------------------------------------------------

    def _run_open(self, logged: Iterator[None] | None = None) -> None:
        """Run the open batches, and those that follow from them.

        :param logged: Logs what follows from them, of a source whose batches are logged one at a time.
        """
        self._commit(already_there=True)
        request, view = self.request, self.view
        open_batches = view.open
        self._check_open(view)  # a refresh that logged nothing has superseded none
        if not open_batches or view.pipeline is None:
            return
        if open_batches[0].overwrites_table and view.table.identity:
            logger.warning(
                "full refresh of %s: the old rows are at version %d (RESTORE brings them back)",
                request.table,
                view.table.version,
            )
        failure: ScopeProviderError | None = None
        try:
            pinned = pinned_columns(self.log, view) if request.infers_columns else None
            work = Work(view.pipeline.pipeline, request.table, self.log.location, view.first, pinned)
            if view.table.identity is None and view.baseline.identity:
                view.accepted = accept_missing_table(self.log, view)
            if open_batches[0].mode == "empty":  # left by an `accept-table` that died
                self.engine.fence(work, replace(open_batches[0], mode="append"))
            elif logged is None:
                self.engine.run(work, open_batches)
            else:
                self.engine.run(work, open_batches, lambda: self._more(logged))
        except ScopeProviderError as err:
            failure = err
        try:
            self._commit_run()
        except ScopeProviderError as err:
            # The probe tells about the table, the failure why: the cause comes first.
            raise (failure or err) from err
        if failure:
            raise failure
        if self.view.open:
            raise BatchNotInTableError(
                f"The engine ended without an error, but batch {self.view.open[0].seq} is not in "
                f"{request.table}.",
                kept=f"{len(self.report.batches)} batches committed by this run; the batch stays logged",
                do="the next try runs it again; if this comes back, look at the engine's log",
            )

    def _more(self, logged: Iterator[None]) -> Sequence[OffsetEntry]:
        """Record what the engine has run so far, and log what follows from it."""
        self._commit_run()
        if not self.view.open:
            next(logged, None)
            return self.view.open
        return ()  # one is not in the table: the engine ends, and the run with an error

    def _commit_run(self) -> None:
        view = self.view
        pipeline = view.pipeline.pipeline if view.pipeline else None
        view.table = self.engine.probe(self.request.table, pipeline, view.baseline)
        self._commit(already_there=False)

    def _commit(self, *, already_there: bool) -> None:
        """Put the records of the batches that the table holds.

        A batch that the transaction covers and the table's log does not show was overtaken by a
        refresh that this run has not read yet: read the log again.
        """
        for _ in range(REOPENINGS):
            result = self.view.outcomes(self.view.open)
            for entry, committed in result.committed:
                if result.unclear and result.unclear[0].seq < entry.seq:
                    break
                self._record(entry, committed, already_there=already_there)
            if not result.unclear:
                return
            before = self.view.open
            self.view = self.open(replace(self.request, refresh=False))
            still_open = {entry.seq for entry in self.view.open}
            closed = (entry.seq for entry in before if entry.seq not in still_open)
            self.report.superseded += tuple(seq for seq in closed if self.log.find_commit(seq) is None)
        raise commit_not_shown(result.unclear[0], self.view.location)

    def _record(self, entry: OffsetEntry, committed: CommittedBatch, *, already_there: bool) -> None:
        request, report = self.request, self.report
        record = record_commit(self.log, self.view, entry, committed, committed_at_ms=self.now_ms())
        report.batches.append(BatchReport.of(entry, record, already_there=already_there))
        if bad_records.share(record.quarantined) > bad_records.WARN_ABOVE:
            message = request.address.complete(
                f"batch {entry.seq}: {bad_records.text(record.quarantined)} are in the quarantine; "
                f"`airflow scope quarantine` shows them"
            )
            logger.warning(message)
            report.warnings.setdefault("quarantine", message)

    # ---- 7 -------------------------------------------------------------------------------------

    def _audit(self) -> None:
        view, report = self.view, self.report
        report.table_version = view.table.version if view.table.identity else None
        last = view.last_committed_entry
        if not self.audits or last is None or last.refresh_start != view.refresh_start:
            return
        self.audit.bring_up_to_date(last, view.takeover)
        highest = last.slice.highest
        report.watermark_ms = highest.modified_ms if highest else None


def _addressed(request: Request, open_batches: Sequence[OffsetEntry]) -> Address:
    """Return what completes the commands of an error: the batch is the oldest that is open."""
    return replace(request.address, batch=open_batches[0].seq if open_batches else None)


def _rest_of(request: Request, first_batch: int, view: LogView) -> Request:
    """Return what a run that has waited is still to do: it does not begin its refresh again.

    :param first_batch: Where it began. What was open then counts as one of its batches.
    """
    has_refreshed = view.refresh_start is not None and view.refresh_start >= first_batch
    remaining = request.max_batches and max(0, request.max_batches - (view.next_seq - first_batch))
    return replace(request, refresh=request.refresh and not has_refreshed, max_batches=remaining)
