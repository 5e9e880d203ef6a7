"""The batch of an entry that holds files: its rows, and what is to be known of the files before and after."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.columns import change_text
from airflow_provider_scope.exceptions import BadFileError, BadRecordError, mask
from airflow_provider_scope.protocol.bad_records import exceeded, rule_lines, text
from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files import inference, partitions
from airflow_provider_scope.spark.files.formats import BadRecord
from airflow_provider_scope.spark.files.listing import (
    KEPT,
    NAMED,
    SHOWN,
    NoColumnsError,
    choices,
    few_tasks,
    place_of,
)
from airflow_provider_scope.spark.files.quarantine import sorted_out
from airflow_provider_scope.spark.files.reading import read, read_by
from airflow_provider_scope.spark.session import emit
from airflow_provider_scope.spark.user_sql import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.files.quarantine import SortedBatch
    from airflow_provider_scope.spark.plan import Plan
    from airflow_provider_scope.spark.target import Target

__all__ = ["commit", "read"]


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the rows of the files; with a quarantine, those that can be loaded.

    :param rows: Gives the result of ``read``.
    :return: The table's version, or None if the batch was there.
    :raises BadFileError: A file is not what the source says.
    :raises BadRecordError: A record is not.
    """
    try:
        with few_tasks(target.spark, len(transaction.entry.files)):
            return _commit(plan, target, transaction, rows)
    except (BadFileError, BadRecordError) as err:
        err.do = choices(plan, err)
        raise


def _commit(
    plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]
) -> int | None:
    spark, entry = target.spark, transaction.entry
    plan = partitions.inferred(plan, entry)

    def rows_of_unchanged_files() -> DataFrame:
        try:
            return rows()
        finally:
            # After Spark's own listing, because it reads what it listed then; the error names a file that is
            # missing.
            storage.check_unchanged(spark, entry)

    try:
        if plan.has_to_infer or plan.extends_columns:
            columns_before = inference.columns_text(plan)
            plan = inference.inferred(spark, plan, entry)
            columns = inference.columns_text(plan)
            if columns != columns_before:
                message = f"inferred columns: {change_text(columns_before, columns)}"
                emit(event="columns", seq=entry.seq, message=message)
            rows = partial(read, spark, plan, entry)
        version = read_by(
            spark, plan, entry, rows_of_unchanged_files, partial(_write, plan, target, transaction)
        )
    except NoColumnsError:
        version = target.write_nothing(transaction, _notes(plan))
    except (BadFileError, BadRecordError):
        if not plan.sorts_records or plan.has_to_infer:
            raise
        version = _commit_sorted(plan, target, transaction)
    if version is not None:
        storage.check_was_unchanged(spark, entry, version)
    return version


def _write(plan: Plan, target: Target, transaction: Transaction, data: DataFrame) -> int | None:
    with ExitStack() as block:
        rows, warned = counted(block, plan, data, transaction.entry.seq)
        return target.write(transaction, rows, {**_notes(plan), **warned})


def _commit_sorted(plan: Plan, target: Target, transaction: Transaction) -> int | None:
    """Commit what is bad to the quarantine, and then what is good to the table.

    :raises BadFileError: A file is bad, and there is no quarantine.
    :raises BadRecordError: A record is, or a row of the SELECT.
    """
    entry = transaction.entry
    with ExitStack() as block:
        batch = sorted_out(block, target.spark, plan, entry)
        if batch.good is None and target.log.metadata() is None and not plan.table_columns and batch.error:
            raise batch.error
        count = sum(bad.count for bad in batch.quarantined.values())
        if count and plan.files.bad_records != "quarantine":
            raise batch.error or _first_error(entry, batch)
        _check_limits(plan, entry, batch)
        notes = _notes(plan)
        if count:
            notes["quarantined"] = {unit: asdict(bad) for unit, bad in batch.quarantined.items()}
        if batch.warned:
            notes["warned"] = batch.warned
        if batch.rescued:
            notes["rescued"] = batch.rescued
        quarantine = target.quarantines[-1] if count else None
        number = quarantine.put(entry, batch.bad, count) if quarantine else 0
        if batch.good is None:
            version = target.write_nothing(transaction, notes)
        else:
            version = target.write(transaction, batch.good, notes)
        while quarantine and version is not None and not quarantine.holds(entry, number):
            # A try that somebody believed to be dead has put its own there since; they do not count.
            number = quarantine.put(entry, batch.bad, count)
    return version


def _first_error(entry: OffsetEntry, batch: SortedBatch) -> BadRecordError:
    """Make the error about the first bad record of a batch, or the first bad row of its SELECT."""
    (bad,) = batch.bad.orderBy(F.col("record").isNull(), "file", "record").limit(1).collect()
    record = BadRecord(bad.file, bad.rule, bad.value, bad.raw and bad.raw[:SHOWN], "", bad.record)
    return record.error(place_of(entry, bad.file))


def _check_limits(plan: Plan, entry: OffsetEntry, batch: SortedBatch) -> None:
    """Refuse a batch with too much in it that is bad, before anything of it is written.

    :raises BadRecordError: As said, with the rules, and a bad value of each.
    """
    limit = exceeded(batch.quarantined, plan.files.max_bad_records, plan.files.max_bad_share)
    if limit is None:
        return
    first = batch.bad.groupBy("rule").agg(F.min("value").alias("value")).limit(NAMED)
    values = {row.rule: mask(row.value)[:SHOWN] for row in first.collect() if row.value}
    rules = [
        f"{line} ({values[line.partition(': ')[2]]!r})" if line.partition(": ")[2] in values else line
        for line in rule_lines(batch.quarantined)[:NAMED]
    ]
    raise BadRecordError(
        f"{text(batch.quarantined)} of batch {entry.seq} are bad, which is more than {limit}: "
        f"{'; '.join(rules)}.",
        kept=KEPT,
        do=f"correct the declaration (`columns`, `options`) or the rules of `expect`; or raise "
        f"{limit.partition('=')[0]}",
    )


def _notes(plan: Plan) -> dict[str, Any]:
    """Collect what each commit of a plan says: it is in the table with the rows, whatever happens then."""
    return {"columns": inference.columns_text(plan)} if plan.infers_columns else {}
