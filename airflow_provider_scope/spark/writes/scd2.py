"""Keep the versions of rows: what is new begins now, and what is not there any more ends now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import merge_rule, scd2_rule
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, MergeKeyError
from airflow_provider_scope.spark.row_hash import row_hash
from airflow_provider_scope.spark.session import SPARK_ERRORS
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.spark.writes.merge import GONE, prepare_session, staged
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.delta.scd2_rule import Scd2Rule
    from airflow_provider_scope.spark.commit import Batch, Commit
    from airflow_provider_scope.spark.writes.merge import Staged

_OTHERS = "has versions that are active with another active_record_timestamp than that of the task"


def prepare(rows: DataFrame, how: Mapping[str, Any]) -> DataFrame:
    """Give the rows as versions that are active from the boundary on.

    :raises InputError: The rows have a column of a name that the versions have.
    """
    rule = scd2_rule.rule_from(how)
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
    rule = scd2_rule.rule_from(batch.how)
    named = {"row_version_column_name": [rule.version], "merge_key": rule.merge_key}
    deleted = None if batch.deleted is None else (batch.deleted, rule.merge_key)
    with staged(batch, named, commit.log.table, deleted) as load:
        there = replace(load, rows=load.rows.where(f"NOT {GONE}").drop(GONE)) if deleted else load
        versions, doubled = _one_for_each(there, rule)
        commit.note(changes={"deduplicated": doubled})
        if batch.creates or batch.overwrites:
            return plain.write(replace(batch, rows=load.only(versions)), commit)
        if not load.read and rule.on_empty_extract == "ignore":
            return plain.write(batch, commit)
        if batch.brings_columns and _is_new_to_versions(commit, rule):
            return plain.write(replace(batch, rows=load.only(versions)), commit)
        return _execute(batch, commit, rule, load, versions)


def _is_new_to_versions(commit: Commit, rule: Scd2Rule) -> bool:
    """Look whether this is the first batch of a table that somebody made without the versions' columns.

    :raises InputError: It has rows.
    """
    stored = DeltaTable.forPath(commit.log.spark, commit.log.table).toDF()
    there = {name.lower() for name in stored.columns}
    missing = [name for name in (*rule.validity, rule.version) if name.lower() not in there]
    if missing and not stored.isEmpty():
        raise scd2_rule.without_versions(commit.log.table, missing)
    return bool(missing)


def _execute(batch: Batch, commit: Commit, rule: Scd2Rule, load: Staged, versions: DataFrame) -> int | None:
    try:
        return commit.execute(lambda session: _merge(session, batch, rule, load, versions))
    except SPARK_ERRORS as err:
        if _OTHERS not in str(err):
            raise
        raise InputError(
            f"The table {load.table} {_OTHERS}, {rule.active_record_timestamp or 'NULL'}.",
            kept=NO_ROW_WRITTEN,
            do="set the active_record_timestamp that the table was written with; or run once with "
            "full_refresh=True, which starts the history over",
        ) from err


def _one_for_each(load: Staged, rule: Scd2Rule) -> tuple[DataFrame, int]:
    """Give one row of each version.

    :raises MergeKeyError: Rows with the same version, which the user's own column tells, are not the same.
    """
    identity = _identity(load, rule)
    counts = [F.count(F.lit(1)).alias("n")]
    if rule.row_version:
        counts.append(F.count_distinct(row_hash(load.rows.schema)).alias("contents"))
    by_version = load.rows.groupBy(*identity).agg(*counts).where("n > 1")
    found = by_version.agg(F.sum(F.col("n") - 1)).first()
    doubled = int(found[0] or 0) if found else 0
    if not doubled:
        return load.rows, 0
    if rule.row_version:
        clash = by_version.where("contents > 1").select(F.col(identity[0]).cast("string")).first()
        if clash:
            raise MergeKeyError(
                f"Several rows for {load.table} have the same {rule.version}, {clash[0]!r}, and differ.",
                kept=NO_ROW_WRITTEN,
                do="give each version of a row its own value there, with its key in it; or leave "
                "row_version_column_name out: then all values of the row distinguish its versions",
            )
    return load.rows.dropDuplicates(identity), doubled


def _identity(load: Staged, rule: Scd2Rule) -> list[str]:
    """Give the columns by which two versions are the same: with a key, versions of two keys never are."""
    return [
        *load.columns("row_version_column_name", [rule.version]),
        *load.columns("merge_key", rule.merge_key),
    ]


def _merge(session: SparkSession, batch: Batch, rule: Scd2Rule, load: Staged, versions: DataFrame) -> None:
    """Change what is to be changed as one MERGE: no row to insert has a version to retire."""
    table = DeltaTable.forPath(session, load.table)
    # From the table as the MERGE sees it, in its own transaction; read once.
    prepare_session(session, batch, load, once=True)
    identity = _identity(load, rule)
    version, *key = identity
    stored = _active(table, rule, load, identity).where(F.col(version).isNotNull()).distinct()
    if key:
        # Those of the batch that are to go are among these, and have no version.
        stored = stored.join(load.rows.select(*key).distinct(), key, "left_semi")
    stored = stored.select(*[F.col(c).alias(f"k_{c}") for c in identity])
    same = reduce(and_, [F.col(c) == F.col(f"k_{c}") for c in identity])
    # What is on one side alone: versions to insert, and versions to retire.
    source = versions.join(stored, same, "full_outer")
    source = source.where(F.col(version).isNull() | F.col(f"k_{version}").isNull())
    pairs = [(load.name(c), load.in_source(f"k_{c}")) for c in identity]
    condition = [merge_rule.equal(pairs), rule.is_active, *load.ranges_of(key, batch.partitions)]
    builder = table.alias("t").merge(load.source(source), " AND ".join(condition))
    if batch.brings_columns:
        builder = builder.withSchemaEvolution()
    ends: dict[str, Any] = {quoted(rule.validity[1]): _instant(rule.boundary_timestamp)}
    builder = builder.whenMatchedUpdate(set=ends)
    builder.whenNotMatchedInsert(f"s.{quoted(pairs[0][1])} IS NULL", values=load.values()).execute()


def _active(table: DeltaTable, rule: Scd2Rule, load: Staged, columns: list[str]) -> DataFrame:
    """Give the active versions of the table.

    One that ends never or in a far future, and not when active ones do, was active for somebody who said
    that with another ``active_record_timestamp``: it would stay, beside all that is inserted now.
    """
    stored = table.toDF().alias("t")
    ends = f"t.{quoted(rule.validity[1])}"
    is_other = f"{ends} >= TIMESTAMP '{scd2_rule.FAR}' OR {ends} IS NULL"
    found = []
    for column in columns:
        value = F.col(f"t.{quoted(load.name(column))}")
        found.append(value.alias(column))
    checked = F.when(F.expr(rule.is_active), F.lit(col=True)).otherwise(
        F.raise_error(F.lit(_OTHERS)).cast("boolean")
    )
    return stored.where(f"{rule.is_active} OR {is_other}").where(checked).select(*found)
