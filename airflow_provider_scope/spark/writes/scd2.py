"""Keep the versions of rows: new ones begin at the boundary, and those that are no longer there end then."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.delta.write_rules import Scd2Rule
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, MergeKeyError
from airflow_provider_scope.spark.session import SPARK_ERRORS
from airflow_provider_scope.spark.structs import row_hash
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.spark.writes.merge import IS_DELETED, Merge, count_duplicates, staged
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from airflow_provider_scope.spark.commit import Batch, Commit
    from airflow_provider_scope.spark.writes.merge import Staged

_OTHER_TIMESTAMP = "has versions that are active with another active_record_timestamp than that of the task"


def prepare(rows: DataFrame, how: Mapping[str, Any]) -> DataFrame:
    """Add the columns of a version to the rows, which are active from the boundary timestamp on.

    :raises InputError: The rows have a column with the name of one of these.
    """
    rule = Scd2Rule.of(how)
    version = row_hash(rows.schema)
    own = rule.own_columns(rows.columns)
    values = {
        rule.validity[0]: _instant(rule.boundary_timestamp),
        rule.validity[1]: _instant(rule.active_record_timestamp),
        rule.version: version,
    }
    return rows.withColumns({name: values[name] for name in own})


def _instant(value: str | None) -> Column:
    return F.lit(datetime.fromisoformat(value) if value else None).cast("timestamp")


def write(batch: Batch, commit: Commit) -> int | None:
    """Insert versions that are not active in the table, and retire active ones that are not in the batch."""
    rule = Scd2Rule.of(batch.how)
    key_columns = {"row_version_column_name": [rule.version], "merge_key": rule.merge_key}
    with staged(batch, key_columns, commit.log.table, rule.merge_key) as load:
        rows = load.rows
        if batch.deleted is not None:
            rows = rows.where(f"NOT {IS_DELETED}").drop(IS_DELETED)
        versions, duplicates = _one_row_per_version(load, rows, rule)
        commit.note(changes={"deduplicated": duplicates})
        if batch.creates or batch.overwrites:
            return plain.write(load.with_rows(versions), commit)
        if not load.row_count and rule.on_empty_extract == "ignore":
            return plain.write(batch, commit)
        if batch.brings_columns and _is_new_to_versions(commit, rule):
            return plain.write(load.with_rows(versions), commit)
        return _execute(commit, rule, load, versions)


def _is_new_to_versions(commit: Commit, rule: Scd2Rule) -> bool:
    """Check whether the table was made without the versions' columns, and this is its first batch.

    :raises InputError: Such a table has rows.
    """
    stored = DeltaTable.forPath(commit.log.spark, commit.log.table).toDF()
    names = {name.lower() for name in stored.columns}
    missing = [name for name in (*rule.validity, rule.version) if name.lower() not in names]
    if missing and not stored.isEmpty():
        raise write_rules.without_versions(commit.log.table, missing)
    return bool(missing)


def _execute(commit: Commit, rule: Scd2Rule, load: Staged, versions: DataFrame) -> int | None:
    try:
        return commit.execute(lambda session: _merge(Merge(session, load), rule, versions))
    except SPARK_ERRORS as err:
        if _OTHER_TIMESTAMP not in str(err):
            raise
        raise InputError(
            f"The table {load.table} {_OTHER_TIMESTAMP}, {rule.active_record_timestamp or 'NULL'}.",
            kept=NO_ROW_WRITTEN,
            do="set the active_record_timestamp that the table was written with; or run once with "
            "full_refresh=True, which starts the history over",
        ) from err


def _one_row_per_version(load: Staged, rows: DataFrame, rule: Scd2Rule) -> tuple[DataFrame, int]:
    """Leave one row of each version, and count the rows that are left out.

    :raises MergeKeyError: Rows have the same version in the user's own version column, and differ.
    """
    identity = _identity(load, rule)
    counts = [F.count(F.lit(1)).alias("n")]
    if rule.row_version:
        counts.append(F.count_distinct(row_hash(rows.schema)).alias("contents"))
    by_version = rows.groupBy(*identity).agg(*counts).where("n > 1")
    duplicates = count_duplicates(by_version)
    if not duplicates:
        return rows, 0
    if rule.row_version:
        clash = by_version.where("contents > 1").select(F.col(identity[0]).cast("string")).first()
        if clash:
            raise MergeKeyError(
                f"Several rows for {load.table} have the same {rule.version}, {clash[0]!r}, and differ.",
                kept=NO_ROW_WRITTEN,
                do="give each version of a row its own value there, with its key in it; or leave "
                "row_version_column_name out: then all values of the row distinguish its versions",
            )
    return rows.dropDuplicates(identity), duplicates


def _identity(load: Staged, rule: Scd2Rule) -> list[str]:
    """Find the columns that identify a version: its version column, and the key if there is one."""
    return [
        *load.columns("row_version_column_name", [rule.version]),
        *load.columns("merge_key", rule.merge_key),
    ]


def _merge(merge: Merge, rule: Scd2Rule, versions: DataFrame) -> None:
    """Insert and retire versions in one MERGE.

    Its source has the versions to insert, and those to retire. The first have no values in the columns of the
    condition, so none of them matches.
    """
    load = merge.load
    identity = _identity(load, rule)
    version, *key = identity
    stored = merge.stored(identity, _is_active(rule)).where(F.col(version).isNotNull()).distinct()
    if key:
        # The keys that the batch deletes are among these, and have no version.
        stored = stored.join(load.rows.select(*key).distinct(), key, "left_semi")
    stored = stored.select(*[F.col(c).alias(f"k_{c}") for c in identity])
    same = reduce(and_, [F.col(c) == F.col(f"k_{c}") for c in identity])
    # Versions that are on one side only are to be inserted, or to be retired.
    source = versions.join(stored, same, "full_outer")
    source = source.where(F.col(version).isNull() | F.col(f"k_{version}").isNull())
    pairs = load.pairs(identity, prefix="k_")
    builder = merge.into(source, [write_rules.equal(pairs), rule.is_active, *load.ranges_of(key)], once=True)
    builder = builder.whenMatchedUpdate(set={quoted(rule.validity[1]): _instant(rule.boundary_timestamp)})
    builder.whenNotMatchedInsert(f"s.{quoted(pairs[0][1])} IS NULL", values=load.values()).execute()


def _is_active(rule: Scd2Rule) -> Column:
    """Check whether a version of the table is active; fail if it is so by another timestamp.

    A version that ends never or in the far future, but not at this ``active_record_timestamp``, was written
    as active with another one: it would stay active beside all that is inserted now.
    """
    ends = f"t.{quoted(rule.validity[1])}"
    is_other = f"{ends} >= TIMESTAMP '{write_rules.FAR}' OR {ends} IS NULL"
    fails = F.raise_error(F.lit(_OTHER_TIMESTAMP)).cast("boolean")
    checked = F.when(F.expr(rule.is_active), F.lit(col=True)).otherwise(fails)
    # The first condition is the one by which Delta skips files.
    return F.expr(f"{rule.is_active} OR {is_other}") & checked
