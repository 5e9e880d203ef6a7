"""The writes without Airflow: one load of rows, in a Spark session of the caller's own.

It is one run of the same loop as the operator's (``docs/exactly_once.md``), with a log beside the table. Its
batch holds rows that only the caller has: a load that died is not run again, the next one gives it up.
"""

from __future__ import annotations

import json
import os
import reprlib
import uuid
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import DataFrame

from airflow_provider_scope.delta.schema import TableSpec
from airflow_provider_scope.delta.write_rules import Replace
from airflow_provider_scope.engines.clock import now_ms
from airflow_provider_scope.exceptions import BatchNotInTableError, InputError
from airflow_provider_scope.protocol import recovery, repair
from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.engine import Engine
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import OneSlice, Request, Source
from airflow_provider_scope.python_rows import to_dataframe
from airflow_provider_scope.sources.cursor.spec import TableSource
from airflow_provider_scope.spark import log_stores
from airflow_provider_scope.spark.commit import commit_once
from airflow_provider_scope.spark.cursor import Reading, reading_of
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.settings import EXACT, OF_READING
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.specs import capabilities
from airflow_provider_scope.specs.write import for_plan, warning_of, write_from
from airflow_provider_scope.stores.protocol import canonical_uri, open_storage
from airflow_provider_scope.values import CursorSlice, RowSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.recovery import Baseline, TableState
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.cursor.spec import Cursor
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.specs.write import Write

NOTHING = "everything; nothing was written"
_ZONE = "spark.sql.session.timeZone"
_CALLERS = "caller"
"""The key of the caller's state in a record: that of a cursor is never named so."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did."""

    version: int
    """The table's version with the rows."""
    inserted: int
    updated: int
    """With ``Scd2``: versions that were retired."""
    deleted: int
    state: Any
    """The caller's state, as the table has it now."""


def load(  # the arguments are the API
    spark: SparkSession,
    data: DataFrame | Iterable[Any],
    target: str | os.PathLike[str],
    write: Write | str = "append",
    *,
    cursor: Cursor | None = None,
    schema: str | None = None,
    now: datetime | None = None,
    full_refresh: bool = False,
    state: Any = None,
) -> LoadResult:
    """Write rows into a Delta table by one of the operator's writes, in one commit.

    Columns and wider types that the table does not have are added to it. Two loads of a table at the same
    time are safe; the one that another one overtakes fails. In one session, one load waits for the other.

    :param data: A DataFrame, or rows: dictionaries, ``Row``, named tuples, dataclasses, tuples or lists. It
        is read once; a DataFrame again if another writer commits to the table meanwhile.
    :param target: The table's folder, on a disk of this machine; it need not exist. The log is in its
        ``_checkpoint``.
    :param write: ``"append"``, ``"replace"``, ``Replace(where=…)``, ``Merge(…)`` or ``Scd2(…)``.
    :param cursor: Write only the rows of ``data`` that are new by a column, as the operator does with a
        ``TableSource``; what is known of them is the state.
    :param schema: The columns of ``data`` as Spark's DDL, if they are rows.
    :param now: An aware datetime: the instant of ``Scd2``. None is when the rows are written.
    :param full_refresh: Replace all rows of the table, and forget the state.
    :param state: Anything that JSON can say: it is committed with the rows, or not at all. A function takes
        the state before the load, and gives the new one. None keeps the old one.
    :raises InputError: An argument is not valid, or the rows do not fit; nothing was written.
    :raises ScopeProviderError: See ``exceptions``.
    """
    if isinstance(data, DataFrame):
        spark = data.sparkSession  # where they are written; in foreachBatch it is another one
    spec = write_from(write)
    if warning := warning_of(spec):
        warnings.warn(warning, stacklevel=2)
    _check_arguments(now, cursor, state)
    if cursor is not None and isinstance(spec, Replace) and spec.where is not None:
        raise InputError(
            "With Replace(where=…), the cursor would forget all rows that are not of that part.",
            kept=NOTHING,
            do="leave cursor out: the rows of data replace the part, and the cursor's state stays. Rows that "
            "are newer than the state are new to the next load with the cursor",
        )
    # What the operator refuses of these: a cursor or a range that would take the place of all rows.
    together = {"write": spec, "full_refresh": full_refresh}
    source = None if cursor is None else TableSource(table=os.fspath(target), cursor=cursor)
    capabilities.check(capabilities.TOGETHER, {**together, "source": source})
    table = canonical_uri(os.fspath(target))
    log_stores.use(spark, table)
    log = CheckpointLog(open_storage(table), f"{table}/_checkpoint")
    replaces = isinstance(spec, Replace)
    where = spec.where if isinstance(spec, Replace) else None
    # What may not be left to the caller's session; but how a DataFrame reads files, only the caller knows.
    callers = OF_READING if isinstance(data, DataFrame) else ()
    exact = {name: setting.value for name, setting in EXACT.items() if name not in callers}
    with Address(table=table).completes_errors(), _lock_of(spark), ExitStack() as block:
        if isinstance(data, DataFrame) and spark.conf.get(_ZONE) != exact[_ZONE]:
            data = _planned(spark, data)
        block.enter_context(with_settings(spark, exact | log_stores.session_settings(spark, table)))
        forgets = full_refresh or (replaces and cursor is not None)
        engine = _Session(spark, _rows(spark, data, schema), spec, now, log, state, cursor, forgets=forgets)
        audit = AuditFiles(log, compaction_interval=10, retention_files=100)
        execution = MicroBatchExecution(
            log, audit, _Rows(engine.load_id), engine, now_ms=now_ms, new_id=lambda: str(uuid.uuid4())
        )
        refresh = full_refresh or replaces
        if not forgets:
            _check_owner(_text_of_state(log, table), table, cursor, state)
        if not (refresh and where is None):
            _abandon_open(log, audit, engine, table)
        report = execution.run(Request(table=table, max_batches=1, refresh=refresh, where=where))
    record = _record_of(report, engine.load_id, table)
    changes = record.changes or {"inserted": record.rows or 0}
    return LoadResult(
        record.table_version,
        changes.get("inserted", 0),
        changes.get("updated", 0),
        changes.get("deleted", 0),
        _decoded(_text_of_state(log, table)),
    )


def _check_arguments(now: datetime | None, cursor: Cursor | None, state: Any) -> None:
    if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
        raise InputError(
            f"now={now!r} is not a datetime with a time zone.",
            kept=NOTHING,
            do="give one, such as datetime(2026, 1, 31, tzinfo=UTC); datetime.fromisoformat reads text",
        )
    if cursor is not None and state is not None:
        raise InputError(
            "With a cursor, the state is the cursor's.", kept=NOTHING, do="leave one of the two out"
        )
    if not callable(state):
        _encoded(state)


def _record_of(report: RunReport, load_id: str, table: str) -> CommitRecord:
    """Return the record of a load's batch.

    :raises BatchNotInTableError: Another load has abandoned it, or replaced all rows, in the meantime.
    """
    slice_text = RowSlice(load_id).text()
    for batch in report.batches:
        if batch.slice_text == slice_text and not batch.record.abandoned:
            return batch.record
    raise BatchNotInTableError(
        f"Another load of {table} overtook this one, which was not committed.",
        kept="the rows of the other load; none of this one are in the table",
        do="load again; one load after the other is not overtaken",
    )


def _abandon_open(log: CheckpointLog, audit: AuditFiles, engine: _Session, table: str) -> None:
    """Abandon what a load that died has logged: its rows are gone with it."""
    for entry in log.open_entries():
        if entry.slice.kind != RowSlice.kind:
            return  # a batch of the operator: the run refuses the log
        if entry.overwrites_table:
            raise InputError(
                f"A load that was to replace all rows of {table} was interrupted, as batch {entry.seq}.",
                kept=NOTHING,
                do="load once with full_refresh=True",
            )
        repair.abandon(log, audit, engine, table, entry.seq, now_ms=now_ms)


def _is_callers(state: Any) -> bool:
    return isinstance(state, dict) and state.keys() == {_CALLERS}


def _decoded(text: str | None) -> Any:
    """Return the state that a record has: the caller's, or its cursor's as it is stored."""
    state: Any = None if text is None else json.loads(text)
    return state[_CALLERS] if _is_callers(state) else state


def _encoded(state: Any) -> str:
    """Return the caller's state as a record has it.

    :raises InputError: JSON does not hold it, or gives another value back.
    """
    try:
        text = json.dumps({_CALLERS: state}, ensure_ascii=False, allow_nan=False)
        text.encode()
        is_same, why = json.loads(text)[_CALLERS] == state, "it would come back as another value"
    except (TypeError, ValueError, RecursionError) as err:
        is_same, why = False, str(err)
    if is_same:
        return text
    raise InputError(
        f"The state {reprlib.repr(state)} cannot be kept as JSON: {why}.",
        kept="the table; no row was written",
        do="give None, booleans, finite numbers, text, and lists of these or dictionaries by text",
    )


def _check_owner(text: str | None, table: str, cursor: Cursor | None, state: Any) -> None:
    """Refuse to put a state of the caller's in place of a cursor's, or to read one as a cursor's.

    :param text: The state that is committed.
    :raises InputError: As said.
    """
    if text is None:
        return
    is_callers = _is_callers(json.loads(text))
    if is_callers and cursor is not None:
        owner = "the caller's (state=), and says nothing of which rows a cursor has loaded"
    elif not is_callers and state is not None:
        owner = "its cursor's, and state= would replace it"
    else:
        return
    raise InputError(
        f"The state of {table} is {owner}.",
        kept=NOTHING,
        do=f"leave {'cursor' if is_callers else 'state'} out, or load into another table; or replace all "
        "rows and forget the state, with full_refresh=True",
    )


def _text_of_state(log: CheckpointLog, table: str) -> str | None:
    """Read the state of the rows that the table has; what was abandoned never counted.

    :raises InputError: A RESTORE was accepted, and the table's log does not tell to which state.
    """
    numbers, accepted = log.committed(), log.newest_acceptance()
    newest = next((record for seq in reversed(numbers) if not (record := log.commit(seq)).abandoned), None)
    if newest is None or accepted is None or newest.seq > accepted.after_commit:
        return newest.state if newest else None
    records = [log.commit(seq) for seq in numbers]
    table_state = probe(table, repair.existing_pipeline(log).pipeline, recovery.NO_BASELINE, log.storage)
    chain = recovery.chain_of(table_state, recovery.recorded_states(records, table_state))
    batch = next((batch for _, batch in reversed(chain.batches) if not batch.abandoned), None)
    if batch is None and chain.bottom.problem:
        raise InputError(
            f"{table} was set back, and its log does not tell to which state.",
            kept=NOTHING,
            do="load once with full_refresh=True",
        )
    return batch.state if batch else chain.bottom.state


def _rows(spark: SparkSession, data: DataFrame | Iterable[Any], schema: str | None) -> DataFrame:
    if not isinstance(data, DataFrame):
        return to_dataframe(spark, data, schema)
    if schema is not None:
        raise InputError("schema is for rows, and data is a DataFrame.", kept=NOTHING, do="leave schema out")
    return data


def _planned(spark: SparkSession, data: DataFrame) -> DataFrame:
    """Let rows be read by the zone that the session has now: CSV and JSON files have times without one."""
    session = spark._jsparkSession
    values, schema = data._jdf.queryExecution().toRdd(), data._jdf.schema()
    return DataFrame(session.internalCreateDataFrame(values, schema, False), spark)  # noqa: FBT003 - Scala's


_locks: dict[str, RLock] = {}


def _lock_of(spark: SparkSession) -> RLock:
    """Return what lets one load after the other have a session, whose settings each of them changes."""
    return _locks.setdefault(str(spark._jsparkSession.sessionUUID()), RLock())


@dataclass
class _Rows(Source):
    """The source of one load: one batch, which holds what the caller gave."""

    load_id: str
    kind: ClassVar[str] = RowSlice.kind
    says_from_when: ClassVar[bool] = True
    """Every load is new: rows of others in the table are no reason to doubt."""

    def begin_report(self, now_ms: int) -> RunReport:
        return RunReport(roots=(), now_ms=now_ms)

    def check(self, entry: OffsetEntry) -> None:
        """Nothing can be wrong with it."""

    def state_after(self, entry: OffsetEntry) -> None:
        """Check nothing: whoever calls `load` has the rows."""

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        """There is nothing to look for."""

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> OneSlice:  # noqa: ARG002
        """Return the batch; a run asks again if another load takes its number."""
        return OneSlice(RowSlice(self.load_id))


@dataclass
class _Session(Engine):
    """The engine of one load: the caller's session."""

    spark: SparkSession
    rows: DataFrame
    write: Write
    now: datetime | None
    log: CheckpointLog
    state: Any
    cursor: Cursor | None
    forgets: bool
    """Whether the load begins as if there were no state."""
    fences_without_table: ClassVar[bool] = True
    load_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        return probe(location, pipeline, baseline, self.log.storage)

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:  # noqa: ARG002
        for entry in entries:
            if entry.slice != RowSlice(self.load_id):
                raise InputError(
                    f"Batch {entry.seq} of {work.table} belongs to another load, and only that load can "
                    "run it.",
                    kept="the table and the log",
                    do="wait until the other load has ended, then load again",
                )
            target = self._target(work, fence=False)
            commit_once(target.plan, target.log, entry, partial(self._write, target))

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        target = self._target(work, fence=True)
        entry = replace(entry, mode="append", where=None)  # what the other load was to replace stays
        commit_once(target.plan, target.log, entry, partial(self._fence, target))

    def _fence(self, target: Target, transaction: Transaction) -> int | None:
        """Close another load's batch; without a table, only the commit that makes it can do that."""
        if target.log.metadata():
            return target.fence(transaction)
        return target.write(transaction, self.rows.limit(0), abandoned=True)

    def _write(self, target: Target, transaction: Transaction) -> int | None:
        if self.cursor is None:
            state = self._state(target.plan.table)
            return target.write(transaction, self.rows, {} if state is None else {"state": state})
        with ExitStack() as block:
            new = self._reading(self.cursor, transaction.entry.seq, target.plan.table).held(block)
            return target.write(transaction, new.rows, {} if new.state is None else {"state": new.state})

    def _reading(self, cursor: Cursor, seq: int, table: str) -> Reading:
        first, end = (bound and bound.encode() for bound in cursor.bounds)
        cursor_slice = CursorSlice(self._before(table), cursor.column, first, end, None, None)
        folder = f"{self.log.location}/boundary/{seq}"
        source = TableSource(table=self.log.location, cursor=cursor)
        return reading_of(source, cursor_slice, folder, self.rows, checkpoint=self.log.location)

    def _before(self, table: str) -> str | None:
        return None if self.forgets else _text_of_state(self.log, table)

    def _state(self, table: str) -> str | None:
        before = self._before(table)
        if callable(self.state):
            state = self.state(_decoded(before))
            return None if state is None else _encoded(state)
        return before if self.state is None else _encoded(self.state)

    def _target(self, work: Work, *, fence: bool) -> Target:
        plan = Plan(
            pipeline=work.pipeline,
            table=work.table,
            checkpoint=work.checkpoint,
            batches=(),
            spec=TableSpec(schema_evolution="widen"),
            write=for_plan(self.write),
            first=work.first,
            fence=fence,
        )
        return Target(self.spark, plan, self.now)
