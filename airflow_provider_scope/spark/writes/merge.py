"""Replace the rows of the table that have the keys of a batch; the batch is read once, and Spark holds it."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import merge_rule
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, MergeKeyError
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.held import Keys, as_text, key_aggregates, released
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.delta.merge_rule import MergeRule
    from airflow_provider_scope.spark.commit import Batch, Commit


_EXAMPLES = 3
IS_DELETED = "is_deleted"
"""The column that marks rows that stand for a key to be deleted, if the batch has such rows."""
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
    """Counts and ranges of the columns of the keys, by the table's names in lower case."""

    @property
    def row_count(self) -> int:
        """How many rows the batch has."""
        return self.keys.rows

    def columns(self, argument: str, named: Sequence[str]) -> list[str]:
        """Give the columns of the source for the names that an argument of the write has."""
        return [f"c{merge_rule.place(argument, name, self.names, self.table)}" for name in named]

    def name(self, column: str) -> str:
        """Give the table's name for a column of the source."""
        return self.names[int(column[1:])]

    def kind(self, column: str) -> str:
        return self.kinds[int(column[1:])]

    def values(self) -> dict[str, Any]:
        """Give the value in SQL that an inserted row has in each column."""
        return {quoted(name): f"s.{quoted(name)}" for name in self.names}

    def source(self, rows: DataFrame) -> DataFrame:
        """Give rows as the source of a MERGE, with the names of the table.

        Delta finds new columns of the table by their names in the source.
        """
        return rows.toDF(*[self.in_source(column) for column in rows.columns]).alias("s")

    def in_source(self, column: str) -> str:
        """Give the name that a column has in the source of a MERGE.

        A column that is not for the table, such as a flag, gets a name that the table does not have.
        """
        if _POSITION.fullmatch(column):
            return self.name(column)
        table_names = {name.lower() for name in self.names}
        while column.lower() in table_names:
            column += "_"
        return column

    def as_table_rows(self, rows: DataFrame) -> DataFrame:
        """Give the columns of the table alone, with its names."""
        return rows.select(*[F.col(f"c{n}").alias(name) for n, name in enumerate(self.names)])

    def ranges_of(self, columns: Sequence[str], partitions: Sequence[str]) -> list[str]:
        """Give the conditions by which Delta skips files without any of the keys.

        :param partitions: Columns of the table that partition it: their values are listed one by one.
        """
        conditions = []
        for column in columns:
            name, kind = self.name(column), self.kind(column)
            condition = merge_rule.within(name, kind, *(self.keys.range(name.lower()) or (None, None)))
            if condition:
                conditions.append(condition)
        partition_columns = [column for column in columns if self.name(column) in partitions]
        values = self.values_of(partition_columns, prefix="t.")
        return [*conditions, f"({values})"] if values else conditions

    def values_of(self, columns: Sequence[str], *, prefix: str = "") -> str | None:
        """Give the condition that some columns have values of the batch; None if these are too many.

        :param prefix: Before each name: in a MERGE the source has columns of these names, too.
        """
        if not columns:
            return None
        texts = [as_text(F.col(column), self.kind(column)) for column in columns]
        values = self.rows.select(*texts).distinct().limit(_VALUES + 1).collect()
        if len(values) > _VALUES:
            return None
        return merge_rule.one_of([(self.name(c), self.kind(c)) for c in columns], sorted(values), of=prefix)


_VALUES = 100
"""The most values of partition columns that a condition lists."""


@contextmanager
def staged(
    batch: Batch,
    keys: Mapping[str, Sequence[str]],
    table: str,
    deleted: tuple[DataFrame, Sequence[str]] | None = None,
    held_keys: Keys | None = None,
) -> Iterator[Staged]:
    """Read the rows of a batch once, check that each has its keys, and hold them for the block.

    :param keys: Argument -> the columns that it names.
    :param deleted: Rows that stand for keys to be deleted, and the names of their columns: they are held
        with the others, and ``IS_DELETED`` marks them.
    :param held_keys: Counts and ranges of the keys, if Spark holds the rows already.
    :raises MergeKeyError: A key is NULL.
    :raises InputError: There is no such column, or a key cannot have its type.
    """
    rows = batch.rows
    names, kinds = tuple(rows.columns), tuple(field.dataType.simpleString() for field in rows.schema)
    positions: dict[int, str] = {}
    for argument, columns in keys.items():
        for name in columns:
            position = merge_rule.place(argument, name, names, table)
            merge_rule.check_key(argument, names[position], kinds[position], table)
            positions.setdefault(position, argument)
    numbered_rows = rows.toDF(*[f"c{number}" for number in range(len(names))])
    if deleted:
        numbered_rows = _with_deleted(numbered_rows, *deleted, names, kinds)
    # Files may have the text of a CHAR column without its blanks, so no condition has literals of it.
    kinds = tuple("char" if name.lower() in batch.chars else kinds[n] for n, name in enumerate(names))
    if held_keys is None:
        observation = Observation()
        is_deleted = F.col(IS_DELETED) if deleted else F.lit(col=False)
        key_columns = {names[n].lower(): (F.col(f"c{n}"), kinds[n]) for n in positions}
        # A row to be deleted has values in the columns of the primary key only.
        aggregates = key_aggregates(key_columns, ~is_deleted, is_deleted)
        numbered_rows = numbered_rows.observe(observation, *aggregates).localCheckpoint(eager=True)
        key_facts = Keys({name: kind for name, (_, kind) in key_columns.items()}, observation.get)
    else:
        key_facts = held_keys
    rows = numbered_rows.coalesce(1) if settings.is_small_batch(key_facts.rows) else numbered_rows
    load = Staged(rows, names, kinds, table, key_facts)
    with released(numbered_rows) if held_keys is None else nullcontext():
        for number, argument in positions.items():
            if key_facts.nulls(names[number].lower()):
                raise _no_key(load, number, argument)
        yield load


def _with_deleted(
    numbered_rows: DataFrame,
    deleted: DataFrame,
    key: Sequence[str],
    names: Sequence[str],
    kinds: Sequence[str],
) -> DataFrame:
    """Add rows that stand for keys to be deleted, and mark them."""
    positions = [(name, merge_rule.place("the key", name, names, "")) for name in key]
    columns = [F.col(quoted(name)).cast(kinds[n]).alias(f"c{n}") for name, n in positions]
    marked = deleted.select(*columns, F.lit(col=True).alias(IS_DELETED))
    unmarked = numbered_rows.withColumn(IS_DELETED, F.lit(col=False))
    return unmarked.unionByName(marked, allowMissingColumns=True)


def one_row_per_key(staged: Staged, rule: merge_rule.MergeRule) -> tuple[DataFrame, int]:
    """Give the row that counts for each primary key, and the number of rows that do not count.

    Without ``dedup_sort`` it is the same row in each try, whatever order Spark reads them in.

    :raises MergeKeyError: A key comes twice, and nothing says which row counts.
    :raises InputError: ``dedup_sort`` names no column, whether or not a key comes twice.
    """
    key = staged.columns("primary_key", rule.primary_key)
    order = []
    if rule.dedup_sort:
        name, direction = rule.dedup_sort
        column = F.col(*staged.columns("dedup_sort", [name]))
        order.append(column.asc_nulls_last() if direction == "asc" else column.desc_nulls_last())
    by_key = staged.rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    total = by_key.agg(F.sum(F.col("n") - 1)).first()
    duplicates = int(total[0] or 0) if total else 0
    if not duplicates:
        return staged.rows, 0
    if rule.needs_winner:
        raise _doubled(staged, key, by_key)
    order.append(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    window = Window.partitionBy(*key).orderBy(*order)
    first_rows = staged.rows.withColumn("n", F.row_number().over(window)).where("n = 1").drop("n")
    return first_rows, duplicates


def flagged(staged: Staged, hard_delete: str | None) -> Column:
    """Give the condition that the column named by ``hard_delete`` marks a row as one to be deleted."""
    if hard_delete is None:
        return F.lit(col=False)
    (column,) = staged.columns("hard_delete", [hard_delete])
    if staged.kind(column) == "boolean":
        return F.coalesce(F.col(column), F.lit(col=False))
    return F.col(column).isNotNull()


def _examples(staged: Staged, rows: DataFrame, columns: Sequence[str]) -> str:
    """Give a few rows, with the table's names of the columns, for a message."""
    texts = []
    for row in rows.select(*[as_text(F.col(c), staged.kind(c)) for c in columns]).limit(_EXAMPLES).collect():
        pairs = (
            f"{staged.name(c)} {'NULL' if value is None else repr(value)}"
            for c, value in zip(columns, row, strict=True)
        )
        texts.append(", ".join(pairs))
    return "; ".join(texts)


def _no_key(staged: Staged, number: int, argument: str) -> MergeKeyError:
    count = staged.keys.nulls(staged.names[number].lower())
    columns = [f"c{n}" for n, kind in enumerate(staged.kinds) if merge_rule.KEYS.fullmatch(kind)]
    rows = staged.rows.where(F.col(f"c{number}").isNull())
    if IS_DELETED in rows.columns:
        rows = rows.where(~F.col(IS_DELETED))
    return MergeKeyError(
        f"{count:,} of {staged.row_count:,} rows for {staged.table} have no {staged.names[number]}, which is "
        f"a {argument}: {_examples(staged, rows, columns)}.",
        kept=NO_ROW_WRITTEN,
        do="correct the source; or give the column a value in `sql`, or leave such rows out there, with "
        "WHERE … IS NOT NULL",
    )


def _doubled(staged: Staged, key: Sequence[str], by_key: DataFrame) -> MergeKeyError:
    return MergeKeyError(
        f"Several rows for {staged.table} have the same primary key: {_examples(staged, by_key, key)}.",
        kept=NO_ROW_WRITTEN,
        do="set dedup_sort=(column, 'desc') to decide which of them counts; or select one row for each key",
    )


SOURCE = "spark.databricks.delta.merge.materializeSource"
"""Whether Delta keeps the source of a MERGE, which it reads twice, after the first read."""
_REPARTITION = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
"""Whether Delta brings the rows of a partition together before it writes them. It takes a column whose name
has a dot for a field of a struct."""

_HASHED = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
"""Up to this size, Spark keeps a task's part of one side of a join in memory, and sorts neither side.

It is set to the size that Spark aims at for a part. By default, Spark would sort the whole table."""
_HASHED_ROWS = 200_000
"""Up to so many rows of the batch for each task they are kept in memory, whatever their size on disk."""


def prepare_session(session: SparkSession, batch: Batch, load: Staged, *, once: bool = False) -> None:
    """Set the settings of Spark that a MERGE needs, in its own session.

    :param once: Whether Delta has to keep the source after the first read, as it comes from the table itself.
    """
    # The rows are held: only the table is read here, and its files may not say which calendar they have.
    for name, value in settings.OF_TABLES.items():
        session.conf.set(name, value)
    # Spark holds the batch already; if it is lost, it cannot be read again.
    session.conf.set(SOURCE, "all" if once else "none")
    if load.row_count <= _HASHED_ROWS * int(session.conf.get("spark.sql.shuffle.partitions") or 1):
        session.conf.set(
            _HASHED, session.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes") or "64m"
        )
    if any("." in name or "`" in name for name in batch.partitions):
        session.conf.set(_REPARTITION, "false")
    if settings.is_small_merge(load.row_count, DeltaLog(session, load.table).size_bytes()):
        for name, value in settings.OF_SMALL.items():
            session.conf.set(name, value)


def write(batch: Batch, commit: Commit) -> int | None:
    """Merge the rows by the rule of the batch, in one commit, even if that changes no row."""
    rule = merge_rule.rule_from(batch.how)
    keys = {"primary_key": rule.primary_key, "merge_key": rule.merge_key}
    deleted = None if batch.deleted is None else (batch.deleted, rule.primary_key)
    held_keys = _held_keys(batch, rule)
    with staged(batch, keys, commit.log.table, deleted, held_keys) as load:
        is_unique = held_keys is not None or not rule.primary_key
        rows, duplicates = (load.rows, 0) if is_unique else one_row_per_key(load, rule)
        rows = rows.withColumn("flag", flagged(load, rule.hard_delete))
        if deleted:
            rows = rows.withColumn("flag", F.col("flag") | F.col(IS_DELETED)).drop(IS_DELETED)
        changes = {"deduplicated": duplicates}
        if rule.hard_delete:
            changes["hard_deleted"] = rows.where("flag").count()
        elif deleted:
            changes["hard_deleted"] = load.keys.deleted
        commit.note(changes=changes)
        live = replace(batch, rows=load.as_table_rows(rows.where("NOT flag")))
        if batch.creates or batch.overwrites or not rule.has_keys:
            return plain.write(live, commit)
        partitions = _partitions(load, rule, batch)
        if partitions:
            return plain.write(replace(live, overwrites=True, where=partitions), commit)
        merge = _STRATEGIES[rule.strategy]
        return commit.execute(lambda session: merge(_Merge(session, batch, rule, load), rows))


def _held_keys(batch: Batch, rule: MergeRule) -> Keys | None:
    """Give the counts and ranges of the primary key, if Spark holds the rows already.

    :return: None if they are to be read again: a check of the columns that partition the table, which fails
        at some values, has not been done when they were held.
    """
    if batch.keys is None or batch.partitions or rule.merge_key:
        return None
    kinds = {name.lower(): kind for name, kind in batch.rows.dtypes}
    key_kinds = {name.lower(): kinds.get(name.lower()) for name in rule.primary_key}
    return batch.keys if key_kinds == batch.keys.kinds else None


def _partitions(load: Staged, rule: MergeRule, batch: Batch) -> str | None:
    """Give the condition for the partitions that a batch replaces as a whole: their rows need not be read.

    :return: None if it replaces other rows, or none.
    """
    columns = load.columns("merge_key", rule.merge_key)
    if rule.primary_key or not all(load.name(column) in batch.partitions for column in columns):
        return None
    return load.values_of(columns)


@dataclass(frozen=True, slots=True)
class _Merge:
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
        return self.load.columns("primary_key", self.rule.primary_key)

    @property
    def merge_key(self) -> list[str]:
        return self.load.columns("merge_key", self.rule.merge_key)

    def pairs(self, columns: Sequence[str], *, prefix: str = "") -> list[tuple[str, str]]:
        """Give pairs of names: of a column in the table, and of the same one in the source."""
        return [(self.load.name(c), self.load.in_source(f"{prefix}{c}")) for c in columns]

    def helper(self, name: str) -> str:
        """Give the SQL of a column that the source has and the table does not."""
        return f"s.{quoted(self.load.in_source(name))}"

    def into(self, source: DataFrame, condition: str, *, once: bool = False) -> DeltaMergeBuilder:
        """Begin the MERGE of a source into the table.

        :param once: As in ``prepare_session``.
        """
        prepare_session(self.session, self.batch, self.load, once=once)
        builder = self.table.alias("t").merge(self.load.source(source), condition)
        return builder.withSchemaEvolution() if self.batch.brings_columns else builder


def _upsert(merge: _Merge, rows: DataFrame) -> None:
    load = merge.load
    ranges = load.ranges_of(merge.key, merge.batch.partitions)
    builder = merge.into(rows, " AND ".join([merge_rule.equal(merge.pairs(merge.key)), *ranges]))
    if merge.rule.hard_delete or merge.batch.deleted is not None:
        builder = builder.whenMatchedDelete(merge.helper("flag"))
    # A column that the batch lacks becomes NULL, as in a row that is inserted.
    values = {**load.values(), **{quoted(name): "NULL" for name in merge.batch.lacking}}
    builder = builder.whenMatchedUpdate(set=values)
    builder.whenNotMatchedInsert(f"NOT {merge.helper('flag')}", values=load.values()).execute()


def _insert_only(merge: _Merge, rows: DataFrame) -> None:
    ranges = merge.load.ranges_of(merge.key, merge.batch.partitions)
    condition = " AND ".join([merge_rule.equal(merge.pairs(merge.key)), *ranges])
    builder = merge.into(rows.where("NOT flag"), condition)
    builder.whenNotMatchedInsert(values=merge.load.values()).execute()


def _delete_insert(merge: _Merge, rows: DataFrame) -> None:
    """Delete rows by their keys and insert the rows of the batch, in one MERGE.

    Its source has a row for each key to delete, and the rows to insert. The latter have no values in the
    columns of the condition, so none of them matches.
    """
    load, both = merge.load, bool(merge.key and merge.merge_key)
    columns = [*dict.fromkeys([*merge.key, *merge.merge_key])]
    # The rows have each primary key once.
    keys = _keys_in_table(merge) if both else rows if merge.key else _distinct(rows, columns)
    old = keys.select(*[F.col(c).alias(f"k_{c}") for c in columns], F.lit(1).alias("old"))
    new = rows.where("NOT flag").drop("flag")
    source = old.unionByName(new, allowMissingColumns=True)
    is_old = merge.helper("old")
    condition = [f"{is_old} = 1", merge_rule.equal(merge.pairs(columns, prefix="k_"), with_null=both)]
    if not both:
        condition += load.ranges_of(columns, merge.batch.partitions)
    builder = merge.into(source, " AND ".join(condition), once=both)
    builder.whenMatchedDelete().whenNotMatchedInsert(f"{is_old} IS NULL", values=load.values()).execute()


def _keys_in_table(merge: _Merge) -> DataFrame:
    """Give the pairs of primary key and merge key in the table of which the batch has one or the other.

    Delta reads them in the transaction of the MERGE: a row that another writer adds meanwhile is a conflict,
    and is not missed.
    """
    columns = [*dict.fromkeys([*merge.key, *merge.merge_key])]
    stored = merge.table.toDF().select(
        *[F.col(quoted(merge.load.name(column))).alias(column) for column in columns]
    )
    by_key, by_merge_key = (
        stored.join(_distinct(merge.load.rows, key), [*key], "left_semi")
        for key in (merge.key, merge.merge_key)
    )
    return by_key.unionByName(by_merge_key).distinct()


def _distinct(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return rows.select(*columns).distinct()


_STRATEGIES: dict[str, Callable[[_Merge, Any], None]] = {
    "delete-insert": _delete_insert,
    "upsert": _upsert,
    "insert-only": _insert_only,
}
