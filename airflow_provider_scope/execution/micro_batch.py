"""The protocol that keeps every run exactly-once."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.core import discovery, planning, recovery
from airflow_provider_scope.core.records import OffsetEntry, Pipeline
from airflow_provider_scope.core.report import BatchReport, RunReport
from airflow_provider_scope.core.run_without_files import check_found
from airflow_provider_scope.core.slices import slice_of
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    ScopeProviderError,
)
from airflow_provider_scope.execution import dbt_scope, first_run
from airflow_provider_scope.execution.engine import Work
from airflow_provider_scope.execution.view import (
    LogView,
    check_paths,
    check_table,
    pinned_columns,
    read_log,
    record_commit,
    recorded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.discovery import Candidates
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.recovery import Landed
    from airflow_provider_scope.execution.engine import Engine
    from airflow_provider_scope.execution.request import Listing, Request

logger = logging.getLogger(__name__)

REOPENINGS = 3
"""How often a run starts again at step 0 because another run's refresh overtook it."""


class MicroBatchExecution:
    """One run of a pipeline.

    The log is linear; ``seq`` = 0, 1, 2, ... for the life of the pipeline. Anybody may run it at any
    time, several at once; any of them may die at any point.

    0. Open. ``pipeline.json``, then ``commits/``, then the table, then ``offsets/``: the reverse of
       the order of writing, so that another run's progress never looks like damage.
    1. Recover. Refuse a table that was restored, recreated, or is behind or ahead of the log. An open
       batch is never planned again: its files are what its entry says.
    2. Discover. List the source once; leave out, by path, what the log holds.
    3. Plan batches, oldest file first.
    4. Log each batch with put-if-absent under the next number, having read every entry below it. Losing
       the number is not an error: read the winner's entry, plan the rest, go on.
    5. Run the open batches in order. The engine commits each with ``txn(pipeline, seq)`` in the
       transaction of its rows, and only when the table's newest transaction is the predecessor.
    6. Commit. Probe the table; put ``commits/<seq>`` for what is in it, and only for that.
    7. Audit. Bring ``sources/`` and ``watermark.json`` up to the log.

    :param now_ms: The clock, milliseconds since the epoch.
    :param new_id: Gives a fresh UUID as text, for a new pipeline.
    """

    def __init__(
        self,
        log: CheckpointLog,
        audit: AuditFiles,
        source: Listing,
        engine: Engine,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.log = log
        self.audit = audit
        self.source = source
        self.engine = engine
        self.now_ms = now_ms
        self.new_id = new_id
        self.first_batch: int | None = None
        """The first batch of this run, once it has read the log."""

    def run(self, request: Request) -> RunReport:
        """Do steps 0 to 7 and give the report.

        :raises ScopeProviderError: See ``exceptions``; what was committed before stays recorded.
        """
        report = RunReport(
            roots=request.roots,
            safety_buffer_seconds=request.safety_buffer_seconds,
            now_ms=self.now_ms(),
        )
        view = self._open(request)
        self.first_batch = request.first_batch
        if self.first_batch is None:
            self.first_batch = view.open[0].seq if view.open else view.next_seq
        else:
            report.batches += recorded(self.log, self.first_batch)
        found = self._discover(request, report)
        while view.left:
            self._adopt(request, view, found, report)
        was_open = view.open
        self._log_batches(request, view, found, report)
        now_open = {entry.seq for entry in view.open}
        report.superseded = tuple(e.seq for e in was_open if e.seq not in now_open)
        self._run_open(request, view, report)
        self._audit(view, report)
        return report

    def plan(self, request: Request) -> tuple[RunReport, list[OffsetEntry], list[OffsetEntry]]:
        """Do steps 0 to 3 and write nothing.

        :return: The report, the batches that are open, and those that would be logged.
        """
        report = RunReport(
            roots=request.roots,
            safety_buffer_seconds=request.safety_buffer_seconds,
            now_ms=self.now_ms(),
        )
        view = self._open(request)
        found = self._discover(request, report)
        already_open = list(view.open)
        planned: list[OffsetEntry] = []
        pending = self._pending(request, view, found, report)
        start = 0
        refresh = request.refresh
        while entry := self._next_entry(request, view, pending, start, refresh=refresh):
            if request.max_batches is not None and len(planned) == request.max_batches:
                break
            planned.append(entry)
            view.append(entry)
            start += len(entry.files)
            refresh = False
        report.pending_files = len(pending) - start
        return report, already_open, planned

    # ---- 0, 1 ----------------------------------------------------------------------------------

    def _open(self, request: Request) -> LogView:
        history = request.reads_history and not request.refresh
        view = read_log(self.log, self.audit, self.engine, request.table, history=history)
        if view.newest is None and view.taken is None:
            history, is_void = request.reads_history, request.replaces_table
            if not dbt_scope.look(
                self.log, view, request.roots, self.now_ms(), history=history, is_void=is_void
            ):
                return self._open(request)
        if view.pipeline is not None:
            self._check(request, view)
        if not first_run.check(self.log, self.engine, view, request):
            return self._open(request)
        return view

    def _check(self, request: Request, view: LogView) -> None:
        """Refuse a table that diverged from the log, and entries that name other files than the source's."""
        check_table(view, request.table, is_void=request.replaces_table)
        if not request.replaces_table:
            dbt_scope.check(self.audit, view)
        for entry in view.open:
            check_paths(entry, request.roots, self.log.location)

    def _adopt(self, request: Request, view: LogView, found: Candidates, report: RunReport) -> None:
        """Take over what dbt-scope left, once it is known which files that leaves to this pipeline."""
        self._pending(request, view, found, report)
        dbt_scope.adopt(self.log, view, self.new_id())
        logger.info("took over %s from dbt-scope", self.log.location)
        view.take_over(self._open(request))

    # ---- 2, 3 ----------------------------------------------------------------------------------

    def _discover(self, request: Request, report: RunReport) -> Candidates:
        listing = (file for root in request.roots for file in self.source.walk(root))
        found = discovery.candidates(listing, request.rules, request.roots)
        report.listed, report.matched, report.newest = found.listed, found.matched, found.newest
        report.left_out, report.unmatched = found.left_out, found.unmatched
        report.patterns = request.rules.patterns
        # An interval in which no file came has no rows to replace either, unless it had files before.
        may_be_empty = request.rules.window is not None and not self.log.logged()
        would_empty = request.refresh and not found.files and not may_be_empty
        check_found(report, request.table, fail_on_empty=request.fail_on_empty, would_empty=would_empty)
        return found

    def _pending(
        self, request: Request, view: LogView, found: Candidates, report: RunReport
    ) -> list[FileEntry]:
        if request.refresh:
            return list(found.files)
        tally = discovery.Tally(dict(found.left_out.counts), dict(found.left_out.names))
        files = dbt_scope.not_loaded(self.log, view, found.files, tally, history=request.reads_history)
        pending = discovery.unseen(files, view.seen, request.rules, view.highest, tally)
        newest = view.newest.slice.audited if view.newest and not request.reads_history else ()
        known = view.seen or {file.path: discovery.status(file) for file in newest}
        discovery.check_names(pending, known, request.roots)
        report.left_out = tally
        report.already_loaded = report.matched - len(pending) - sum(tally.counts.values())
        return pending

    def _next_entry(
        self, request: Request, view: LogView, pending: list[FileEntry], start: int, *, refresh: bool
    ) -> OffsetEntry | None:
        stop = planning.next_batch(pending, start, max_files=request.max_files, max_bytes=request.max_bytes)
        if stop == start:
            return None
        files = tuple(pending[start:stop])
        if request.fits:
            files = files[: request.fits(files)]
        seq = view.next_seq
        if refresh:
            return OffsetEntry(
                seq=seq,
                mode="overwrite",
                where=request.where,
                slice=slice_of(files),
                refresh_start=seq,
                overwrite_start=view.overwrite_start if request.where else seq,
            )
        return OffsetEntry(
            seq=seq,
            mode="append",
            where=request.where,
            slice=slice_of(files, view.highest),
            refresh_start=view.refresh_start,
            overwrite_start=view.overwrite_start,
        )

    # ---- 4 -------------------------------------------------------------------------------------

    def _log_batches(self, request: Request, view: LogView, found: Candidates, report: RunReport) -> None:
        pending = self._pending(request, view, found, report)
        start = 0
        refresh = request.refresh
        logged = 0
        while request.max_batches is None or logged < request.max_batches:
            entry = self._next_entry(request, view, pending, start, refresh=refresh)
            if entry is None:
                break
            if view.pipeline is None:
                self._create_pipeline(request, view)
            if refresh and request.replaces_table:
                dbt_scope.replaced(self.log, self.audit, view, self.now_ms())
            there = self.log.put_offset(entry)
            check_paths(there, request.roots, self.log.location)
            if there == entry:
                logged += 1
                refresh = False
                start += len(entry.files)
                view.append(entry)
                logger.debug("logged batch %d: %d files", entry.seq, len(entry.files))
            else:
                logger.info("batch %d was logged by another run; planning the rest", entry.seq)
                view.append(there)
                pending = self._after_losing(request, view, found, report, refresh=refresh)
                start = 0
        report.pending_files = len(pending) - start

    def _after_losing(
        self,
        request: Request,
        view: LogView,
        found: Candidates,
        report: RunReport,
        *,
        refresh: bool,
    ) -> list[FileEntry]:
        """Plan again, with what the winner's entry says; a refresh still asked for stays asked for."""
        return self._pending(replace(request, refresh=refresh), view, found, report)

    def _create_pipeline(self, request: Request, view: LogView) -> None:
        mine = Pipeline(
            pipeline=self.new_id(),
            table=view.table.stamp,
            table_version=view.table.version if view.table.stamp else None,
        )
        view.pipeline = self.log.put_pipeline(mine)
        if view.pipeline != mine:
            logger.info("the pipeline of %s was created by another run", request.table)

    # ---- 5, 6 ----------------------------------------------------------------------------------

    def _run_open(self, request: Request, view: LogView, report: RunReport) -> None:
        self._commit(request, view, report, already_there=True)
        todo = view.open
        if not todo or view.pipeline is None:
            return
        if todo[0].overwrites_table and view.table.stamp:
            logger.warning(
                "full refresh of %s: the old rows are at version %d (RESTORE brings them back)",
                request.table,
                view.table.version,
            )
        failure: ScopeProviderError | None = None
        try:
            pinned = pinned_columns(self.log, view) if request.infers_columns else None
            work = Work(view.pipeline.pipeline, request.table, self.log.location, view.first, pinned)
            self.engine.run(work, todo)
        except ScopeProviderError as err:
            failure = err
        try:
            view.table = self.engine.probe(request.table, view.pipeline.pipeline, view.baseline)
            self._commit(request, view, report, already_there=False)
        except ScopeProviderError as err:
            # The probe tells about the table, the failure why: the cause comes first.
            raise (failure or err) from err
        if failure:
            raise failure
        if view.open:
            raise BatchNotInTableError(
                f"The engine ended without an error, but batch {view.open[0].seq} is not in {request.table}.",
                kept=f"{len(report.batches)} batches committed by this run; the batch stays logged",
                do="the next try runs it again; if it comes back, look at the engine's log",
            )

    def _commit(self, request: Request, view: LogView, report: RunReport, *, already_there: bool) -> None:
        """Put the records of the batches that the table holds.

        A batch that the transaction covers and the table's log does not show was overtaken by a
        refresh that this run has not read yet: read the log again.
        """
        for _ in range(REOPENINGS):
            gone = view.accepted.gone if view.accepted else ()
            result = recovery.outcomes(view.open, view.table, gone)
            for entry, landed in result.landed:
                if result.unclear and result.unclear[0].seq < entry.seq:
                    break
                self._record(request, view, report, entry, landed, already_there=already_there)
            if not result.unclear:
                return
            before = view.open
            fresh = self._open(replace(request, refresh=False))
            view.take_over(fresh)
            still_open = {entry.seq for entry in view.open}
            late = tuple(e.seq for e in before if e.seq not in still_open and not self._is_done(e.seq))
            report.superseded += late
        raise BatchOutcomeUnknownError(
            f"The table {request.table} says that batch {result.unclear[0].seq} is done, but its log does "
            "not show the commit.",
            kept="the table, the log and all files",
            do=f"look at the table's history, then run `airflow scope accept-table {request.table}`",
        )

    def _is_done(self, seq: int) -> bool:
        return seq in self.log.committed()

    def _record(
        self,
        request: Request,
        view: LogView,
        report: RunReport,
        entry: OffsetEntry,
        landed: Landed,
        *,
        already_there: bool,
    ) -> None:
        record = record_commit(self.log, view, request.table, entry, landed, committed_at_ms=self.now_ms())
        report.batches.append(
            BatchReport(
                seq=entry.seq,
                mode=entry.mode if entry.where is None else "replace",
                files=record.files,
                size_bytes=record.size_bytes,
                rows=record.rows,
                table_version=record.table_version,
                already_there=already_there,
                abandoned=record.abandoned,
                quarantined=record.quarantined,
            )
        )

    # ---- 7 -------------------------------------------------------------------------------------

    def _audit(self, view: LogView, report: RunReport) -> None:
        report.table_version = view.table.version if view.table.stamp else None
        last = view.last_committed_entry
        if last is None or last.refresh_start != view.refresh_start:
            return
        self.audit.bring_up_to_date(last, view.takeovers)
        report.watermark_ms = last.slice.highest.modified_ms if last.slice.highest else None
