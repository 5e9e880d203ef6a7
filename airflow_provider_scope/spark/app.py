"""Run the batches of a plan, in order, each in one Delta transaction that carries its number."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from airflow_provider_scope.core import plan as plans
from airflow_provider_scope.core import records, recovery, settings
from airflow_provider_scope.core.failures import kind_of, passing_advice
from airflow_provider_scope.core.files import TEXT_FORMATS
from airflow_provider_scope.exceptions import (
    BadFileError,
    BadRecordError,
    BatchNotInTableError,
    InputError,
    SchemaMismatchError,
    ScopeProviderError,
    SparkJobFailedError,
    SqlError,
)
from airflow_provider_scope.spark import files, inference
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError
from airflow_provider_scope.spark.imports import leave_out_numpy
from airflow_provider_scope.spark.problems import KEPT
from airflow_provider_scope.spark.reading import select
from airflow_provider_scope.spark.sorting import sorted_out
from airflow_provider_scope.spark.strict import read_by
from airflow_provider_scope.spark.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry

_INFERRED = (
    "the columns were inferred from an earlier batch (`airflow scope status` shows them): declare `columns` "
    "with types for all files; or run once with full_refresh=True, which infers them anew"
)
TRIES = 3
"""How often a batch is tried when another writer's commit gets in between."""


def main(arguments: list[str]) -> int:
    """Run the plan whose path is given; report by events on standard output."""
    leave_out_numpy()
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

    While a batch is written, Spark looks at the files of the next one. Commits stay in order. But columns
    that are to be inferred are not known before a batch with them is in the table, whoever committed it.
    """
    make_exact(spark)
    _emit(event="started")
    target = Target(spark, plan)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        upcoming = _read_ahead(ahead, spark, plan, 0)
        for index, seq in enumerate(plan.batches):
            entry, rows = upcoming
            is_last = index + 1 == len(plan.batches)
            if not is_last and not plan.has_to_infer:
                upcoming = _read_ahead(ahead, spark, plan, index + 1)
            began = time.monotonic()
            version = run_batch(plan, target, entry, rows)
            seconds = time.monotonic() - began
            _emit(event="batch", seq=seq, files=len(entry.files), version=version, seconds=seconds)
            if version is not None and target.told:
                _emit(event="columns", seq=seq, told=target.told)
            if not is_last and plan.has_to_infer:
                plan = inference.pinned(plan, target.log)
                upcoming = _read_ahead(ahead, spark, plan, index + 1)


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
    if plan.fence or plan.has_to_infer:
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
        if not plan.fence and not recovery.may_run(entry, newest, plan.first):
            raise recovery.out_of_order(newest, entry, plan.first)(
                f"Batch {entry.seq} cannot run: the table {plan.table} holds batch {newest} as its newest, "
                f"not {recovery.predecessor(entry, plan.first)}.",
                kept="the table, the log and all files",
                do="clear the task: it reads the log and the table again; if it comes back, run `airflow "
                "scope status`",
            )
        try:
            for quarantine in target.quarantines:
                quarantine.clear(entry)
            if plan.fence:
                return target.fence(entry)
            return _write(plan, target, entry, rows)
        except ConcurrentCommitError:
            continue  # look at the table again: it may have been this very batch
        except SchemaMismatchError:
            # Another run may have made the table with this very batch, and with columns that it inferred.
            newest = target.newest_transaction()
            if newest is None or newest < entry.seq:
                raise
            return None
    raise BatchNotInTableError(
        f"Batch {entry.seq} could not be committed to {plan.table}: another writer committed in between, "
        f"{TRIES} times.",
        kept="the table and the log; the batch stays logged",
        do="the next try runs it again; avoid ALTER, OPTIMIZE and other writes to the table while the task "
        "runs",
    )


def _write(plan: Plan, target: Target, entry: OffsetEntry, rows: Callable[[], DataFrame]) -> int | None:
    spark = target.spark

    def looked_at() -> DataFrame:
        try:
            return rows()
        finally:
            # Behind Spark's own look, because what it saw is what it reads; a file that is gone is told by
            # name.
            files.check_unchanged(spark, entry)

    is_pinned = plan.infers_columns and not plan.has_to_infer
    try:
        if plan.source_format in TEXT_FORMATS:
            files.check_bzip2(spark, entry)
        if plan.has_to_infer:
            plan = inference.inferred(spark, plan, entry)
            _emit(event="columns", seq=entry.seq, told=f"inferred columns: {inference.columns_of(plan)}")
            rows = partial(select, spark, plan, entry)
        notes = _notes(plan) or None
        version = read_by(spark, plan, entry, looked_at, lambda found: target.write(entry, found, notes))
    except (BadFileError, BadRecordError) as err:
        if plan.bad_records != "quarantine" or plan.has_to_infer:
            if is_pinned:
                err.do = f"{_INFERRED}. Or {err.do}"
            raise
        version = _write_sorted(plan, target, entry)
    if version is not None:
        files.check_was_unchanged(spark, entry, version)
    return version


def _write_sorted(plan: Plan, target: Target, entry: OffsetEntry) -> int | None:
    """Commit what is bad to the quarantine, and then what is good to the table."""
    aside = target.quarantines[-1]
    with sorted_out(target.spark, plan, entry) as found:
        if found.good is None and target.log.metadata() is None and not plan.table_columns and found.error:
            raise found.error
        count = sum(found.counts.values())
        number = aside.put(entry, found.bad, count)
        notes = {**_notes(plan), "quarantined": found.counts}
        if found.good is None:
            version = target.write_nothing(entry, notes)
        else:
            version = target.write(entry, found.good, notes)
        while version is not None and not aside.holds(entry, number):
            # A try that somebody believed to be dead has put its own there since; they do not count.
            number = aside.put(entry, found.bad, count)
    return version


def _notes(plan: Plan) -> dict[str, Any]:
    """Give what each commit of a plan says: it is in the table with the rows, whatever happens then."""
    return {"columns": inference.columns_of(plan)} if plan.infers_columns else {}


def as_error(err: Exception) -> ScopeProviderError:
    """Give the error for whatever Spark raised, with its cause in one or two lines."""
    cause = short_cause(err)
    kind = kind_of(whole_text(err))
    if kind == "not seen":
        return SparkJobFailedError(
            f"Spark does not see a path that is there for the worker, or was: {cause}",
            kept=KEPT,
            do="give Spark's machines the same disks under the same paths; if the name is not ASCII, set "
            "LC_ALL=C.UTF-8 for them. The next try runs it again",
        )
    if kind == "setting":
        return InputError(
            f"Spark does not take a setting: {cause}",
            kept=KEPT,
            do="correct `options` of the source, or `conf`, `packages` or `jars` of the engine; the next run "
            "takes the batch with them",
        )
    if kind == "sql" or isinstance(err, (AnalysisException, ParseException)):
        return SqlError(
            f"The SQL does not work on the files of the batch: {cause}",
            kept=KEPT,
            do="correct `sql` (or `columns`, or `options`); the next run takes the batch with them",
        )
    return SparkJobFailedError(
        f"The Spark application failed: {cause}",
        kept="the batches before it; this one stays logged",
        do=passing_advice(cause),
    )


def _emit(**event: Any) -> None:
    sys.stdout.write(plans.EVENT + json.dumps(event) + "\n")
    sys.stdout.flush()
