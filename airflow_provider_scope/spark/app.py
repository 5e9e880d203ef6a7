"""Run the batches of a plan, in order, each in one Delta transaction that carries its number."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from airflow_provider_scope.core import plan as plans
from airflow_provider_scope.core import records, settings
from airflow_provider_scope.core.failures import kind_of, passing_advice
from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SparkJobFailedError,
    SqlError,
)
from airflow_provider_scope.spark import change_slice, cursor_slice, file_slice, files, inference, log_store
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.imports import leave_out_numpy
from airflow_provider_scope.spark.problems import KEPT
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.spark.transaction import commit_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.transaction import Transaction


WAITS_SECONDS = 120.0
"""How long it waits for the next plan; a worker that died writes none."""


def main(arguments: list[str]) -> int:
    """Run the plan whose path is given; report by events on standard output.

    With a second argument it then waits for further plans, until one has no batches.
    """
    leave_out_numpy()
    path, *more = arguments
    spark = SparkSession.builder.getOrCreate()
    try:
        log_store.load(spark)
        run(spark, plans.decode(files.read(spark, path)))
        for number in itertools.count(1) if more else ():
            emit(event="waiting")
            plan = _awaited(spark, plans.path(path, number))
            if plan is None or not plan.batches:
                break
            run(spark, plan)
    except ScopeProviderError as err:
        emit(event="failed", error=type(err).__name__, what=err.what, kept=err.kept, do=err.do)
        return 1
    except Exception as err:  # the boundary of the process: whatever it is becomes the reported cause
        failure = as_error(err)
        emit(
            event="failed", error=type(failure).__name__, what=failure.what, kept=failure.kept, do=failure.do
        )
        raise
    finally:
        spark.stop()
    return 0


def _awaited(spark: SparkSession, path: str) -> Plan | None:
    """Read a plan as soon as it is there; None if it does not come."""
    deadline = time.monotonic() + WAITS_SECONDS
    while time.monotonic() < deadline:
        try:
            return plans.decode(files.read(spark, path))
        except FileNotFoundError:
            time.sleep(0.05)
    return None


def run(spark: SparkSession, plan: Plan) -> None:
    """Run the batches of a plan; stop at the first that fails.

    While a batch is written, Spark looks at the files of the next one. Commits stay in order. But columns
    that are to be inferred are not known before a batch with them is in the table, whoever committed it.
    """
    make_exact(spark)
    if not isinstance(plan.source, plans.FilesPlan):
        for name, value in settings.OF_TABLES.items():
            spark.conf.set(name, value)
    emit(event="started")
    target = Target(spark, plan)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        upcoming = _read_ahead(ahead, spark, plan, 0)
        for index, seq in enumerate(plan.batches):
            entry, rows = upcoming
            is_last = index + 1 == len(plan.batches)
            if not is_last and not _has_to_infer(plan):
                upcoming = _read_ahead(ahead, spark, plan, index + 1)
            began = time.monotonic()
            version = run_batch(plan, target, entry, rows)
            seconds = time.monotonic() - began
            emit(event="batch", seq=seq, what=_what(plan, entry), version=version, seconds=seconds)
            if version is not None and target.told:
                emit(event="columns", seq=seq, told=target.told)
            if not is_last and _has_to_infer(plan):
                plan = inference.pinned(plan, target.log)
                upcoming = _read_ahead(ahead, spark, plan, index + 1)


def _what(plan: Plan, entry: OffsetEntry) -> str:
    """Name what a batch holds, on one line."""
    count = len(entry.slice.audited)
    text = ("1 file" if count == 1 else f"{count:,} files") if count else entry.slice.text()
    return f"an empty commit in place of {text}" if plan.fence else text


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
    if plan.fence or _has_to_infer(plan) or _is_of_database(plan):
        return entry, lambda: _reader(entry).select(spark, plan, entry)
    return entry, ahead.submit(_reader(entry).select, spark, plan, entry).result


def _has_to_infer(plan: Plan) -> bool:
    return isinstance(plan.source, plans.FilesPlan) and plan.source.has_to_infer


def run_batch(plan: Plan, target: Target, entry: OffsetEntry, rows: Callable[[], DataFrame]) -> int | None:
    """Commit one batch unless it is in the table; give the version, or None if it was there.

    :param rows: Gives the rows of the user's SELECT; not asked if the batch is not to be written.
    :raises TableDivergedError: The predecessor is not in the table.
    """
    if plan.fence and not plan.empties:
        # The log may say "overwrite" of a batch whose number is all that the table has to be told.
        entry = replace(entry, mode="append", where=None)

    def attempt(transaction: Transaction) -> int | None:
        for quarantine in target.quarantines:
            quarantine.clear(entry)
        if plan.fence:
            return target.fence(transaction)
        return _reader(entry).commit(plan, target, transaction, rows)

    return commit_once(plan, target.log, entry, attempt)


def _is_of_database(plan: Plan) -> bool:
    return isinstance(plan.source, plans.CursorPlan) and plan.source.database is not None


class _Reader(Protocol):
    """Reads one kind of slice."""

    def select(self, spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
        """Give the rows of the user's SELECT over the slice."""

    def commit(
        self, plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]
    ) -> int | None:
        """Commit these rows; give the table's version, or None if the batch was there."""


_READERS: dict[str, _Reader] = {"files": file_slice, "cursor": cursor_slice, "versions": change_slice}


def _reader(entry: OffsetEntry) -> _Reader:
    """Give what reads the slice of an entry: kinds of slices are told apart here alone."""
    return _READERS[entry.slice.kind]


def as_error(err: Exception) -> ScopeProviderError:
    """Give the error for whatever Spark raised, with its cause in one or two lines."""
    cause = short_cause(err)
    kind = kind_of(whole_text(err))
    if kind == "not seen":
        return SparkJobFailedError(
            f"Spark does not see a path that exists, or existed, on the worker: {cause}",
            kept=KEPT,
            do="give Spark's machines the same disks under the same paths; if the name is not ASCII, set "
            "LC_ALL=C.UTF-8 for them. The next try runs it again",
        )
    if kind == "setting":
        return InputError(
            f"Spark does not accept a setting: {cause}",
            kept=KEPT,
            do="correct `options` of the source, or `conf`, `packages` or `jars` of the engine; the next "
            "run loads the batch with them",
        )
    if kind == "sql" or isinstance(err, (AnalysisException, ParseException)):
        return SqlError(
            f"The SQL fails on the rows of the batch: {cause}",
            kept=KEPT,
            do="correct `sql` (or `columns`, or `options`); the next run loads the batch with them",
        )
    return SparkJobFailedError(
        f"The Spark application failed: {cause}",
        kept="the batches before it; this one stays logged",
        do=passing_advice(cause),
    )
