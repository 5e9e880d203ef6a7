"""A batch with something bad in it, sorted: what can be loaded, and what goes to the quarantine."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.exceptions import BadFileError, SourceMismatchError
from airflow_provider_scope.spark import reading, suspicions
from airflow_provider_scope.spark.checks import Check, broken_rule
from airflow_provider_scope.spark.judged import NUMBER, RAW, RULE, VALUE, judged
from airflow_provider_scope.spark.listing import FILE, in_order
from airflow_provider_scope.spark.problems import KEPT, path_of
from airflow_provider_scope.spark.quarantine import COLUMNS
from airflow_provider_scope.spark.source import source_of
from airflow_provider_scope.spark.strict import naming_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.source import Source

_FILES_AT_ONCE = 4
NOTHING_GOOD = "none of its records can be loaded"
"""The rule of a file that was put aside record by record, up to the last."""
_LISTED = "its records are in the quarantine one by one, each with its rule"


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a batch has."""

    good: DataFrame | None
    """The rows to load; None if no file could be read and nothing tells their columns."""
    bad: DataFrame
    """Rows of the quarantine."""
    counts: dict[str, int]
    """Rule -> rows of the quarantine."""
    error: BadFileError | None
    """About the files that cannot be read."""


@contextmanager
def sorted_out(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> Iterator[Sorted]:
    """Sort the records and files of a batch.

    Each file is read once, and what was read is kept on the disks of Spark's executors: good and bad are
    parts of the very same rows.

    :raises SourceMismatchError: Good and bad records together are not those that were read.
    """
    kept: list[DataFrame] = []
    try:
        yield _sort(spark, plan, entry, kept)
    finally:
        for frame in kept:
            frame.unpersist()


def _sort(spark: SparkSession, plan: Plan, entry: OffsetEntry, kept: list[DataFrame]) -> Sorted:
    source = source_of(plan)
    left, error = entry, None
    files: dict[str, tuple[str, str | None]] = {}
    data = None
    counts: Counter[str] = Counter()
    while left.files:
        try:
            with naming_faults(spark, left):
                data, counts = _read(spark, left, source, kept)
                doubted = suspicions.SUSPICIONS & counts.keys()
                _look(spark, left, source, data, doubted)
        except BadFileError as err:
            error = error or err
            found = err.files if err.__cause__ is None else faults(spark, left, source)
            if not found.keys() & {file.path for file in left.files}:
                raise err.__cause__ or err from None  # no file fails alone: it may pass
            files.update(found)
            data = None
            left = left.with_files(tuple(file for file in left.files if file.path not in files))
            continue
        if not doubted:
            break
        source = replace(source, trusted=source.trusted | doubted)
    good, bad = None, []
    if data is not None:
        if counts:
            files.update(_without_good(data, left))
        bad.append(_of_records(data, entry, plan))
        good = data.where(F.col(RULE).isNull()).drop(RULE, VALUE, RAW, NUMBER)
    elif source.columns:
        good = spark.createDataFrame([], source.columns.add(FILE, "string"))
    if good is not None:
        good = reading.over(spark, plan, left, good)
        if plan.expect:
            good, rows, broken = _expected(plan, entry, good, kept)
            bad.append(rows)
            counts += broken
    bad.append(_of_files(spark, entry, plan, files))
    counts.update(what for what, _ in files.values())
    return Sorted(good, reading.union(bad), dict(counts), error)


def _read(
    spark: SparkSession, entry: OffsetEntry, source: Source, kept: list[DataFrame]
) -> tuple[DataFrame, Counter[str]]:
    """Read the files once, and keep their records with the rule that each breaks, NULL if it is good.

    :return: The typed columns with ``FILE`` and those of a bad record; rule -> records that break it.
    :raises BadFileError: Files cannot be read, and that is surely their own fault.
    """
    pieces = reading.records(spark, entry, source)
    with in_order(spark):
        data = reading.union([judged(piece) for piece in pieces])
        return data, _counted(entry, data, kept)


def _counted(entry: OffsetEntry, judged_rows: DataFrame, kept: list[DataFrame]) -> Counter[str]:
    """Keep rows as they are now, and count those that break each rule.

    :param judged_rows: With the column ``RULE``; what is good and what is bad is cut out of them.
    :raises SourceMismatchError: Good and bad ones together are not all of them.
    """
    kept.append(judged_rows.persist(StorageLevel.DISK_ONLY))
    read = judged_rows.count()
    good = judged_rows.where(F.col(RULE).isNull()).count()
    bad = judged_rows.where(F.col(RULE).isNotNull())
    counts = Counter({row[RULE]: row["count"] for row in bad.groupBy(RULE).count().collect()})
    if good + counts.total() != read:
        raise SourceMismatchError(
            f"{read:,} rows of batch {entry.seq} were read, but {good:,} good and {counts.total():,} bad "
            "rows were counted.",
            kept=KEPT,
            do="clear the task, which runs it again; if it happens again, report it",
        )
    return counts


def _look(
    spark: SparkSession, entry: OffsetEntry, source: Source, data: DataFrame, doubted: frozenset[str]
) -> None:
    """See whether what is suspected of some records is in their files as such.

    :raises BadFileError: It is not.
    """
    for rule in doubted:
        seen_in = data.where(F.col(RULE) == rule).select(FILE).distinct().collect()
        suspicions.look(spark, entry, source, rule, [row[FILE] for row in seen_in])


def faults(spark: SparkSession, entry: OffsetEntry, source: Source) -> dict[str, tuple[str, str | None]]:
    """Read each file alone, and give those that cannot be read, as ``BadFileError.files`` does."""

    def look(path: str) -> dict[str, tuple[str, str | None]]:
        alone = entry.with_files(tuple(file for file in entry.files if file.path == path))
        try:
            with naming_faults(spark, alone):
                rows = reading.union([judged(piece) for piece in reading.records(spark, alone, source)])
                rows.write.format("noop").mode("overwrite").save()
        except BadFileError as err:
            return {**err.files}
        return {}

    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="scope-alone") as pool:
        found = pool.map(look, [file.path for file in entry.files])
        return {path: why for one in found for path, why in one.items()}


def _without_good(data: DataFrame, entry: OffsetEntry) -> dict[str, tuple[str, str | None]]:
    """Give the files of which no record is good: no row of the table is theirs, so they may be given back."""
    lost = data.groupBy(FILE).agg(F.expr(f"every({RULE} IS NOT NULL)").alias("lost")).where("lost")
    return {path_of(entry, row[FILE]): (NOTHING_GOOD, _LISTED) for row in lost.collect()}


def _of_records(data: DataFrame, entry: OffsetEntry, plan: Plan) -> DataFrame:
    bad = data.where(F.col(RULE).isNotNull())
    paths = {row[FILE]: path_of(entry, row[FILE]) for row in bad.select(FILE).distinct().collect()}
    pairs = ", ".join(f"{literal(spelled)}, {literal(path)}" for spelled, path in paths.items())
    file = f"element_at(map({pairs}), {FILE})" if pairs else FILE
    return _rows(bad, entry, plan, file=file, record=NUMBER, rule=RULE, value=VALUE, raw=RAW)


def _of_files(
    spark: SparkSession, entry: OffsetEntry, plan: Plan, files: Mapping[str, tuple[str, str | None]]
) -> DataFrame:
    told = json.dumps(
        [{"file": file, "rule": what, "value": details} for file, (what, details) in files.items()]
    )
    # As a literal: a list of Python rows would start a Python worker.
    schema = "array<struct<file string, rule string, value string>>"
    rows = spark.range(1).select(F.inline(F.from_json(F.lit(told), schema)))
    return _rows(rows, entry, plan, file="file", record="NULL", rule="rule", value="value", raw="NULL")


def _rows(
    frame: DataFrame,
    entry: OffsetEntry,
    plan: Plan,
    *,
    file: str,
    record: str,
    rule: str,
    value: str,
    raw: str,
) -> DataFrame:
    """Give rows of the quarantine; the arguments are SQL over the frame's columns."""
    found = {
        "pipeline": literal(plan.pipeline),
        "batch": str(entry.seq),
        "file": file,
        "record": record,
        "rule": rule,
        "value": value,
        "raw": raw,
        "quarantined_at": "current_timestamp()",
    }
    return frame.select(
        *[F.expr(found[field.name]).cast(field.dataType).alias(field.name) for field in COLUMNS]
    )


def _expected(
    plan: Plan, entry: OffsetEntry, rows: DataFrame, kept: list[DataFrame]
) -> tuple[DataFrame, DataFrame, Counter[str]]:
    """Sort the rows of the SELECT by the rules of ``TableSpec.expect``.

    :return: The good rows, rows of the quarantine, and rule -> rows that break it.
    """
    names = rows.columns
    checks = [Check(name, predicate, "NULL") for name, predicate in plan.expect.items()]
    judged_rows = rows.select("*", F.expr(broken_rule(checks)).alias(RULE), F.expr(reading.ROW).alias(RAW))
    counts = _counted(entry, judged_rows, kept)
    bad = judged_rows.where(F.col(RULE).isNotNull())
    good = judged_rows.where(F.col(RULE).isNull())
    file = reading.file_of(rows)
    moved = _rows(bad, entry, plan, file=file, record="NULL", rule=RULE, value="NULL", raw=RAW)
    return good.select(*[quoted(name) for name in names]), moved, counts
