"""Run the batches of a plan, in order, each in one Delta transaction that carries its number."""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyspark.errors import AnalysisException, ParseException

from airflow_provider_scope.exceptions import (
    InputError,
    MergeKeyError,
    ScopeProviderError,
    SparkJobFailedError,
)
from airflow_provider_scope.failures import kind_of, passing_advice
from airflow_provider_scope.protocol import records
from airflow_provider_scope.sources import PARTS
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.spark import log_stores, rehearsal, server, settings, storage, user_sql
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.commit import commit_once
from airflow_provider_scope.spark.files import inference
from airflow_provider_scope.spark.files.listing import KEPT, NOT_SEEN
from airflow_provider_scope.spark.session import (
    SPARK_ERRORS,
    check_delta,
    copy_events,
    emit,
    leave_out_numpy,
    make_exact,
    short_cause,
    whole_text,
    zone_error,
)
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.plan import Plan


WAITS_SECONDS = 120.0
"""How long it waits for the next plan of a worker that reads its output; one that died writes none."""
WAITS_ON_CLUSTER_SECONDS = 60.0
"""The same where idle executors cost money: the trigger has to look, and Airflow to start a worker."""
LONGEST_PAUSE_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Run the plan whose path is given; report by events on standard output.

    :param arguments: The path; then ``MORE`` to wait for further plans, until one has no batches, and
        ``REPORT`` to write the events of each plan beside it as well.
    """
    leave_out_numpy()
    path, *options = arguments
    with server.opened() as spark:
        try:
            most = WAITS_ON_CLUSTER_SECONDS if plans.REPORT in options else WAITS_SECONDS
            for number in itertools.count() if plans.MORE in options else (0,):
                place = plans.path(path, number)
                if plans.REPORT in options:
                    copy_events(_Copy(spark, plans.events_path(place)).add)
                plan = _awaited(spark, place, most) if number else plans.decode(storage.read(spark, place))
                if plan is None or not plan.batches:
                    break
                run(spark, plan)
                if plans.MORE in options:
                    emit(event="waiting")
        except Exception as err:  # the boundary of the process: whatever it is becomes the reported cause
            error = err if isinstance(err, ScopeProviderError) else as_error(err)
            emit(event="failed", error=error.to_dict())
            if error is not err:
                raise
            return 1
    return 0


class _Copy:
    """The events so far, in a file that is written anew for each: a store appends no lines."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark = spark
        self._uri = uri
        self._lines = ""

    def add(self, line: str) -> None:
        """Write one more; what cannot be written is missing in the task's log, and nowhere else."""
        self._lines += line
        try:
            storage.replace(self._spark, self._uri, self._lines.encode())
        except (OSError, *SPARK_ERRORS) as err:
            sys.stderr.write(f"{self._uri} could not be written: {short_cause(err)}\n")


def _awaited(spark: SparkSession, path: str, seconds: float) -> Plan | None:
    """Wait for a plan, and read it; None if it does not come for so long."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        try:
            return plans.decode(storage.read(spark, path))
        except FileNotFoundError:
            time.sleep(min(0.05 + waited / 10, LONGEST_PAUSE_SECONDS))
    return None


def run(spark: SparkSession, plan: Plan) -> None:
    """Run the batches of a plan; stop at the first that fails.

    While a batch is written, Spark looks at the files of the next one. Commits stay in order. But columns
    that nobody declared are not known before the batches before are in the table, whoever committed them.
    """
    check_delta(spark)
    log_stores.use(spark, plan.table)
    make_exact(spark)
    of_tables = {} if isinstance(plan.source, FileSource) else settings.OF_TABLES
    for name, value in {**log_stores.session_settings(spark, plan.table), **of_tables}.items():
        spark.conf.set(name, value)
    emit(event="started")
    if not plan.fence:
        user_sql.check_rules(spark, plan.expect)
    if plan.reads_only:
        for seq in plan.batches:
            entry = _entry(spark, plan, seq)
            rehearsal.rehearse(spark, plan, entry, _commit)
            emit(event="batch", seq=seq, what=_batch_text(plan, entry), version=None, seconds=0)
        return
    target = Target(spark, plan, report=lambda seq, text: emit(event="columns", seq=seq, message=text))
    with ThreadPoolExecutor(max_workers=1, initializer=server.activate, initargs=(spark,)) as ahead:
        upcoming = _read_ahead(ahead, spark, plan, 0, is_known=not plan.reads_as_table)
        for index, seq in enumerate(plan.batches):
            entry, rows = upcoming
            is_last = index + 1 == len(plan.batches)
            is_known = _is_next_known(plan, target, entry)
            if not is_last and is_known:
                upcoming = _read_ahead(ahead, spark, plan, index + 1, is_known=True)
            began = time.monotonic()
            version = run_batch(plan, target, entry, rows)
            seconds = time.monotonic() - began
            emit(event="batch", seq=seq, what=_batch_text(plan, entry), version=version, seconds=seconds)
            if not is_last and not is_known:
                if plan.infers_columns:
                    plan = inference.pinned(plan, target.log)
                upcoming = _read_ahead(ahead, spark, plan, index + 1, is_known=not plan.reads_as_table)


def _is_next_known(plan: Plan, target: Target, entry: OffsetEntry) -> bool:
    """Return whether the columns of the next batch are known before this one is committed."""
    if not plan.reads_as_table:
        return True
    if plan.infers_columns or plan.schema_evolution != "fail" or entry.overwrites_table:
        return False
    return target.log.metadata() is not None


def _batch_text(plan: Plan, entry: OffsetEntry) -> str:
    """Name what a batch holds, on one line."""
    count = len(entry.slice.audited)
    text = counted(count, "file") if count else entry.slice.text()
    return f"an empty commit in place of {text}" if plan.fence else text


def _read_ahead(
    ahead: ThreadPoolExecutor, spark: SparkSession, plan: Plan, index: int, *, is_known: bool
) -> tuple[OffsetEntry, Callable[[], DataFrame]]:
    """Return a batch, and its rows for when they are asked for: what cannot be read fails then.

    :param is_known: Whether its columns are known, and depend on no batch that is still to be committed.
    """
    entry = _entry(spark, plan, plan.batches[index])
    is_of_database = isinstance(plan.source, JdbcSource)
    if plan.fence or not is_known or is_of_database:
        return entry, lambda: _reader(plan).read(spark, plan, entry)
    return entry, ahead.submit(_reader(plan).read, spark, plan, entry).result


def _commit(plan: Plan, target: Target, transaction: Transaction) -> None:
    """Read a batch and commit it.

    :raises ScopeProviderError: Of any error, whoever made it.
    """
    entry, spark = transaction.entry, target.spark
    reader = _reader(plan)
    try:
        reader.commit(plan, target, transaction, lambda: reader.read(spark, plan, entry))
    except ScopeProviderError:
        raise
    except Exception as err:
        raise as_error(err) from err


def _entry(spark: SparkSession, plan: Plan, seq: int) -> OffsetEntry:
    name = f"{plan.checkpoint}/offsets/{seq:020}"
    return records.decode_offset(name, storage.read(spark, name), seq)


def run_batch(plan: Plan, target: Target, entry: OffsetEntry, rows: Callable[[], DataFrame]) -> int | None:
    """Commit one batch unless it is in the table; give the version, or None if it was there.

    :param rows: Gives what the reader reads; not asked if the batch is not to be written.
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
        try:
            return _reader(plan).commit(plan, target, transaction, rows)
        except MergeKeyError as err:
            if not isinstance(plan.source, CdfSource):  # whose next run reads the same versions
                err.do += (
                    ". After the source is corrected, abandon the batch with `airflow scope abandon`: it "
                    "reads what it was logged with, and the next run what is there then"
                )
            raise

    return commit_once(plan, target.log, entry, attempt)


class _Reader(Protocol):
    """Reads the slices of a source."""

    def read(self, spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
        """Return the rows of the slice, before the user's SELECT."""

    def commit(
        self, plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]
    ) -> int | None:
        """Commit what the SELECT makes of these; return the version, or None if the batch was there."""


def _reader(plan: Plan) -> _Reader:
    source: Any = type(plan.source)
    return cast("_Reader", import_module(f"airflow_provider_scope.spark.{PARTS[source].reader}"))


def as_error(err: Exception) -> ScopeProviderError:
    """Return the error for whatever Spark raised, with its cause in one or two lines."""
    cause, text = short_cause(err), whole_text(err)
    if wrong := zone_error(text):
        return wrong
    kind = kind_of(text)
    if kind == "not seen":
        return SparkJobFailedError(
            f"Spark does not see a path that exists, or existed, on the worker: {cause}",
            kept=KEPT,
            do=f"{NOT_SEEN}. The next try runs it again",
        )
    if kind == "setting":
        return InputError(
            f"Spark does not accept a setting: {cause}",
            kept=KEPT,
            do="correct `options` of the source, or `conf`, `packages` or `jars` of the engine; the next "
            "run loads the batch with them",
        )
    if kind == "sql" or isinstance(err, (AnalysisException, ParseException)):
        return user_sql.failed("the rows of the batch", cause)
    return SparkJobFailedError(
        f"The Spark application failed: {cause}",
        kept="the batches before it; this one stays logged",
        do=passing_advice(cause),
    )
