"""Put the rows of a batch in the place of those with the same keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import merge as rules
from airflow_provider_scope.core import settings, small
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.staging import GONE, Staged, flagged, one_for_each, staged
from airflow_provider_scope.spark.writes import rows as plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.merge import MergeRule
    from airflow_provider_scope.spark.commit import Batch, Commit
    from airflow_provider_scope.spark.held import Keys

SOURCE = "spark.databricks.delta.merge.materializeSource"
"""Whether Delta reads the source of a MERGE once and keeps it: it goes over it twice."""
_REPARTITION = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
"""Whether Delta brings the rows of a partition together. It takes a column with a dot for a field."""

_HASHED = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
"""Up to which size Spark keeps a task's part of one side of a join in memory, and sorts neither side.

No part may be larger than Spark makes one on purpose. By itself Spark would sort the whole table."""
_HASHED_ROWS = 200_000
"""Rows of the batch for each task, up to which they are kept so, whatever their size on disk."""


def prepare_session(session: SparkSession, batch: Batch, load: Staged, *, once: bool = False) -> None:
    """Set in the session of a MERGE what this one needs.

    :param once: Whether Delta has to keep what it reads of the source: that is from the table itself.
    """
    # The rows are held. What is read here is the table, whose files may not say which calendar they have.
    for name, value in settings.OF_TABLES.items():
        session.conf.set(name, value)
    # What was staged is kept already, and does not come again if it is lost.
    session.conf.set(SOURCE, "all" if once else "none")
    if load.read <= _HASHED_ROWS * int(session.conf.get("spark.sql.shuffle.partitions") or 1):
        session.conf.set(
            _HASHED, session.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes") or "64m"
        )
    if any("." in name or "`" in name for name in batch.partitions):
        session.conf.set(_REPARTITION, "false")
    if small.is_small_merge(load.read, DeltaLog(session, load.table).size_bytes()):
        for name, value in small.SETTINGS.items():
            session.conf.set(name, value)


def write(batch: Batch, commit: Commit) -> int | None:
    """Merge rows by the rule of the batch: one commit, also if it changes nothing."""
    rule = rules.rule_from(batch.how)
    keys = {"primary_key": rule.primary_key, "merge_key": rule.merge_key}
    deleted = None if batch.deleted is None else (batch.deleted, rule.primary_key)
    known = _known(batch, rule)
    with staged(batch.rows, keys, commit.log.table, deleted, known) as load:
        is_one = known is not None or not rule.primary_key
        rows, doubled = (load.rows, 0) if is_one else one_for_each(load, rule)
        rows = rows.withColumn("flag", flagged(load, rule.hard_delete))
        if deleted:
            rows = rows.withColumn("flag", F.col("flag") | F.col(GONE)).drop(GONE)
        changes = {"deduplicated": doubled}
        if rule.hard_delete:
            changes["hard_deleted"] = rows.where("flag").count()
        elif deleted:
            changes["hard_deleted"] = load.keys.gone
        commit.note(changes=changes)
        live = replace(batch, rows=load.only(rows.where("NOT flag")))
        if batch.creates or batch.overwrites or not rule.has_keys:
            return plain.write(live, commit)
        partitions = _partitions(load, rule, batch)
        if partitions:
            return plain.write(replace(live, overwrites=True, where=partitions), commit)
        merge = _STRATEGIES[rule.strategy]
        return commit.execute(lambda session: merge(_Merge(session, batch, rule, load), rows))


def _known(batch: Batch, rule: MergeRule) -> Keys | None:
    """Give what is known of the primary key of rows that are held.

    Not if something can fail yet when they are read: a value of a column that partitions the table does.
    """
    if batch.keys is None or batch.partitions or rule.merge_key:
        return None
    kinds = {name.lower(): kind for name, kind in batch.rows.dtypes}
    same = {name.lower(): kinds.get(name.lower()) for name in rule.primary_key} == batch.keys.kinds
    return batch.keys if same else None


def _partitions(load: Staged, rule: MergeRule, batch: Batch) -> str | None:
    """Give the partitions that a batch replaces as a whole: no row of them has to be looked at.

    :return: None if it replaces other rows, or none.
    """
    columns = load.columns("merge_key", rule.merge_key)
    if rule.primary_key or not all(load.name(column) in batch.partitions for column in columns):
        return None
    return load.values_of(columns)


@dataclass(frozen=True, slots=True)
class _Merge:
    """One MERGE that is being made."""

    session: SparkSession
    batch: Batch
    rule: MergeRule
    load: Staged

    @property
    def table(self) -> DeltaTable:
        """The table, in the session of the MERGE."""
        return DeltaTable.forPath(self.session, self.load.table)

    @property
    def key(self) -> list[str]:
        """The columns of the primary key."""
        return self.load.columns("primary_key", self.rule.primary_key)

    @property
    def merge_key(self) -> list[str]:
        """The columns of the merge key."""
        return self.load.columns("merge_key", self.rule.merge_key)

    def named(self, columns: Sequence[str], *, prefix: str = "") -> list[tuple[str, str]]:
        """Give pairs of a column of the table and one of the source."""
        return [(self.load.name(c), self.load.in_source(f"{prefix}{c}")) for c in columns]

    def helper(self, name: str) -> str:
        """Give a column of the source that is none of the table, for a condition."""
        return f"s.{quoted(self.load.in_source(name))}"

    def into(self, source: DataFrame, condition: str, *, once: bool = False) -> DeltaMergeBuilder:
        """Begin a MERGE.

        :param once: Whether Delta has to keep what it reads of the source: that is from the table itself.
        """
        prepare_session(self.session, self.batch, self.load, once=once)
        builder = self.table.alias("t").merge(self.load.source(source), condition)
        return builder.withSchemaEvolution() if self.batch.brings_columns else builder


def _upsert(merge: _Merge, rows: DataFrame) -> None:
    load = merge.load
    ranges = load.ranges_of(merge.key, merge.batch.partitions)
    builder = merge.into(rows, " AND ".join([rules.equal(merge.named(merge.key)), *ranges]))
    if merge.rule.hard_delete or merge.batch.deleted is not None:
        builder = builder.whenMatchedDelete(merge.helper("flag"))
    # What the batch lacks is NULL, as in a row that is inserted.
    values = {**load.values(), **{quoted(name): "NULL" for name in merge.batch.lacking}}
    builder = builder.whenMatchedUpdate(set=values)
    builder.whenNotMatchedInsert(f"NOT {merge.helper('flag')}", values=load.values()).execute()


def _insert_only(merge: _Merge, rows: DataFrame) -> None:
    ranges = merge.load.ranges_of(merge.key, merge.batch.partitions)
    condition = " AND ".join([rules.equal(merge.named(merge.key)), *ranges])
    builder = merge.into(rows.where("NOT flag"), condition)
    builder.whenNotMatchedInsert(values=merge.load.values()).execute()


def _delete_insert(merge: _Merge, rows: DataFrame) -> None:
    """Delete by keys and insert rows, as one MERGE: no row to insert has a key, so none of them matches."""
    load, both = merge.load, bool(merge.key and merge.merge_key)
    columns = [*dict.fromkeys([*merge.key, *merge.merge_key])]
    # Of each primary key, one row is left.
    keys = _in_table(merge) if both else rows if merge.key else _distinct(rows, columns)
    old = keys.select(*[F.col(c).alias(f"k_{c}") for c in columns], F.lit(1).alias("old"))
    new = rows.where("NOT flag").drop("flag")
    source = old.unionByName(new, allowMissingColumns=True)
    is_old = merge.helper("old")
    condition = [f"{is_old} = 1", rules.equal(merge.named(columns, prefix="k_"), with_null=both)]
    if not both:
        condition += load.ranges_of(columns, merge.batch.partitions)
    builder = merge.into(source, " AND ".join(condition), once=both)
    builder.whenMatchedDelete().whenNotMatchedInsert(f"{is_old} IS NULL", values=load.values()).execute()


def _in_table(merge: _Merge) -> DataFrame:
    """Give the pairs of keys in the table of which one is in the batch.

    Delta looks at the table as the MERGE does, in the same transaction: what another writer adds is a
    conflict, not a row that is missed.
    """
    columns = [*dict.fromkeys([*merge.key, *merge.merge_key])]
    stored = merge.table.toDF().select(
        *[F.col(quoted(merge.load.name(column))).alias(column) for column in columns]
    )
    found = [
        stored.join(_distinct(merge.load.rows, key), [*key], "left_semi")
        for key in (merge.key, merge.merge_key)
    ]
    return reduce(lambda one, other: one.unionByName(other), found).distinct()


def _distinct(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return rows.select(*columns).distinct()


_STRATEGIES: dict[str, Callable[[_Merge, Any], None]] = {
    "delete-insert": _delete_insert,
    "upsert": _upsert,
    "insert-only": _insert_only,
}
