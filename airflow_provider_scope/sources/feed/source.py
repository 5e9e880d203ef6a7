"""The change data feed of a table as a source: a slice is a range of versions, new are those after it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.commit import explaining_damage, path_of
from airflow_provider_scope.delta.log import open_source, open_table, read_commit, table_columns
from airflow_provider_scope.delta.schema import evolve
from airflow_provider_scope.delta.write_rules import Merge, Replace, Scd2
from airflow_provider_scope.exceptions import ChangeFeedError, TableUnreadableError
from airflow_provider_scope.protocol.report import READ, REMAINING, RunReport
from airflow_provider_scope.protocol.source import OneSlice, Source
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.specs.ingest import SELECT_ALL
from airflow_provider_scope.sql import takes_all_columns
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.validation import instant_ms
from airflow_provider_scope.values import VersionSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.delta.log import OpenTable
    from airflow_provider_scope.delta.schema import Struct
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.source import Access, Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.feed.spec import CdfSource
    from airflow_provider_scope.sources.feed.state import ChangeState, Lag, Metadata, SourceCommit
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage


_COMMIT = re.compile(r"\d{20}\.json")


def _metadata_of(opened: OpenTable) -> Metadata:
    metadata = opened.delta.metadata()
    return feed_state.Metadata.of(
        {
            "id": metadata.id,
            "configuration": metadata.configuration,
            "partitionColumns": metadata.partition_columns,
            "schemaString": opened.delta.schema().to_json(),
        }
    )


def check_partitions(
    table: str, commits: Sequence[SourceCommit], before: Metadata | None, *, is_first: bool = False
) -> None:
    """Refuse other partitions: of older files, Delta reads NULL in the columns that partition a table now.

    :raises ChangeFeedError: A version is partitioned by other columns, which are no new names.
    """
    for commit in commits:
        now = commit.metadata or before
        if before and now and before.partitions != now.partitions and _partitions(before) != _partitions(now):
            raise ChangeFeedError(
                f"Version {commit.version} of {table} changes the partitioning from {[*before.partitions]} "
                f"to {[*now.partitions]}: in rows of older files, the feed may have NULL in these columns.",
                kept=feed_state.KEPT,
                do="set full_load=True, which loads the rows as they are"
                if is_first
                else feed_state.START_OVER,
            )
        before = now


def _partitions(metadata: Metadata) -> list[int | str]:
    columns = metadata.schema.by_name()
    return [columns[name.lower()].number or name for name in metadata.partitions]


def of_run(spec: CdfSource, ingest: Ingest, log: CheckpointLog, access: Access) -> ChangeRows:
    """Return the changes of a run."""
    goes_by_keys = isinstance(ingest.write, (Merge, Scd2))
    return ChangeRows(
        spec=spec,
        place=log.location,
        storage=access.store(spec.table).storage,
        needs_feed=not isinstance(ingest.write, Replace),
        goes_by_keys=goes_by_keys,
        goes_by_names=goes_by_keys and takes_all_columns(ingest.sql),
        check_columns=_column_check(spec, ingest, access),
    )


def _column_check(spec: CdfSource, ingest: Ingest, access: Access) -> Callable[[Struct], None] | None:
    """Return what refuses columns of a feed that do not fit the target; None if only Spark can tell."""
    writes_columns_as_they_are = isinstance(ingest.write, Merge) and spec.deletes == "apply"
    if ingest.sql != SELECT_ALL or ingest.table.schema_evolution != "fail" or not writes_columns_as_they_are:
        return None
    target = canonical_uri(ingest.delta_location)

    def check(columns: Struct) -> None:
        existing = table_columns(target, access.store(target).storage)
        if existing:
            evolve("fail", columns, existing, target)

    return check


@dataclass
class SourceLog:
    """The log as a run sees it: the table is opened once, and newer versions than then are ignored."""

    table: str
    """Canonical URI of the table."""
    storage: Storage
    newest: int
    """The newest version."""
    metadata: Metadata
    """The table's, at that version."""
    commits: dict[int, SourceCommit | None] = field(default_factory=dict, init=False)
    """Those that were read: a commit never changes."""

    @classmethod
    def of(cls, table: str, storage: Storage) -> SourceLog:
        """Read the newest version of a table and its metadata.

        :raises SourceNotFoundError: There is no table.
        """
        with open_source(table, storage) as opened:
            return cls(table, storage, opened.delta.version(), _metadata_of(opened))

    def cleaned(self, oldest: int, argument: str) -> ChangeFeedError:
        """Return the error for versions that are older than the log.

        :param oldest: The oldest one that it has without a gap.
        :param argument: The field of the source that asks for them; empty if none does.
        """
        # Delta cleans up the oldest versions: one that is missing after others was deleted by somebody else.
        names = self.storage.names(f"{self.table}/_delta_log")
        if any(_COMMIT.fullmatch(name) and int(name[:20]) < oldest - 1 for name in names):
            return feed_state.missing(self.table, oldest - 1)
        named = f"source.{argument} is earlier" if argument else "its feed begins earlier"
        return ChangeFeedError(
            f"The log of {self.table} begins with version {oldest}, and {named}: the older versions were "
            "cleaned up (delta.logRetentionDuration).",
            kept=feed_state.KEPT,
            do=f"set full_load=True, which loads the rows as they are; or start_version={oldest} for the "
            "changes from there on",
        )

    def history(self) -> list[SourceCommit]:
        """Return all versions that the log still has, without a gap, oldest first."""
        commits: list[SourceCommit] = []
        for version in range(self.newest, -1, -1):
            commit = self.commit(version)
            if commit is None:
                break
            commits.append(commit)
        if not commits:
            raise feed_state.missing(self.table, self.newest)
        return commits[::-1]

    def metadata_before(self, commits: Sequence[SourceCommit]) -> Metadata | None:
        """Return the metadata before some versions; None if none of them changes it, or the log lacks it."""
        change = next((commit for commit in commits if commit.metadata), None)
        if change is None or change.version == 0:
            return None
        # Not by the commits before them: Delta cleans up the one that made the table, and has a checkpoint.
        with open_table(self.table, self.storage, at=change.version - 1) as opened:
            return None if opened is None else _metadata_of(opened)

    def has_rows_before(self, first: SourceCommit) -> bool:
        """Return whether the table had rows before a version; also true if the log no longer tells it."""
        if first.begins:
            return False
        try:
            with open_table(self.table, self.storage, at=first.version - 1) as opened:
                return opened is None or bool(opened.delta.file_uris())
        except (DeltaError, TableUnreadableError):
            return True

    def commit(self, version: int) -> SourceCommit | None:
        """Return a commit; None if the log does not have it."""
        if version not in self.commits:
            with explaining_damage(path_of(self.table, version), feed_state.KEPT):
                commit = read_commit(self.table, version, self.storage)
                self.commits[version] = None if commit is None else feed_state.SourceCommit.of(commit)
        return self.commits[version]

    def needed(self, version: int) -> SourceCommit:
        """Return a commit of the range, or raise: Spark would silently skip one that is missing."""
        commit = self.commit(version)
        if commit is None:
            raise feed_state.missing(self.table, version)
        return commit


@dataclass(kw_only=True)
class ChangeRows(Source):
    """The changes of a Delta table by version; see ``specs.CdfSource``."""

    kind: ClassVar[str] = VersionSlice.kind
    begins_after: ClassVar[str] = "set start_version to the version after those that are loaded"
    is_pinned: ClassVar[bool] = True
    spec: CdfSource
    """What the user wrote, with the canonical URI of the table."""
    place: str
    """Where the state is, for people."""
    storage: Storage
    """Where the table is."""
    needs_feed: bool = True
    """False if every run takes all rows."""
    goes_by_keys: bool = False
    """Whether rows that do not change stay in the target as they are."""
    goes_by_names: bool = False
    """Whether columns of the source are those of the target that have their names."""
    check_columns: Callable[[Struct], None] | None = None
    """Refuses columns that do not fit the target; None if `sql` may give other ones than the source has."""
    source_log: SourceLog = field(init=False, repr=False, compare=False)
    """The source's log, as it was when ``read_source_log`` read it."""

    @property
    def table(self) -> str:
        return self.spec.table

    @property
    def start_ms(self) -> int | None:
        """When the first version that the user wants was committed, or later; None if that is not said."""
        return instant_ms("start_timestamp", self.spec.start_timestamp)

    @property
    def says_from_when(self) -> bool:
        return self.spec.start_version is not None or self.start_ms is not None

    def begin_report(self, now_ms: int) -> RunReport:
        return RunReport(roots=(self.table,), now_ms=now_ms)

    def check(self, entry: OffsetEntry) -> None:
        """Refuse an entry of another load, and one whose state cannot be read.

        :raises ChangeFeedError: It has another identifier.
        """
        where = f"batch {entry.seq} of {self.place}"
        feed_state.decode(entry.slice.before, where)
        self._check_identifier(entry.slice.identifier, where)  # type: ignore[attr-defined] # as its kind says

    def state_after(self, entry: OffsetEntry) -> str:
        """Check that the source has the versions of a batch; the slice tells the state after it.

        :raises ChangeFeedError: It is another table, or lacks a version.
        :raises SchemaMismatchError: Its columns do not fit the target.
        """
        batch: VersionSlice = entry.slice  # type: ignore[assignment] # as its kind says
        self.check_planned(batch)
        for version in () if batch.snapshot else range(batch.first, batch.last + 1):
            self.source_log.needed(version)
        metadata = self.source_log.metadata
        # Spark reads a mapped table with the columns of the last version, which may be older ones.
        is_newest = batch.last == self.source_log.newest or not metadata.is_mapped
        # A batch without changes is not compared with the target.
        if self.check_columns and is_newest and batch.changed_bytes and not entry.overwrites_table:
            self.check_columns(metadata.schema)
        return feed_state.state_after(batch)

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:  # noqa: ARG002
        """Read the source's log, up to its newest version.

        :raises ChangeFeedError: A batch has to be read of a table that is not there any more.
        """
        self.read_source_log()
        if not request.replaces_table:
            self.check_waiting(view)

    def check_waiting(self, view: LogView) -> None:
        """Refuse batches that are not in the target yet, if the source no longer has what they read.

        Spark would not notice versions that are others now, and ``airflow scope plan`` does not start it.
        """
        for entry in view.outcomes(view.open).waiting:
            self.check_planned(entry.slice, f"Batch {entry.seq} belongs to another table. ")  # type: ignore[arg-type] # as its kind says

    def check_planned(self, planned: VersionSlice, of: str = "") -> None:
        """Refuse a slice that is not read yet, if it is of another table, or of versions that are others now.

        :param of: What the error says first if the table is another one.
        :raises ChangeFeedError: The source is another table, or has another history now.
        """
        if planned.last > self.source_log.newest:
            self.read_source_log()  # a run that read the log later may have planned it
        table = self.source_log.metadata.table
        if planned.source != table:
            raise feed_state.recreated(self.table, table, planned.source, of)
        self._check_not_set_back(feed_state.state_of(planned))
        if not planned.snapshot and not self.source_log.metadata.is_mapped:
            # Without column mapping, Delta reads a feed with the newest partitions.
            later = self._commits_after(planned.last)
            check_partitions(self.table, later, self.source_log.metadata_before(later))

    def read_source_log(self) -> None:
        """Read the source's log, up to its newest version.

        :raises SourceNotFoundError: There is no table.
        """
        self.source_log = SourceLog.of(self.table, self.storage)

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> OneSlice:
        """Return the next slice, if there are new versions."""
        text = None if refresh else view.state
        return OneSlice(self.slice_after(text, report, replaces=refresh))

    def slice_after(
        self, text: str | None, report: RunReport, *, replaces: bool = False
    ) -> VersionSlice | None:
        """Return the slice that follows a state; None if there are no new versions.

        :param text: The state; None is that nothing was read.
        :param replaces: Whether the rows of the slice replace those that are loaded.
        :raises ChangeFeedError: The feed does not tell all changes since the last load.
        """
        state = feed_state.decode(text, self.place)
        report.lag = ""
        report.warnings.pop(REMAINING, None)
        if state and state.version > self.source_log.newest:
            self.read_source_log()  # a run that read the log later may have loaded newer versions
        if state is None and (self.spec.full_load or not self.needs_feed):
            return self._snapshot(text)
        if state:
            self._check_identifier(state.identifier, self.place)
        self._check_same(state)
        end = self._end()
        first = self._first() if state is None else state.version + 1
        if first > end:
            report.nothing = f"0 changes: version {end} of {self.table} is loaded"
            if state is None:
                begins = f"version {first}" if self.start_ms is None else "start_timestamp"
                report.nothing = f"0 changes: {self.table} is read up to version {end}, before {begins}"
            return None
        commits = [self.source_log.needed(version) for version in range(first, end + 1)]
        metadata = self.source_log.metadata
        before = self.source_log.metadata_before(commits)
        self._check_versions(commits, before, is_first=state is None)
        if state and self.goes_by_keys:
            feed_state.check_reused(self.table, before, commits)
        if state and self.goes_by_names:
            feed_state.check_names(self.table, before, commits[0])
        count = feed_state.cut(
            self.table,
            commits,
            before,
            max_commits=self.spec.max_commits_per_batch,
            max_bytes=self.spec.max_bytes_per_batch,
            is_first=state is None,
        )
        if state is None and not self.says_from_when and self.source_log.has_rows_before(commits[0]):
            warning = feed_state.earlier_rows(self.table, first, replaces=replaces)
            report.warnings.setdefault("earlier rows", warning)
        self._report_lag(commits, count, metadata, report)
        is_checked = state is not None and self.goes_by_names
        if is_checked and (refusal := feed_state.other_columns(self.table, commits, before)):
            warning = f"{refusal.what} The batch of that version will be refused: {refusal.do}"
            report.warnings.setdefault("other columns", warning)
        batch = commits[:count]
        return VersionSlice(
            before=text,
            identifier=self.spec.identifier,
            source=metadata.table,
            first=first,
            last=batch[-1].version,
            snapshot=False,
            changed_bytes=sum(commit.size_bytes for commit in batch),
            location=self.table,
            first_ms=batch[0].time_ms,
            last_ms=batch[-1].time_ms,
        )

    def _report_lag(
        self, commits: list[SourceCommit], count: int, metadata: Metadata, report: RunReport
    ) -> None:
        """Report the versions that the batch leaves, and warn of those that the source soon no longer has."""
        remaining = feed_state.lag_of(commits[count:])
        report.lag = remaining.text(self.table) if remaining else ""
        for topic, lag in ((READ, feed_state.lag_of(commits)), (REMAINING, remaining)):
            is_read = topic == READ
            text = feed_state.lag_warning(self.table, lag, metadata.kept, report.now_ms, is_read=is_read)
            if text:
                report.warnings.setdefault(topic, text)

    def unread(self, view: LogView, now_ms: int) -> tuple[Lag | None, list[str]]:
        """Tell how far a log is behind the newest version, and warn if the source soon loses that part.

        Warn of columns, too, that were renamed or dropped: whether a run refuses that depends on its task.

        :param view: The log. Its newest batch is of a feed.
        :param now_ms: The time, milliseconds since the epoch.
        :raises ChangeFeedError: The source is another one, does not have all versions after the state, or
            cannot be read across one of these.
        """
        state = feed_state.decode(view.state, self.place)
        self.read_source_log()
        self.check_waiting(view)
        if state is None:
            return None, []
        self._check_same(state)
        commits, metadata = self._commits_after(state.version), self.source_log.metadata
        before = self.source_log.metadata_before(commits)
        self._check_versions(commits, before)
        feed_state.cut(self.table, commits, before, max_commits=None, max_bytes=None)
        lag = feed_state.lag_of(commits)
        warnings = [feed_state.lag_warning(self.table, lag, metadata.kept, now_ms)]
        if refusal := feed_state.other_columns(self.table, commits, before):
            warnings.append(f"{refusal.what} A run that loads all columns will refuse that: {refusal.do}")
        return lag, [*filter(None, warnings)]

    def lag_text(self, view: LogView, now_ms: int) -> str | None:
        """Describe the versions that are not loaded; None if all are, or nothing is.

        :raises ChangeFeedError: As ``unread`` does.
        """
        lag, _ = self.unread(view, now_ms)
        return lag.text(self.table) if lag else None

    def _snapshot(self, before: str | None) -> VersionSlice:
        """Return the slice of all rows; the changes after them have to be in the feed."""
        end, metadata = self._end(), self.source_log.metadata
        if self.needs_feed:
            self._check_feed()
            try:
                commits = self._commits_after(end)
                self._check_versions(commits, self.source_log.metadata_before(commits))
            except ChangeFeedError as err:
                do = f"leave end_version={end} out, or set a later one: no load could go on after that one"
                raise ChangeFeedError(err.what, kept=err.kept, do=do) from err
        at_ms = commit.time_ms if (commit := self.source_log.commit(end)) else None
        return VersionSlice(
            before=before,
            identifier=self.spec.identifier,
            source=metadata.table,
            first=end,
            last=end,
            snapshot=True,
            changed_bytes=0,
            location=self.table,
            first_ms=at_ms,
            last_ms=at_ms,
        )

    def _check_versions(
        self, commits: Sequence[SourceCommit], before: Metadata | None, *, is_first: bool = False
    ) -> None:
        """Refuse versions of which the feed does not tell all changes, or not all values.

        :param before: The metadata before them; None if none of them changes it, or it is not known.
        :param is_first: Whether nothing is loaded yet.
        :raises ChangeFeedError: As said.
        """
        source = self.source_log.metadata.table
        feed_state.check_range(self.table, commits, source, before, is_first=is_first)
        check_partitions(self.table, commits, before, is_first=is_first)

    def _commits_after(self, version: int) -> list[SourceCommit]:
        return [self.source_log.needed(number) for number in range(version + 1, self.source_log.newest + 1)]

    def _end(self) -> int:
        if self.spec.end_version is None:
            return self.source_log.newest
        if self.spec.end_version > self.source_log.newest:
            raise ChangeFeedError(
                f"source.end_version is {self.spec.end_version}, and the newest version of {self.table} is "
                f"{self.source_log.newest}.",
                kept=feed_state.KEPT,
                do="wait until the source has that version; or set a version that it has, or none",
            )
        return self.spec.end_version

    def _check_same(self, state: ChangeState | None) -> None:
        """Refuse another table, one that was set back, and one that has no feed.

        :raises ChangeFeedError: The source is another one, or the feed is off.
        """
        metadata = self.source_log.metadata
        if state:
            if state.source != metadata.table:
                raise feed_state.recreated(self.table, metadata.table, state.source)
            self._check_not_set_back(state)
        self._check_feed()

    def _check_not_set_back(self, state: ChangeState) -> None:
        if state.version > self.source_log.newest:
            raise ChangeFeedError(
                f"The newest version of {self.table} is {self.source_log.newest}, but version "
                f"{state.version} was there before: its log was set back to an earlier version.",
                kept=feed_state.KEPT,
                do=f"restore the source's log; or {feed_state.START_OVER}",
            )
        # A run without new versions as well: a copy put back may have grown to the same number again.
        feed_state.check_history(self.table, state, self.source_log.commit(state.version))

    def _check_identifier(self, identifier: str, where: str) -> None:
        if identifier != self.spec.identifier:
            raise ChangeFeedError(
                f"{where} belongs to the load {identifier!r}, but source.identifier is "
                f"{self.spec.identifier!r}.",
                kept=feed_state.KEPT,
                do=f"set identifier={identifier!r}; or give the task its own table and checkpoint",
            )

    def _check_feed(self) -> None:
        if not self.source_log.metadata.has_feed:
            raise ChangeFeedError(
                f"The table {self.table} has no change data feed.",
                kept=feed_state.KEPT,
                do="turn it on with ALTER TABLE … SET TBLPROPERTIES (delta.enableChangeDataFeed = true); "
                "with full_load=True, the rows from before that are loaded too",
            )

    def _first(self) -> int:
        """Return the version at which a first load begins.

        :raises ChangeFeedError: It is not in the log, or the feed begins later.
        """
        history = self.source_log.history()
        if self.start_ms is not None:
            first = feed_state.version_at(history, self.start_ms)
            if first is None:
                return self.source_log.newest + 1
            if first == history[0].version and first > 0:
                raise self.source_log.cleaned(first, "start_timestamp")
        else:
            first = self.spec.start_version
        before = self.source_log.metadata_before(history)
        start = feed_state.feed_start(history, self.source_log.metadata, before)
        if first is None:
            if start.first is None:
                raise self.source_log.cleaned(history[0].version, "")
            return start.first
        # The next version may be named: whoever takes over a load begins after its last one.
        if first > self.source_log.newest + 1:
            raise ChangeFeedError(
                f"source.start_version is {first}, and the newest version of {self.table} is "
                f"{self.source_log.newest}.",
                kept=feed_state.KEPT,
                do=f"set a version that it has, or {self.source_log.newest + 1}, its next one",
            )
        if first < history[0].version:
            raise self.source_log.cleaned(history[0].version, "start_version")
        if start.enabled is not None and first < start.enabled:
            raise ChangeFeedError(
                f"The first load begins at version {first} of {self.table}, but its change data feed was "
                f"enabled only with version {start.enabled}.",
                kept=feed_state.KEPT,
                do=f"begin at {start.enabled}; or set full_load=True, which also takes the rows from before "
                "that",
            )
        return first
