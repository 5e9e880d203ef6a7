"""Run the batches of a plan, in order, each in one Delta transaction that carries its number."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from airflow_provider_scope.core import plan as plans
from airflow_provider_scope.core import records, recovery, settings
from airflow_provider_scope.core.files import TEXT_FORMATS
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    ScopeProviderError,
    SparkJobFailedError,
    SqlError,
    TableDivergedError,
)
from airflow_provider_scope.spark import files
from airflow_provider_scope.spark import records as records_of_files
from airflow_provider_scope.spark.bad_files import check_suspicion, hint_for, place_of, unread
from airflow_provider_scope.spark.causes import short_cause, unread_file, whole_text
from airflow_provider_scope.spark.reading import select
from airflow_provider_scope.spark.target import ConcurrentCommitError, Target

_T = TypeVar("_T")

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry

TRIES = 3
"""How often a batch is tried when another writer's commit gets in between."""


def main(arguments: list[str]) -> int:
    """Run the plan whose path is given; report by events on standard output."""
    spark = SparkSession.builder.getOrCreate()
    try:
        run(spark, plans.decode(files.read(spark, arguments[0])))
    except ScopeProviderError as err:
        _emit(event="failed", error=type(err).__name__, what=err.what, kept=err.kept, do=err.do)
        return 1
    except Exception as err:  # the boundary of the process: whatever it is becomes the reported cause
        failure = as_error(err)
        _emit(
            event="failed", error=type(failure).__name__, what=failure.what, kept=failure.kept, do=failure.do
        )
        raise
    finally:
        spark.stop()
    return 0


def run(spark: SparkSession, plan: Plan) -> None:
    """Run the batches of a plan; stop at the first that fails.

    While a batch is written, Spark looks at the files of the next one. Commits stay in order.
    """
    make_exact(spark)
    _emit(event="started")
    target = Target(spark, plan)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        upcoming = _read_ahead(ahead, spark, plan, 0)
        for index, seq in enumerate(plan.batches):
            entry, rows = upcoming
            if index + 1 < len(plan.batches):
                upcoming = _read_ahead(ahead, spark, plan, index + 1)
            began = time.monotonic()
            version = run_batch(plan, target, entry, rows)
            seconds = time.monotonic() - began
            _emit(event="batch", seq=seq, files=len(entry.files), version=version, seconds=seconds)
            if version is not None and target.told:
                _emit(event="columns", seq=seq, told=target.told)


def make_exact(spark: SparkSession) -> None:
    """Set in a session what may not be left to the defaults of whoever runs it."""
    for name, setting in settings.EXACT.items():
        spark.conf.set(name, setting.value)


def _read_ahead(
    ahead: ThreadPoolExecutor, spark: SparkSession, plan: Plan, index: int
) -> tuple[OffsetEntry, Callable[[], DataFrame]]:
    """Give a batch, and its rows for when they are asked for: what cannot be read fails then."""
    seq = plan.batches[index]
    name = f"{plan.checkpoint}/offsets/{seq:020}"
    entry = records.decode_offset(name, files.read(spark, name), seq)
    if plan.fence:
        return entry, lambda: select(spark, plan, entry)
    return entry, ahead.submit(select, spark, plan, entry).result


def run_batch(plan: Plan, target: Target, entry: OffsetEntry, rows: Callable[[], DataFrame]) -> int | None:
    """Commit one batch unless it is in the table; give the version, or None if it was there.

    :param rows: Gives the rows of the user's SELECT; not asked if the batch is not to be written.
    :raises TableDivergedError: The predecessor is not in the table: committing now would make Delta
        skip the predecessor's rows silently, for good.
    """
    for _ in range(TRIES):
        newest = target.newest_transaction()
        if newest is not None and newest >= entry.seq:
            return None
        if not plan.fence and not recovery.may_run(entry, newest):
            raise TableDivergedError(
                f"Batch {entry.seq} cannot run: the table {plan.table} holds batch {newest} as its newest, "
                f"not {recovery.predecessor(entry)}.",
                kept="the table, the log and all files",
                do="the next try reads the log and the table again; if it comes back, run `airflow scope "
                "status`",
            )
        try:
            if plan.fence:
                return target.fence(entry)
            return _write(plan, target, entry, rows)
        except ConcurrentCommitError:
            continue  # look at the table again: it may have been this very batch
    raise BatchNotInTableError(
        f"Batch {entry.seq} could not be committed to {plan.table}: another writer committed in between, "
        f"{TRIES} times.",
        kept="the table and the log; the batch stays logged",
        do="the next try runs it again; keep ALTER, OPTIMIZE and other writers out of the run's time",
    )


def _write(plan: Plan, target: Target, entry: OffsetEntry, rows: Callable[[], DataFrame]) -> int | None:
    try:
        frame = rows()
    except (PySparkException, Py4JJavaError) as err:
        fault = _fault(entry, err)
        if fault is None:
            raise
        raise fault from err
    finally:
        # Behind Spark's own look, because what it saw is what it reads; a file that is gone is told by name.
        files.check_unchanged(target.spark, entry)
    if plan.source_format in TEXT_FORMATS:
        files.check_bzip2(target.spark, entry)
    version = read_by(target.spark, plan, entry, frame, lambda found: target.write(entry, found))
    if version is not None:
        files.check_was_unchanged(target.spark, entry, version)
    return version


def read_by(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, frame: DataFrame, act: Callable[[DataFrame], _T]
) -> _T:
    """Do what reads the rows of a batch, and tell why it failed.

    :param frame: The rows of the user's SELECT.

    :raises BadRecordError: A record does not have the declared columns, or a value of another type.
    :raises BadFileError: A file is not what the source says.
    """
    trusted: frozenset[str] = frozenset()
    while True:
        try:
            return act(frame)
        except (PySparkException, Py4JJavaError) as err:
            found = records_of_files.bad_record(whole_text(err))
            if found is None:
                fault = _fault(entry, err)
                if fault is None:
                    raise
                raise fault from err
            if found.rule not in records_of_files.SUSPICIONS:
                raise found.error(place_of(entry, found.file), hint_for(plan, found)) from err
            check_suspicion(spark, plan, entry, found)
        # What was suspected is in the files as such.
        trusted |= {found.rule}
        frame = select(spark, plan, entry, trusted=trusted)


def _fault(entry: OffsetEntry, err: Exception) -> ScopeProviderError | None:
    """Give the error for a file that is surely at fault for a failure of Spark; None if none is."""
    failed = unread_file(err)
    return unread(entry, *failed) if failed else None


def as_error(err: Exception) -> ScopeProviderError:
    """Give the error for whatever Spark raised, with its cause in one or two lines."""
    cause = short_cause(err)
    if isinstance(err, (AnalysisException, ParseException)):
        return SqlError(
            f"The SQL does not work on the files of the batch: {cause}",
            kept="the batches before it; this one wrote no row and stays logged",
            do="mend `sql` (or `columns`); the next run takes the batch with the mended SQL",
        )
    return SparkJobFailedError(
        f"The Spark application failed: {cause}",
        kept="the batches before it; this one stays logged",
        do="the next try runs it again",
    )


def _emit(**event: Any) -> None:
    sys.stdout.write(plans.EVENT + json.dumps(event) + "\n")
    sys.stdout.flush()
