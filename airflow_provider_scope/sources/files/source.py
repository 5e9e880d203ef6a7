"""Files of one or more folders as a source: a slice is a number of files, and new is what no slice names."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

from airflow_provider_scope.exceptions import CheckpointCorruptError, InputError
from airflow_provider_scope.protocol import dbt_scope
from airflow_provider_scope.protocol.dry_run import InMemory
from airflow_provider_scope.protocol.recovery import MISSING_TABLE
from airflow_provider_scope.protocol.report import READ, RunReport, check_loadable
from airflow_provider_scope.protocol.seen import History
from airflow_provider_scope.protocol.source import Source
from airflow_provider_scope.protocol.view import read_log
from airflow_provider_scope.sources.files import discovery
from airflow_provider_scope.sources.files.discovery import Rules, check_one_store
from airflow_provider_scope.sources.files.spec import MAX_BYTES_PER_TRIGGER, MAX_FILES_ON_SPARK
from airflow_provider_scope.values import (
    FileSlice,
    check_as_logged,
    is_below,
    printable,
    slice_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.protocol.source import Access, Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.files.discovery import Candidates
    from airflow_provider_scope.sources.files.spec import FileSource
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry, Position, Window


def of_run(spec: FileSource, ingest: Ingest, log: CheckpointLog, access: Access) -> Files:
    """Return the files of a run.

    :raises InputError: The folders are on several stores.
    """
    check_one_store(spec.folders)
    storage = access.store(spec.folders[0]).storage
    return Files(spec=spec, log=log, listing=storage, now_ms=access.now_ms, window=ingest.window)


@dataclass(kw_only=True)
class Files(Source):
    """The files below some folders."""

    kind: ClassVar[str] = FileSlice.kind
    one_at_a_time: ClassVar[bool] = False
    begins_after: ClassVar[str] = "set starting_timestamp to a time after its files"
    spec: FileSource
    """What the user wrote, with canonical URIs of the roots."""
    log: CheckpointLog
    listing: Storage
    """Where the files are."""
    now_ms: int
    """When the run began."""
    window: Window | None = None
    """The interval whose files are taken; None takes those of all times."""
    fits: Callable[[tuple[FileEntry, ...]], int] | None = None
    """How many of some files one batch can take, from the first; None is all."""
    candidates: Candidates = field(init=False, repr=False, compare=False)
    _logged: dict[str, FileEntry | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The files of open batches, as the listing has them; None if it does not."""
    _leaves_out: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether loaded files were left out of ``candidates``."""
    _since: int | None = field(default=None, init=False, repr=False, compare=False)
    """The refresh since which they were loaded."""

    @cached_property
    def rules(self) -> Rules:
        """Which of the listed files are taken."""
        return Rules.of(self.spec, self.now_ms, self.window)

    @property
    def roots(self) -> tuple[str, ...]:
        return self.spec.folders

    @property
    def max_files(self) -> int:
        return self.spec.max_files_per_trigger or MAX_FILES_ON_SPARK

    @property
    def max_bytes(self) -> int:
        return self.spec.max_bytes_per_trigger or MAX_BYTES_PER_TRIGGER

    @property
    def reads_history(self) -> bool:
        """Whether a file counts as loaded by its path, and not by its time."""
        return self.spec.late_files == "ingest"

    @property
    def says_from_when(self) -> bool:
        return self.spec.begins_ms is not None

    @property
    def interval(self) -> str | None:
        return self.window.name if self.window else None

    def begin_report(self, now_ms: int) -> RunReport:
        return RunReport(
            roots=self.roots, safety_buffer_seconds=self.spec.safety_buffer_seconds, now_ms=now_ms
        )

    def take_over(self, view: LogView, request: Request, new_id: Callable[[], str], now_ms: int) -> bool:
        """Record what dbt-scope has loaded, unless all of that goes."""
        return not request.replaces_table and dbt_scope.take_over(self.log, view, self.roots, new_id, now_ms)

    def check_not_loaded_before(self, log: CheckpointLog, audit: AuditFiles) -> None:
        """Refuse to begin an interval of which ``mode="incremental"`` or dbt-scope has loaded files."""
        window = self.window
        if window is None:
            return
        view = read_loaded(log, audit, self.roots)
        doubled = sorted(path for path, (modified_ms, *_) in view.seen.items() if modified_ms in window)
        if doubled:
            raise InputError(
                f'Files of the interval {window.name} were loaded before, by mode="incremental" or by '
                f"dbt-scope ({log.location}): {len(doubled):,}, such as {printable(doubled[0])}. Their rows "
                "would be in the table twice.",
                kept="the table and all records; nothing was written",
                do="load intervals that end before the first of them. To load these files again, use "
                "write=Replace(where=…) with the interval's rows",
            )

    def check(self, entry: OffsetEntry) -> None:
        """Refuse an entry that names a file outside of the folders."""
        for file in entry.files:
            if not is_below(file.path, self.roots):
                raise CheckpointCorruptError(
                    f"Batch {entry.seq} of {self.log.location} names {file.path}, which is not below the "
                    f"source's roots ({', '.join(self.roots)}).",
                    kept="the table and all records; nothing was read",
                    do="if a template such as {{ ds }} names the roots, clear the task in the run that has "
                    "the folder of this file: it loads the batch; then clear this run. If the roots were "
                    "changed while this batch was open, add the old root again until the batch is loaded, "
                    "or run `airflow scope abandon`: the next run loads those of its files that are below "
                    "the new roots",
                )

    def state_after(self, entry: OffsetEntry) -> None:
        """Compare the files of a batch with the listing; those that are new are from it.

        :raises SourceFileGoneError: One is missing.
        :raises SourceFileChangedError: One has changed.
        """
        listed = ((file, self._logged.get(file.path, file)) for file in entry.files)
        statuses = ((file, now and (now.modified_ms, now.size_bytes)) for file, now in listed)
        check_as_logged(entry.seq, statuses, kept="the batches before it; this one stays logged")

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        self._leaves_out = self.reads_history and not request.refresh and not _overlap(self.roots)
        self._since = view.refresh_start
        self._logged = {file.path: None for entry in view.open for file in entry.slice.audited}
        candidates = self.candidates = self._list(view.seen if self._leaves_out else None)
        report.listed, report.matched = candidates.listed, candidates.matched
        report.newest, report.left_out = candidates.newest, candidates.left_out
        report.unmatched = candidates.unmatched
        report.patterns = self.rules.patterns
        # An interval in which no file came has no rows to replace either, unless it had files before.
        may_be_empty = self.window is not None and not self.log.is_begun()
        would_empty = request.refresh and not candidates.files and not may_be_empty
        check_loadable(
            report, request.table, fail_on_empty=bool(self.spec.fail_on_empty), would_empty=would_empty
        )
        if request.loads_files_again:
            version = view.table.version if view.table.identity else None
            missing = discovery.not_loaded_again(candidates.files, view.seen.items(), version)
            report.warnings |= {READ: missing} if missing else {}

    def _list(self, loaded: History | None) -> Candidates:
        def listing() -> Iterator[FileEntry]:
            for root in self.roots:
                for file in self.listing.walk(root):
                    if file.path in self._logged:
                        self._logged[file.path] = file
                    yield file

        candidates = None
        if loaded is not None:
            candidates = discovery.new_candidates(listing(), self.rules, self.roots, loaded)
        if candidates is None:
            candidates = discovery.candidates(listing(), self.rules, self.roots)
        refuse_tables(candidates)
        return candidates

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> PendingFiles:
        """Leave out, by path, what the log holds; with ``late_files="skip"`` by time."""
        if refresh:
            return PendingFiles(self, self.candidates.files)
        if self._leaves_out and view.refresh_start != self._since:
            # Another run has begun a refresh: what was left out counts as new.
            self.candidates = self._list(None)
            self._leaves_out = False
        history, newest = self.reads_history, view.newest.slice if view.newest else None
        highest = newest.highest if newest else None
        tally = deepcopy(self.candidates.unfit)
        files = dbt_scope.not_loaded(self.log, view, self.candidates.files, tally, history=history)
        held = self.candidates.held
        loaded_status = view.seen.find([*(file.path for file in files), *(file.path for _, file in held)])
        new = discovery.unseen(
            files, loaded_status, self.rules, highest, tally, waiting=self._logged, held=held
        )
        loaded = view.seen
        if newest and not history:
            loaded = History()
            loaded.update(newest.audited)
        discovery.check_names(new, loaded.outside(self.roots), self.roots, self.log.location)
        report.left_out = tally
        report.already_loaded = report.matched - len(new) - sum(tally.counts.values())
        return PendingFiles(self, new, highest)


@dataclass
class PendingFiles:
    """Files that are new, oldest first."""

    source: Files
    files: Sequence[FileEntry]
    highest: Position | None = None
    """The largest (modified, path) of what was cut off, and of the log since ``refresh_start``."""
    start: int = 0

    @property
    def remaining(self) -> int:
        return len(self.files) - self.start

    def cut(self) -> FileSlice | None:
        limits = self.source
        stop = discovery.next_batch(
            self.files, self.start, max_files=limits.max_files, max_bytes=limits.max_bytes
        )
        if stop == self.start:
            return None
        files = tuple(self.files[self.start : stop])
        if limits.fits:
            files = files[: limits.fits(files)]
        batch = slice_of(files, self.highest)
        self.highest = batch.highest
        self.start += len(files)
        return batch


def refuse_tables(candidates: Candidates) -> None:
    """Refuse data files of Delta tables as files to load.

    :raises InputError: As said.
    """
    tables = candidates.tables
    for file in candidates.files if tables else ():
        table = next((table for table in tables if is_below(file.path, (table,))), None)
        if table and file.path.endswith(".parquet"):
            raise InputError(
                f"{printable(file.path)} is a data file of the Delta table {printable(table)}: OPTIMIZE "
                "writes the same rows into new files, and deleted rows stay in old ones.",
                kept="the table and all records; nothing was read or written",
                do="read the Delta table by TableSource or CdfSource; or take its folder out of the roots",
            )


def _overlap(roots: Sequence[str]) -> bool:
    """Return whether a folder lies below another, so that its files are listed twice."""
    return any(a != b and is_below(a, (b,)) for a in roots for b in roots) or len(set(roots)) < len(roots)


class _NoTable:
    """In place of an engine."""

    def probe(self, *_: object) -> TableState:
        return MISSING_TABLE


def read_loaded(log: CheckpointLog, audit: AuditFiles, roots: Sequence[str]) -> LogView:
    """Read the log of a pipeline, with what its first run would take over from dbt-scope.

    :param log: Nothing is written: from now on its records stay in memory.
    :param roots: Canonical URIs of the folders whose files matter.
    :raises ScopeProviderError: The log, or what dbt-scope left, could not be read.
    """
    log.storage = InMemory(log.storage)
    while True:
        view = read_log(log, cast("Engine", _NoTable()), log.location, audit)
        # Of a takeover that nobody keeps, neither the id nor the time matters.
        if not (view.is_first and dbt_scope.take_over(log, view, roots, lambda: log.location, now_ms=0)):
            return view
