"""The batch of an entry that holds files: its rows, and what is to be known of the files before and after."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.files import TEXT_FORMATS
from airflow_provider_scope.exceptions import BadFileError, BadRecordError
from airflow_provider_scope.spark import files, inference
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.reading import select
from airflow_provider_scope.spark.sorting import sorted_out
from airflow_provider_scope.spark.strict import read_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.spark.transaction import Transaction

__all__ = ["commit", "select"]

_INFERRED = (
    "the columns were inferred from an earlier batch (`airflow scope status` shows them): declare "
    "`columns` with types for all files; or run once with full_refresh=True, which infers them again"
)


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the rows of the files; with a quarantine, those that can be loaded.

    :param rows: Gives the rows of the user's SELECT.
    :return: The table's version, or None if the batch was there.
    """
    spark, entry = target.spark, transaction.entry

    def looked_at() -> DataFrame:
        try:
            return rows()
        finally:
            # Behind Spark's own look, because what it saw is what it reads; a file that is gone is told by
            # name.
            files.check_unchanged(spark, entry)

    is_pinned = plan.files.infers_columns and not plan.files.has_to_infer
    try:
        if plan.files.format in TEXT_FORMATS:
            files.check_bzip2(spark, entry)
        if plan.files.has_to_infer:
            plan = inference.inferred(spark, plan, entry)
            emit(event="columns", seq=entry.seq, told=f"inferred columns: {inference.columns_of(plan)}")
            rows = partial(select, spark, plan, entry)
        notes = _notes(plan) or None
        version = read_by(
            spark, plan, entry, looked_at, lambda found: target.write(transaction, found, notes)
        )
    except (BadFileError, BadRecordError) as err:
        if plan.files.bad_records != "quarantine" or plan.files.has_to_infer:
            if is_pinned:
                err.do = f"{_INFERRED}. Or {err.do}"
            raise
        version = _commit_sorted(plan, target, transaction)
    if version is not None:
        files.check_was_unchanged(spark, entry, version)
    return version


def _commit_sorted(plan: Plan, target: Target, transaction: Transaction) -> int | None:
    """Commit what is bad to the quarantine, and then what is good to the table."""
    aside, entry = target.quarantines[-1], transaction.entry
    with sorted_out(target.spark, plan, entry) as found:
        if found.good is None and target.log.metadata() is None and not plan.table_columns and found.error:
            raise found.error
        count = sum(found.counts.values())
        number = aside.put(entry, found.bad, count)
        notes = {**_notes(plan), "quarantined": found.counts}
        if found.good is None:
            version = target.write_nothing(transaction, notes)
        else:
            version = target.write(transaction, found.good, notes)
        while version is not None and not aside.holds(entry, number):
            # A try that somebody believed to be dead has put its own there since; they do not count.
            number = aside.put(entry, found.bad, count)
    return version


def _notes(plan: Plan) -> dict[str, Any]:
    """Give what each commit of a plan says: it is in the table with the rows, whatever happens then."""
    return {"columns": inference.columns_of(plan)} if plan.files.infers_columns else {}
