"""Keep the versions of rows: new ones begin at the boundary, and those that are no longer there end then."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.delta.commit import loosened
from airflow_provider_scope.delta.write_rules import COMMIT, Scd2
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, MergeKeyError
from airflow_provider_scope.spark.session import SPARK_ERRORS
from airflow_provider_scope.spark.structs import row_hash
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.spark.writes.merge import (
    IS_DELETED,
    Merge,
    check_stored_keys,
    count_duplicates,
    is_flagged,
    naming_ties,
    one_row_per_key,
    staged,
    tie_error,
)
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from airflow_provider_scope.spark.commit import Batch, Commit
    from airflow_provider_scope.spark.writes.merge import Staged

_OTHER_TIME = "has versions that are valid by the time of their load"
_OTHER_TIMESTAMP = "has versions that are active with another active_record_timestamp than that of the task"


def _spec_of(how: Mapping[str, Any]) -> Scd2:
    """Return the write with the instant of the change: without a boundary, it is that of the batch."""
    rule = write_rules.of_plan(Scd2, how)
    has_instant = rule.sequence_by or rule.boundary_timestamp
    return rule if has_instant else replace(rule, boundary_timestamp=how["now"])


def prepare(rows: DataFrame, how: Mapping[str, Any]) -> DataFrame:
    """Add the columns of a version to the rows, which are active from the boundary timestamp on.

    :raises InputError: The rows have a column with the name of one of these.
    """
    rule = _spec_of(how)
    columns = rule.own_columns(dict(rows.dtypes))
    if rule.sequence_by:
        return _prepare_events(rows, rule, columns)
    begins, ends = rule.validity_column_names
    values = {
        begins: _instant(rule.boundary_timestamp),
        ends: _instant(rule.active_record_timestamp),
        rule.version: row_hash(rows.schema),
    }
    return rows.withColumns({name: values[name] for name in columns})


def _instant(value: str | date | None) -> Column:
    return F.lit(datetime.fromisoformat(str(value)) if value else None).cast("timestamp")


def write(batch: Batch, commit: Commit) -> int | None:
    """Insert versions that are not active in the table, and retire active ones that are not in the batch."""
    rule = _spec_of(batch.how)
    if rule.sequence:
        return _write_events(batch, commit, rule, rule.sequence)
    key_columns = {"row_version_column_name": [rule.version], "merge_key": rule.merge_key}
    with staged(batch, key_columns, commit.log.table, rule.merge_key) as load:
        rows = load.rows
        if batch.deleted is not None:
            rows = rows.where(f"NOT {IS_DELETED}").drop(IS_DELETED)
        versions, duplicates = _one_row_per_version(load, rows, rule)
        commit.note(changes={"deduplicated": duplicates})
        if batch.creates or batch.overwrites:
            return plain.write(load.with_rows(versions), commit)
        if not load.keys.rows and rule.on_empty_extract == "ignore":
            return plain.write(batch, commit)
        if batch.brings_columns and _is_new_to_versions(commit, rule):
            return plain.write(load.with_rows(versions), commit)
        check_stored_keys(load, commit, {"merge_key": rule.merge_key})
        return _execute(commit, rule, load, versions)


def _is_new_to_versions(commit: Commit, rule: Scd2) -> bool:
    """Check whether the table was made without the versions' columns, and this is its first batch.

    :raises InputError: Such a table has rows.
    """
    stored = DeltaTable.forPath(commit.log.spark, commit.log.table).toDF()
    names = {name.lower() for name in stored.columns}
    missing = [name for name in (*rule.validity_column_names, rule.version) if name.lower() not in names]
    if missing and not stored.isEmpty():
        raise write_rules.without_versions(commit.log.table, missing)
    return bool(missing)


def _execute(commit: Commit, rule: Scd2, load: Staged, versions: DataFrame) -> int | None:
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


def _one_row_per_version(load: Staged, rows: DataFrame, rule: Scd2) -> tuple[DataFrame, int]:
    """Leave one row of each version, and count the rows that are left out.

    :raises MergeKeyError: Rows have the same version in the user's own version column, and differ.
    """
    identity = _identity(load, rule)
    counts = [F.count(F.lit(1)).alias("n")]
    if rule.row_version_column_name:
        counts.append(F.count_distinct(row_hash(rows.schema)).alias("contents"))
    by_version = rows.groupBy(*identity).agg(*counts).where("n > 1")
    duplicates = count_duplicates(by_version)
    if not duplicates:
        return rows, 0
    if rule.row_version_column_name:
        clash = by_version.where("contents > 1").select(F.col(identity[0]).cast("string")).first()
        if clash:
            raise MergeKeyError(
                f"Several rows for {load.table} have the same {rule.version}, {clash[0]!r}, and differ.",
                kept=NO_ROW_WRITTEN,
                do="give each version of a row its own value there, with its key in it; or leave "
                "row_version_column_name out: then all values of the row distinguish its versions",
            )
    return rows.dropDuplicates(identity), duplicates


def _identity(load: Staged, rule: Scd2) -> list[str]:
    """Find the columns that identify a version: its version column, and the key if there is one."""
    return [
        *load.columns("row_version_column_name", [rule.version]),
        *load.columns("merge_key", rule.merge_key),
    ]


def _merge(merge: Merge, rule: Scd2, versions: DataFrame) -> None:
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
    is_same_version = reduce(and_, [F.col(c) == F.col(f"k_{c}") for c in identity])
    # Versions that are on one side only are to be inserted, or to be retired.
    source = versions.join(stored, is_same_version, "full_outer")
    source = source.where(F.col(version).isNull() | F.col(f"k_{version}").isNull())
    pairs = load.pairs(identity, prefix="k_")
    builder = merge.into(source, [write_rules.equal(pairs), rule.is_active, *load.ranges_of(key)], once=True)
    builder = builder.whenMatchedUpdate(
        set={quoted(rule.validity_column_names[1]): _instant(rule.boundary_timestamp)}
    )
    builder.whenNotMatchedInsert(f"s.{quoted(pairs[0][1])} IS NULL", values=load.values()).execute()


def _is_active(rule: Scd2) -> Column:
    """Check whether a version of the table is active; fail if it is so by another timestamp.

    A version that ends never or in the far future, but not at this ``active_record_timestamp``, was written
    as active with another one: it would stay active beside all that is inserted now.
    """
    ends = f"t.{quoted(rule.validity_column_names[1])}"
    is_other = f"{ends} >= TIMESTAMP '{write_rules.FAR}' OR {ends} IS NULL"
    fails = F.raise_error(F.lit(_OTHER_TIMESTAMP)).cast("boolean")
    checked = F.when(F.expr(rule.is_active), F.lit(col=True)).otherwise(fails)
    # The first condition is the one by which Delta skips files.
    return F.expr(f"{rule.is_active} OR {is_other}") & checked


# ---- by the time of the source ----
# Each row of the source is one row of the table, whatever it changed: so the history of a key follows from
# its rows alone, and not from the order in which they came. Rows that are no version have an empty window: a
# delete at its own time; a row that is followed by an equal one, at the time of that. So but for deletes, a
# window ends at the time of the next row of the key, which is how the rows are found that a late row touches.


def _prepare_events(rows: DataFrame, rule: Scd2, columns: Mapping[str, str]) -> DataFrame:
    for name in rule.track_history_columns:
        write_rules.place("track_history_columns", name, rows.columns, "the table")
    tracked = row_hash([field for field in rows.schema if rule.tracks(field.name)])
    values = {name: F.lit(None).cast(kind) for name, kind in columns.items()}
    return rows.withColumns({**values, rule.version: tracked})


def _write_events(batch: Batch, commit: Commit, rule: Scd2, sequence_by: str) -> int | None:
    """Insert the rows of the source, and set the windows of those that they follow or precede."""
    keys = {"merge_key": rule.merge_key, "sequence_by": [sequence_by]}
    with staged(batch, keys, commit.log.table, [*rule.merge_key, sequence_by]) as load:
        rows, duplicates = one_row_per_key(load, rule.events)
        is_deleted = is_flagged(load, rule.hard_delete)
        kept = {int(c[1:]) for argument, names in keys.items() for c in load.columns(argument, names)}
        # A delete has a key and a time; the hash is what tells it from other rows.
        values = [
            F.when(~is_deleted, F.col(f"c{n}")).alias(f"c{n}")
            for n in range(len(load.names))
            if n not in kept
        ]
        changes = {"deduplicated": duplicates}
        if rule.hard_delete or batch.deleted is not None:
            changes["hard_deleted"] = rows.where(is_deleted).count()
        rows = rows.select(*[f"c{n}" for n in sorted(kept)], *values)
        commit.note(changes=changes)
        history = _History(load, rule, sequence_by)
        if batch.creates or batch.overwrites or (batch.brings_columns and _is_new_to_versions(commit, rule)):
            return plain.write(load.with_rows(history.with_windows(history.events(rows))), commit)
        if not load.keys.rows:
            return plain.write(batch, commit)
        check_stored_keys(load, commit, keys)
        try:
            with naming_ties(load, sequence_by):
                return commit.execute(lambda session: history.merge(Merge(session, load), rows))
        except SPARK_ERRORS as err:
            if _OTHER_TIME not in str(err):
                raise
            raise InputError(
                f"The table {load.table} {_OTHER_TIME}, and not by {sequence_by}.",
                kept=NO_ROW_WRITTEN,
                do="leave sequence_by as it was when the table was written; or run once with "
                "full_refresh=True, which starts the history over",
            ) from err


class _History:
    """The way from the rows of a batch, and those of the table that they touch, to their windows."""

    def __init__(self, load: Staged, rule: Scd2, sequence_by: str) -> None:
        self.load, self.rule = load, rule
        self.key = load.columns("merge_key", rule.merge_key)
        (self.sequence,) = load.columns("sequence_by", [sequence_by])
        self.begins, self.ends = load.columns("validity_column_names", rule.validity_column_names)
        (self.version,) = load.columns("row_version_column_name", [rule.version])
        self.sort = load.columns("dedup_sort", rule.dedup_sort[:1]) if rule.dedup_sort else []
        of_versions = {self.begins, self.ends, self.version}
        self.data = [n for n in range(len(load.names)) if f"c{n}" not in of_versions]

    def events(self, rows: DataFrame) -> DataFrame:
        """Mark the rows of the batch."""
        return rows.withColumns({"stored": F.lit(col=False), "content": self.load.content(self.data)})

    def with_windows(self, events: DataFrame) -> DataFrame:
        """Set the windows of all rows; the first one of a key keeps its start, if the table has it."""
        sequence, version, is_stored = F.col(self.sequence), F.col(self.version), F.col("stored")
        by_key = Window.partitionBy(*self.key)
        is_version = F.col(self.ends).isNull() | (F.col(self.begins) < F.col(self.ends))
        start = F.min(F.when(is_stored & is_version, F.col(self.begins))).over(by_key)
        rows = self._without_ties(events.withColumn("start", start))
        in_order = by_key.orderBy(sequence)
        following, before = F.lead(sequence).over(in_order), F.lag(version).over(in_order)
        is_first = F.row_number().over(in_order) == 1
        rows = rows.withColumns(
            {
                "following": following,
                "is_followed": F.coalesce(F.lead(version).over(in_order) == version, F.lit(col=False)),
                "begins": F.when(is_first & is_stored, F.least(sequence, "start")).when(
                    before.isNull() | (before != version), sequence
                ),
            }
        )
        begins = F.last("begins", ignorenulls=True).over(in_order.rowsBetween(Window.unboundedPreceding, 0))
        is_deleted = version.isNull()
        rows = rows.withColumn("begins", begins)
        return rows.withColumns(
            {
                "old_begins": F.col(self.begins),
                "old_ends": F.col(self.ends),
                self.begins: F.when(is_deleted, sequence)
                .when(F.col("is_followed"), F.col("following"))
                .otherwise(F.col("begins")),
                self.ends: F.when(is_deleted, sequence).otherwise(F.col("following")),
            }
        )

    def _without_ties(self, rows: DataFrame) -> DataFrame:
        """Choose between a row of the batch and one of the table with its key and its sequence.

        A delete counts before a row, then the order of ``dedup_sort``, then that of the contents: the same
        one, whichever was loaded first. Only of two commits of one millisecond the later one counts.
        """
        by_event = Window.partitionBy(*self.key, self.sequence)
        if self.rule.sequence_by == COMMIT:
            rows = rows.withColumn("n", F.row_number().over(by_event.orderBy("stored")))
            return rows.where("n = 1").drop("n")
        order = [F.col(self.version).isNull().desc()]
        if self.rule.dedup_sort:
            column = F.col(*self.sort)
            is_up = self.rule.dedup_sort[1] == "asc"
            order.append(column.asc_nulls_last() if is_up else column.desc_nulls_last())
        order += [F.col("content").asc(), F.col("stored").desc()]
        rows = rows.withColumn("n", F.row_number().over(by_event.orderBy(*order)))
        if not self.rule.dedup_sort:
            differ = F.min("content").over(by_event) != F.max("content").over(by_event)
            is_tied = differ & F.min(F.col(self.version).isNotNull()).over(by_event)
            shown = F.to_json(
                F.struct(*[F.col(c).alias(self.load.name(c)) for c in (*self.key, self.sequence)])
            )
            rows = rows.withColumn("n", F.when(is_tied, tie_error(shown)).otherwise(F.col("n")))
        return rows.where("n = 1").drop("n")

    def merge(self, merge: Merge, rows: DataFrame) -> None:
        """Insert the rows, and set the windows of the stored ones that change."""
        load = self.load
        events = self.events(rows)
        source = self.with_windows(events.unionByName(self._touched(merge, events), allowMissingColumns=True))
        moves = ~(
            F.col("old_begins").eqNullSafe(F.col(self.begins))
            & F.col("old_ends").eqNullSafe(F.col(self.ends))
        )
        source = source.where(~F.col("stored") | moves)
        source = source.select(*[f"c{n}" for n in range(len(load.names))], "stored")
        is_same_event = write_rules.equal(load.pairs([*self.key, self.sequence]))
        condition = [is_same_event, *load.ranges_of(self.key), *self._since()]
        builder = merge.into(source, condition, once=True)
        windows: dict[str, Any] = {
            quoted(name): f"s.{quoted(name)}" for name in self.rule.validity_column_names
        }
        builder = builder.whenMatchedUpdate(f"s.{quoted(load.in_source('stored'))}", set=windows)
        lacking = {quoted(name): "NULL" for name in load.batch.lacking}
        builder = builder.whenMatchedUpdate(set={**load.values(), **lacking})
        builder.whenNotMatchedInsert(values=load.values()).execute()

    def _since(self) -> list[str]:
        """Write the condition by which Delta skips files whose windows all end before the batch."""
        kind, ends = self.load.kind(self.sequence), f"t.{quoted(self.rule.validity_column_names[1])}"
        low, _ = self.load.keys.range(self.load.name(self.sequence).lower()) or (None, None)
        least = None if low is None else write_rules.as_literal(kind, loosened(kind, low, -1))
        return [] if least is None else [f"({ends} IS NULL OR {ends} >= {least})"]

    def _touched(self, merge: Merge, events: DataFrame) -> DataFrame:
        """Read the rows of the table that follow a row of the batch, and the one before them."""
        load = self.load
        table = merge.table.toDF().alias("t")
        names = {load.names[n].lower() for n in self.data} | {name.lower() for name in load.batch.lacking}
        content = row_hash(
            [field for field in table.schema if field.name.lower() in names], lambda name: f"t.{quoted(name)}"
        )
        columns = [*self.key, self.sequence, self.begins, self.ends, self.version]
        table_names = {name.lower() for name in table.columns}
        columns += [c for c in self.sort if c not in columns and load.name(c).lower() in table_names]
        values = [F.col(f"t.{quoted(load.name(column))}").alias(column) for column in columns]
        is_version = F.col(self.ends).isNull() | (F.col(self.begins) < F.col(self.ends))
        is_other = F.col(self.sequence).isNull() | (is_version & (F.col(self.begins) > F.col(self.sequence)))
        stored = table.where(" AND ".join(self._since()) or "true").select(
            *values, content.alias("content"), F.lit(col=True).alias("stored")
        )
        first = events.groupBy(*[F.col(c).alias(f"k_{c}") for c in self.key]).agg(
            F.min(self.sequence).alias("first")
        )
        condition = [F.col(c) == F.col(f"k_{c}") for c in self.key]
        condition.append(F.col(self.ends).isNull() | (F.col(self.ends) >= F.col("first")))
        stored = stored.join(first, reduce(and_, condition), "left_semi")
        fails = F.raise_error(F.lit(_OTHER_TIME)).cast("boolean")
        return stored.where(F.when(is_other, fails).otherwise(F.lit(col=True)))
