"""Run the batches of a plan, in order, each in one Delta transaction that carries its number."""

from __future__ import annotations

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from airflow_provider_scope.core import plan as plans
from airflow_provider_scope.core import records, recovery
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    ScopeProviderError,
    SparkJobFailedError,
    SqlError,
    TableDivergedError,
)
from airflow_provider_scope.spark import files
from airflow_provider_scope.spark.reading import select
from airflow_provider_scope.spark.target import ConcurrentCommitError, Target

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
            files.check_unchanged(target.spark, entry)
            return target.write(entry, rows())
        except ConcurrentCommitError:
            continue  # look at the table again: it may have been this very batch
    raise BatchNotInTableError(
        f"Batch {entry.seq} could not be committed to {plan.table}: another writer committed in between, "
        f"{TRIES} times.",
        kept="the table and the log; the batch stays logged",
        do="the next try runs it again; keep ALTER, OPTIMIZE and other writers out of the run's time",
    )


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


CAUSE_LENGTH = 400
"""Characters of one cause that are told; the rest is in Spark's log."""
_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (?P<text>.*)", re.MULTILINE)


def short_cause(err: Exception) -> str:
    """Give the innermost cause of an error of Spark, without its stack."""
    if isinstance(err, Py4JJavaError):
        text = str(err.java_exception.toString())
        trace = str(err)
    elif isinstance(err, PySparkException):
        text = str(err).split("\n\nJVM stacktrace")[0]
        trace = str(getattr(err, "_stackTrace", "") or "")
    else:
        text, trace = f"{type(err).__name__}: {err}", ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [m["text"].strip() for m in _CAUSE.finditer(trace) if m.group().startswith("Caused by")]
    if not causes:
        return lines[0][:CAUSE_LENGTH] if lines else type(err).__name__
    # Outer ones say "task failed"; the file, the newest named condition and the innermost say why.
    named = [cause for cause in causes if cause.startswith("[")]
    told = [*[cause for cause in named if "FAILED_READ_FILE" in cause][:1], *named[-1:], causes[-1]]
    return "; ".join(cause[:CAUSE_LENGTH] for cause in dict.fromkeys(told))


def _emit(**event: Any) -> None:
    sys.stdout.write(plans.EVENT + json.dumps(event) + "\n")
    sys.stdout.flush()
