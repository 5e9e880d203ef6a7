"""Rows beyond a cursor as a source: a slice is a state, and new is what is beyond it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from deltalake.schema import PrimitiveType

from airflow_provider_scope.delta.log import open_source, read_commit
from airflow_provider_scope.delta.write_rules import Replace
from airflow_provider_scope.exceptions import CursorError, InputError, StorageError
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.protocol.source import OneSlice, Source
from airflow_provider_scope.sources.cursor import databases, newer
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.bounds import ABOVE, BELOW, Bound, overlap, window_bounds
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.values import CursorSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.source import Access, Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.cursor.spec import TableSource
    from airflow_provider_scope.sources.cursor.state import CursorState
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import Window


def of_run(spec: TableSource | JdbcSource, ingest: Ingest, log: CheckpointLog, access: Access) -> CursorRows:
    """Return the rows of a run."""
    return CursorRows(
        spec=spec,
        log=log,
        window=ingest.window,
        loads_once=ingest.write == "append",
        replaces_part=isinstance(ingest.write, Replace) and ingest.write.where is not None,
        storage=access.store(spec.folders[0]).storage if spec.folders else None,
        is_unchanged=partial(_is_unchanged, spec, access) if isinstance(spec, JdbcSource) else None,
    )


def _is_unchanged(spec: JdbcSource, access: Access, state: CursorState, first: Bound | None) -> bool:
    """Ask a database whether it has no row that the next load would take; False if it does not tell."""
    if "sessionInitStatement" in (spec.options or {}):
        return False  # it may say what the table's name means
    rows_of = databases.rows_of(spec.table, spec.query)
    query = newer.question(access.database_kind(spec.conn_id), rows_of, spec.cursor, state, first)
    rows = access.database_rows(spec.conn_id, *query) if query else None
    return rows is not None and newer.are_known(rows, spec.cursor, state)


class _Table(NamedTuple):
    """A Delta table, as a look at its log shows it; nothing of this is known of a database."""

    id: str | None = None
    version: int | None = None
    maps_columns: bool = False
    """Whether its files name its columns otherwise."""
    is_text: bool | None = None
    """Whether the cursor's column holds text; None if that is not known."""


@dataclass(kw_only=True)
class CursorRows(Source):
    """The rows of a table or a database by a cursor."""

    kind: ClassVar[str] = CursorSlice.kind
    begins_after: ClassVar[str] = "set cursor.initial_value to a value after its rows"
    spec: TableSource | JdbcSource
    """What the user wrote, with the canonical URI of a table's folder."""
    log: CheckpointLog
    window: Window | None = None
    """The interval whose rows are taken; None takes those that the user's own bounds name."""
    loads_once: bool = True
    """Whether a range that was loaded is not loaded again: its rows would be added twice."""
    replaces_part: bool = False
    """Whether each run replaces the rows of a predicate: the state is of the others, too."""
    storage: Storage | None = None
    """Where the Delta table is; None for a database."""
    is_unchanged: Callable[[CursorState, Bound | None], bool] | None = None
    """Asks a database whether it has no row that the next load would take; None if it cannot be asked."""
    newest: _Table = field(default=_Table(), init=False)
    began: int = field(default=0, init=False)
    """The first entry that can be logged after the table was read."""

    @property
    def table(self) -> str:
        """What is read, for people."""
        return self.spec.rows_of

    @property
    def is_pinned(self) -> bool:
        return self.storage is not None

    @property
    def column(self) -> str:
        return self.spec.cursor.column

    @property
    def sees_table(self) -> bool:
        """Whether the cursor sees the rows of the table, and not those that a SELECT makes of them."""
        return self.spec.pre_filter_sql is None

    @property
    def bounds(self) -> tuple[Bound | None, Bound | None]:
        """The value at which reading begins, and the one at which it ends."""
        return window_bounds(self.window) if self.window else self.spec.cursor.bounds

    @property
    def first(self) -> Bound | None:
        return self.bounds[0]

    @property
    def end(self) -> Bound | None:
        return self.bounds[1]

    @property
    def interval(self) -> str | None:
        return self.window.name if self.window else None

    @property
    def says_from_when(self) -> bool:
        # An interval does not: rows of others may be of it, too.
        return self.window is None and self.first is not None

    def begin_report(self, now_ms: int) -> RunReport:
        return RunReport(roots=(self.table,), now_ms=now_ms)

    def check(self, entry: OffsetEntry) -> None:
        """Refuse an entry whose state cannot be read."""
        cursor_state.decode(entry.slice.before, f"batch {entry.seq} of {self.log.location}")

    def check_not_loaded_before(self, log: CheckpointLog, audit: AuditFiles) -> None:  # noqa: ARG002
        """Refuse to begin an interval that ``mode="incremental"`` has loaded already.

        Each of its batches counts: the initial value of a later one says nothing of what was loaded before.
        """
        logged = log.logged()
        if not logged or self.window is None:
            return
        begin = log.offset(logged[-1]).overwrite_start or 0
        for seq in range(max(begin, logged[0]), logged[-1] + 1):
            batch = log.offset(seq).slice
            if not isinstance(batch, CursorSlice):
                continue
            state = cursor_state.decode(batch.before or _state_after(log, seq), log.location)
            ends = _ends(batch)
            if batch.column.lower() != self.column.lower():
                ends = BELOW, ABOVE  # the values of one column say nothing of those of another
            elif state and state.func == "min" and not batch.end:
                ends = BELOW, ABOVE  # once it is begun, such a load could not go on
            if not _share_time(ends, self.window) or not _counts(log, seq):
                continue
            raise InputError(
                f'Rows of the interval {self.window.name} were loaded before, by mode="incremental" '
                f"({log.location}, batch {seq}): they would be in the table twice.",
                kept="the table and all records; nothing was written",
                do="load intervals that end before the initial values of all batches of that load, and "
                "share no time with its ranges. To load these rows again, use write=Replace(where=…) with "
                "the interval's rows",
            )

    def state_after(self, entry: OffsetEntry) -> None:
        """Check that the table is the one of a batch; only the rows of the batch tell the state after it.

        :raises CursorError: It is another table, or lacks the version.
        """
        batch: CursorSlice = entry.slice  # type: ignore[assignment] # as its kind says
        if self.newest.version is None:
            return
        if batch.source != self.newest.id:
            raise cursor_state.recreated(self.table, self.newest.id, batch.source)
        if (version := batch.version or 0) > self.newest.version:
            why = f"the table's newest version is {self.newest.version}"
            raise cursor_state.unreadable(entry.seq, version, self.table, why)

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:  # noqa: ARG002 - a protocol
        """Read the id and the newest version of the table.

        :raises SourceNotFoundError: There is no table.
        """
        self.began = view.next_seq
        if self.storage:
            self.newest = self._read_table(self.storage)

    def _read_table(self, storage: Storage) -> _Table:
        with open_source(self.table, storage) as table:
            metadata, schema = table.delta.metadata(), table.delta.schema()
            mapping = metadata.configuration.get("delta.columnMapping.mode")
            kind = next((c.type for c in schema.fields if c.name.lower() == self.column.lower()), None)
            return _Table(
                id=str(metadata.id),
                version=table.delta.version(),
                maps_columns=mapping not in (None, "none"),
                is_text=kind == PrimitiveType("string") if kind and self.sees_table else None,
            )

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> OneSlice:
        """Return the next slice, if there may be rows in it.

        :raises CursorError: The state is one of another table, or of another column; or a range that is added
            has rows of one that was.
        """
        before = None if refresh and not (self.end and self.replaces_part) else view.state
        state = cursor_state.decode(before, self.log.location)
        has_none = not refresh and self._has_none(state, view, report)
        return OneSlice(None if has_none else self._slice(before))

    def _has_none(self, state: CursorState | None, view: LogView, report: RunReport) -> bool:
        """Return whether the next slice would hold no row; the report then says why."""
        if self.end:
            return self._is_loaded(view, report)
        cursor_state.check_column(state, self.spec.cursor, self.log.location)
        if self.loads_once and (state is None or not state.reached):
            self._check_overlap(view, max(view.overwrite_start or 0, self.log.vacuumed_below()))
        if state is None or state.more:
            return False
        if self.storage:
            return self._is_table_loaded(state, self.storage, report)
        if self._is_logged(view, self.began):
            return True  # where the database cannot tell, only a batch that reads it can
        if not (self.sees_table and self.is_unchanged and self.is_unchanged(state, self.first)):
            return False
        report.nothing = f"0 rows: nothing new in {self.table}"
        return True

    def _is_table_loaded(self, state: CursorState, storage: Storage, report: RunReport) -> bool:
        """Return whether the table's log alone shows that no version since the state has a new row."""
        if (state.version or 0) > (self.newest.version or 0):
            # A run that read the table later may have loaded a newer version.
            self.newest = self._read_table(storage)
        self._check_same(state)
        version = self.newest.version
        if state.version == version:
            report.nothing = f"0 rows: version {version} of {self.table} is loaded"
            return True
        report.nothing = f"0 rows: nothing newer in version {version} of {self.table}"
        if not self.sees_table or self.newest.maps_columns or state.version is None or version is None:
            return False
        if version - state.version > newer.COMMITS:
            return False
        versions = range(state.version + 1, version + 1)
        try:
            commits = [read_commit(self.table, number, storage) for number in versions]
        except (StorageError, ValueError):
            return False  # too large, or not for us: whoever reads the rows will tell
        existing = [commit for commit in commits if commit is not None]
        cursor = self.spec.cursor
        return len(existing) == len(commits) and newer.holds_none(existing, cursor, state, self.first)

    def _is_loaded(self, view: LogView, report: RunReport) -> bool:
        """Return whether the range was loaded, and may not be loaded again."""
        report.nothing = "0 rows: the range was loaded before; to load it again use Replace(where=…) or Merge"
        begin = max(view.overwrite_start or 0, self.log.vacuumed_below()) if self.loads_once else self.began
        if self._is_logged(view, begin):
            return True
        if self.loads_once:
            self._check_overlap(view, begin)
        return False

    def _check_overlap(self, view: LogView, begin: int) -> None:
        """Refuse rows that were loaded: those of a range, or all from a first value on."""
        is_rising, planned = self.spec.cursor.is_rising, self._slice(None)
        ends = _ends(planned, is_rising=is_rising)
        is_purged = begin > (view.overwrite_start or 0)
        for seq, batch in self._slices(view, begin):
            if not batch.end and (not planned.end or not (is_purged or self._begins(batch))):
                continue
            loaded = _ends(batch, is_rising=is_rising) if self._is_alike(seq, batch) else (BELOW, ABOVE)
            begin_there = ""
            if not planned.end:
                bound = _begins_behind(loaded, is_rising=is_rising)
                begin_there = f", with {bound}; if a RESTORE removed these rows, with full_refresh=True"
            if overlap(ends, loaded, is_text=self.newest.is_text) and _counts(self.log, seq):
                raise CursorError(
                    f"The range {_shown(ends)} overlaps that {_shown(loaded)}, which batch {seq} loads: rows "
                    "in both would be in the table twice.",
                    kept="the table and all records; nothing was written",
                    do=f"load ranges that begin where others end{begin_there}; or use Merge, or "
                    "Replace(where=…) with the range's rows",
                )

    def _begins(self, batch: CursorSlice) -> bool:
        """Return whether a batch takes rows from its first value on, and not from those loaded before."""
        state = cursor_state.decode(batch.before, self.log.location)
        return state is None or not state.reached or state.per is not None

    def _is_alike(self, seq: int, batch: CursorSlice) -> bool:
        """Return whether a load without an end goes the same way as this one."""
        state = cursor_state.decode(batch.before or _state_after(self.log, seq), self.log.location)
        return bool(batch.end) or state is None or state.func == self.spec.cursor.last_value_func

    def _is_logged(self, view: LogView, begin: int) -> bool:
        """Return whether an entry from ``begin`` on, of any run, is of this range, and was not abandoned."""
        of_range = (
            seq for seq, loaded in self._slices(view, begin) if (loaded.first, loaded.end) == self._range()
        )
        return any(_counts(self.log, seq) for seq in of_range)

    def _slices(self, view: LogView, begin: int) -> Iterator[tuple[int, CursorSlice]]:
        """Return the slices of this column in the log entries from ``begin`` on, the newest first.

        Of an interval those of all columns: it was loaded, by whatever column.
        """
        for seq in range(view.next_seq - 1, begin - 1, -1):
            logged = self.log.offset(seq).slice
            if isinstance(logged, CursorSlice) and (
                self.window or logged.column.lower() == self.column.lower()
            ):
                yield seq, logged

    def _range(self) -> tuple[str | None, str | None]:
        return self.first and self.first.encode(), self.end and self.end.encode()

    def _slice(self, before: str | None) -> CursorSlice:
        return CursorSlice(before, self.column, *self._range(), self.newest.id, self.newest.version)

    def _check_same(self, state: CursorState) -> None:
        table_id, version = self.newest.id, self.newest.version
        # Of a table that was read by a name in a catalog, no id is known.
        if state.source in (None, table_id) and (state.version or 0) <= (version or 0):
            return
        raise CursorError(
            f"The table {self.table} is not the one that was loaded before: its id is {table_id}, version "
            f"{version}; the last load read {state.source}, version {state.version}.",
            kept="the table and all records; nothing was written",
            do="bring back the table that was loaded before; or run the task once with full_refresh=True",
        )


def _ends(batch: CursorSlice, *, is_rising: bool = True) -> tuple[Bound, Bound]:
    """Return the ends of the rows that a batch, and those that go on after it, may load."""
    far = (BELOW, ABOVE) if is_rising else (ABOVE, BELOW)
    first, end = ((Bound.decode(text) if text else None) for text in (batch.first, batch.end))
    return first or far[0], end or far[1]


def _share_time(ends: tuple[Bound, Bound], window: Window) -> bool:
    """Return whether an interval has, or may have, rows between two bounds of the same column."""
    values = [end for end in ends if end not in (BELOW, ABOVE)]
    kinds = {end.kind for end in values[:1]}
    if values and all(end.kind == "text" and len(end.text) == len("2026-01-31") for end in values):
        kinds.add("date")  # only the column tells
    return any(overlap(ends, window_bounds(window, kind)) is not False for kind in kinds or ("",))


def _shown(ends: tuple[Bound, Bound]) -> str:
    first, end = (None if bound in (BELOW, ABOVE) else bound.text for bound in ends)
    if first is None:
        return "of all rows"
    return f"from {first} on" if end is None else f"from {first} to {end}"


def _begins_behind(loaded: tuple[Bound, Bound], *, is_rising: bool) -> str:
    """Say how a load without an end begins after a range."""
    first, end = loaded
    is_reverse = first.kind == end.kind and first.beyond(end, "max" if is_rising else "min")
    last = first if is_reverse else end
    value = last.text if last.kind == "number" else repr(last.text)
    is_loaded = not first.side if is_reverse else end.side == "closed"
    return f"cursor.initial_value={value}" + (', range_start="open"' if is_loaded else "")


def _state_after(log: CheckpointLog, seq: int) -> str | None:
    record = log.find_commit(seq)
    return record.state if record else None


def _counts(log: CheckpointLog, seq: int) -> bool:
    """Return whether an entry was not abandoned."""
    record = log.find_commit(seq)
    return record is None or not record.abandoned
