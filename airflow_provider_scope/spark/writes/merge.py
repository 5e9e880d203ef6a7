"""Put the rows of a batch in the place of those with the same keys; they are read once, and held."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import merge_rule
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, MergeKeyError
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.held import Keys, as_text, looks, released
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.delta.merge_rule import MergeRule
    from airflow_provider_scope.spark.commit import Batch, Commit


_EXAMPLES = 3
GONE = "gone"
"""The column that tells rows to be deleted, where a batch has such."""
_POSITION = re.compile(r"c[0-9]+")


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows of a batch that Spark has read once and holds until the batch is written.

    Their columns are called ``c0``, ``c1`` and so on until they are merged: any name may be one of the table.
    """

    rows: DataFrame
    names: tuple[str, ...]
    """The table's columns, by position."""
    kinds: tuple[str, ...]
    table: str
    keys: Keys
    """What was seen of the columns of the keys, by the table's names in small letters."""

    @property
    def read(self) -> int:
        """Rows of the batch."""
        return self.keys.rows

    def columns(self, argument: str, named: Sequence[str]) -> list[str]:
        """Give the columns of the source for names that an argument has."""
        return [f"c{merge_rule.place(argument, name, self.names, self.table)}" for name in named]

    def name(self, column: str) -> str:
        """Give the table's name of a column of the source."""
        return self.names[int(column[1:])]

    def kind(self, column: str) -> str:
        """Give the type of a column of the source."""
        return self.kinds[int(column[1:])]

    def values(self) -> dict[str, Any]:
        """Give what a row that is inserted has in each column."""
        return {quoted(name): f"s.{quoted(name)}" for name in self.names}

    def source(self, rows: DataFrame) -> DataFrame:
        """Give the source of a MERGE: Delta adds a column to the table if the source has one of its name."""
        return rows.toDF(*[self.in_source(column) for column in rows.columns]).alias("s")

    def in_source(self, column: str) -> str:
        """Give the name in the source of a MERGE; what is no column of the table has none of its names."""
        if _POSITION.fullmatch(column):
            return self.name(column)
        taken = {name.lower() for name in self.names}
        while column.lower() in taken:
            column += "_"
        return column

    def only(self, rows: DataFrame) -> DataFrame:
        """Give rows with the names of the table."""
        return rows.select(*[F.col(f"c{n}").alias(name) for n, name in enumerate(self.names)])

    def ranges_of(self, columns: Sequence[str], partitions: Sequence[str]) -> list[str]:
        """Give the conditions by which files without any of the keys need not be read.

        :param partitions: Columns of the table that partition it: of them, each value is named.
        """
        found = []
        for column in columns:
            name, kind = self.name(column), self.kind(column)
            condition = merge_rule.within(name, kind, *(self.keys.range(name.lower()) or (None, None)))
            found += [condition] if condition else []
        named = self.values_of([column for column in columns if self.name(column) in partitions], of="t.")
        return [*found, f"({named})"] if named else found

    def values_of(self, columns: Sequence[str], *, of: str = "") -> str | None:
        """Give the condition that some columns have values of the batch; None if these are too many.

        :param of: What stands before each name: in a MERGE the source has such columns, too.
        """
        if not columns:
            return None
        texts = [as_text(F.col(column), self.kind(column)) for column in columns]
        values = self.rows.select(*texts).distinct().limit(_VALUES + 1).collect()
        if len(values) > _VALUES:
            return None
        return merge_rule.one_of([(self.name(c), self.kind(c)) for c in columns], sorted(values), of=of)


_VALUES = 100
"""Values of partition columns that are named in a condition."""


@contextmanager
def staged(
    batch: Batch,
    keys: Mapping[str, Sequence[str]],
    table: str,
    deleted: tuple[DataFrame, Sequence[str]] | None = None,
    known: Keys | None = None,
) -> Iterator[Staged]:
    """Read the rows of a batch once, see that each has its keys, and hold them for the block.

    :param keys: Argument -> the columns that it names.
    :param deleted: Rows that stand for those to be deleted, and the names of their columns: they are held
        beside the others, and ``GONE`` tells them.
    :param known: What was seen of the keys, if Spark holds the rows already.
    :raises MergeKeyError: A key is NULL.
    :raises InputError: There is no such column, or its type is none for a key.
    """
    rows = batch.rows
    names, kinds = tuple(rows.columns), tuple(field.dataType.simpleString() for field in rows.schema)
    positions: dict[int, str] = {}
    for argument, columns in keys.items():
        for name in columns:
            position = merge_rule.place(argument, name, names, table)
            merge_rule.check_key(argument, names[position], kinds[position], table)
            positions.setdefault(position, argument)
    plain = rows.toDF(*[f"c{number}" for number in range(len(names))])
    if deleted:
        plain = _with_deleted(plain, *deleted, names, kinds)
    # Files may have such a text without its blanks, so there are no literals of it in the condition.
    kinds = tuple("char" if name.lower() in batch.chars else kinds[n] for n, name in enumerate(names))
    if known is None:
        seen, gone = Observation(), F.col(GONE) if deleted else F.lit(col=False)
        looked_at = {names[n].lower(): (F.col(f"c{n}"), kinds[n]) for n in positions}
        # Of a row to be deleted, the keys alone are known.
        plain = plain.observe(seen, *looks(looked_at, ~gone, gone)).localCheckpoint(eager=True)
        found = Keys({name: kind for name, (_, kind) in looked_at.items()}, seen.get)
    else:
        found = known
    rows = plain.coalesce(1) if settings.is_small_batch(found.rows) else plain
    result = Staged(rows, names, kinds, table, found)
    with released(plain) if known is None else nullcontext():
        for number, argument in positions.items():
            if found.nulls(names[number].lower()):
                raise _no_key(result, number, argument)
        yield result


def _with_deleted(
    plain: DataFrame, deleted: DataFrame, key: Sequence[str], names: Sequence[str], kinds: Sequence[str]
) -> DataFrame:
    places = [(name, merge_rule.place("the key", name, names, "")) for name in key]
    columns = [F.col(quoted(name)).cast(kinds[n]).alias(f"c{n}") for name, n in places]
    gone = deleted.select(*columns, F.lit(True).alias(GONE))  # noqa: FBT003 - a value
    return plain.withColumn(GONE, F.lit(False)).unionByName(gone, allowMissingColumns=True)  # noqa: FBT003


def one_for_each(staged: Staged, rule: merge_rule.MergeRule) -> tuple[DataFrame, int]:
    """Give the row that counts of each primary key, and how many rows do not.

    Without ``dedup_sort`` it is always the same one of the rows, whatever their order.

    :raises MergeKeyError: Nothing says which one counts.
    :raises InputError: ``dedup_sort`` names no column, whether or not a key comes twice.
    """
    key = staged.columns("primary_key", rule.primary_key)
    order = []
    if rule.dedup_sort:
        name, direction = rule.dedup_sort
        column = F.col(*staged.columns("dedup_sort", [name]))
        order.append(column.asc_nulls_last() if direction == "asc" else column.desc_nulls_last())
    by_key = staged.rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    doubled = by_key.agg(F.sum(F.col("n") - 1)).first()
    more = int(doubled[0] or 0) if doubled else 0
    if not more:
        return staged.rows, 0
    if rule.needs_winner:
        raise _doubled(staged, key, by_key)
    order.append(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    window = Window.partitionBy(*key).orderBy(*order)
    first = staged.rows.withColumn("n", F.row_number().over(window)).where("n = 1").drop("n")
    return first, more


def flagged(staged: Staged, hard_delete: str | None) -> Column:
    """Give the condition that a row is one to be deleted."""
    if hard_delete is None:
        return F.lit(col=False)
    (column,) = staged.columns("hard_delete", [hard_delete])
    if staged.kind(column) == "boolean":
        return F.coalesce(F.col(column), F.lit(col=False))
    return F.col(column).isNotNull()


def _shown(staged: Staged, rows: DataFrame, columns: Sequence[str]) -> str:
    """Give a few rows with the names of the table, for a message."""
    told = []
    for row in rows.select(*[as_text(F.col(c), staged.kind(c)) for c in columns]).limit(_EXAMPLES).collect():
        pairs = (
            f"{staged.name(c)} {'NULL' if value is None else repr(value)}"
            for c, value in zip(columns, row, strict=True)
        )
        told.append(", ".join(pairs))
    return "; ".join(told)


def _no_key(staged: Staged, number: int, argument: str) -> MergeKeyError:
    count = staged.keys.nulls(staged.names[number].lower())
    columns = [f"c{n}" for n, kind in enumerate(staged.kinds) if merge_rule.KEYS.fullmatch(kind)]
    rows = staged.rows.where(F.col(f"c{number}").isNull())
    if GONE in rows.columns:
        rows = rows.where(~F.col(GONE))
    return MergeKeyError(
        f"{count:,} of {staged.read:,} rows for {staged.table} have no {staged.names[number]}, which is a "
        f"{argument}: {_shown(staged, rows, columns)}.",
        kept=NO_ROW_WRITTEN,
        do="correct the source; or give the column a value in `sql`, or leave such rows out there, with "
        "WHERE … IS NOT NULL",
    )


def _doubled(staged: Staged, key: Sequence[str], by_key: DataFrame) -> MergeKeyError:
    return MergeKeyError(
        f"Several rows for {staged.table} have the same primary key: {_shown(staged, by_key, key)}.",
        kept=NO_ROW_WRITTEN,
        do="set dedup_sort=(column, 'desc') to decide which of them counts; or select one row for each key",
    )


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
    if settings.is_small_merge(load.read, DeltaLog(session, load.table).size_bytes()):
        for name, value in settings.OF_SMALL.items():
            session.conf.set(name, value)


def write(batch: Batch, commit: Commit) -> int | None:
    """Merge rows by the rule of the batch: one commit, also if it changes nothing."""
    rule = merge_rule.rule_from(batch.how)
    keys = {"primary_key": rule.primary_key, "merge_key": rule.merge_key}
    deleted = None if batch.deleted is None else (batch.deleted, rule.primary_key)
    known = _known(batch, rule)
    with staged(batch, keys, commit.log.table, deleted, known) as load:
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
    builder = merge.into(rows, " AND ".join([merge_rule.equal(merge.named(merge.key)), *ranges]))
    if merge.rule.hard_delete or merge.batch.deleted is not None:
        builder = builder.whenMatchedDelete(merge.helper("flag"))
    # What the batch lacks is NULL, as in a row that is inserted.
    values = {**load.values(), **{quoted(name): "NULL" for name in merge.batch.lacking}}
    builder = builder.whenMatchedUpdate(set=values)
    builder.whenNotMatchedInsert(f"NOT {merge.helper('flag')}", values=load.values()).execute()


def _insert_only(merge: _Merge, rows: DataFrame) -> None:
    ranges = merge.load.ranges_of(merge.key, merge.batch.partitions)
    condition = " AND ".join([merge_rule.equal(merge.named(merge.key)), *ranges])
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
    condition = [f"{is_old} = 1", merge_rule.equal(merge.named(columns, prefix="k_"), with_null=both)]
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
