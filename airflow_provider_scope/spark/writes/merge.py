"""Replace the rows of the table that have the keys of a batch; the batch is read once, and Spark holds it."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, MergeKeyError
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.spark.held import Keys, as_text, key_aggregates, read_once
from airflow_provider_scope.spark.session import SPARK_ERRORS, whole_text
from airflow_provider_scope.spark.structs import row_hash
from airflow_provider_scope.spark.tombstones import Tombstones
from airflow_provider_scope.spark.writes import rows as plain
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import Column, DataFrame, SparkSession

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

    batch: Batch
    rows: DataFrame
    names: tuple[str, ...]
    """The table's columns, by position."""
    kinds: tuple[str, ...]
    table: str
    keys: Keys
    """Counts and ranges of the columns of the keys, by the table's names in lower case."""

    def content(self, positions: Iterable[int] | None = None) -> Column:
        """Hash the values of a row, or some of them, by the table's names, as ``row_hash`` does there."""
        columns = {name: f"c{number}" for number, name in enumerate(self.names)}
        fields = self.batch.rows.schema.fields
        return row_hash(fields if positions is None else [fields[n] for n in positions], columns.__getitem__)

    def columns(self, argument: str, named: Sequence[str]) -> list[str]:
        """Find the columns that an argument of the write names."""
        return [f"c{write_rules.place(argument, name, self.names, self.table)}" for name in named]

    def name(self, column: str) -> str:
        """Translate a column to the table's name for it."""
        return self.names[int(column[1:])]

    def kind(self, column: str) -> str:
        return self.kinds[int(column[1:])]

    def values(self) -> dict[str, Any]:
        """Take all columns of an inserted row from the source of a MERGE, in SQL."""
        # A column that is new has its name from the source: alone, `user` would be the function of that name.
        side = "s." if self.batch.brings_columns else ""
        return {f"{side}{quoted(name)}": f"s.{quoted(name)}" for name in self.names}

    def source(self, rows: DataFrame) -> DataFrame:
        """Name the columns of rows for the source of a MERGE as the table does: so Delta finds new ones."""
        return rows.toDF(*[self.in_source(column) for column in rows.columns]).alias("s")

    def in_source(self, column: str) -> str:
        """Name a column in the source of a MERGE.

        One that is not for the table, such as a flag, gets a name that the table does not have.
        """
        if _POSITION.fullmatch(column):
            return self.name(column)
        table_names = {name.lower() for name in self.names}
        while column.lower() in table_names:
            column += "_"
        return column

    def pairs(self, columns: Sequence[str], *, prefix: str = "") -> list[tuple[str, str]]:
        """Pair the name of a column in the table with that of the column to compare it with in the source."""
        return [(self.name(c), self.in_source(f"{prefix}{c}")) for c in columns]

    def with_rows(self, rows: DataFrame) -> Batch:
        """Make a batch of some of the rows, for a write that needs no MERGE."""
        columns = [F.col(f"c{n}").alias(name) for n, name in enumerate(self.names)]
        return replace(self.batch, rows=rows.select(*columns))

    def ranges_of(self, columns: Sequence[str]) -> list[str]:
        """List the conditions by which Delta skips files without any of the keys.

        The values of columns that partition the table are listed one by one.
        """
        conditions = []
        for column in columns:
            name, kind = self.name(column), self.kind(column)
            condition = write_rules.within(name, kind, *(self.keys.range(name.lower()) or (None, None)))
            if condition:
                conditions.append(condition)
        partition_columns = [column for column in columns if self.name(column) in self.batch.partitions]
        values = self.values_of(partition_columns, prefix="t.")
        return [*conditions, f"({values})"] if values else conditions

    def values_of(self, columns: Sequence[str], *, prefix: str = "") -> str | None:
        """Write the condition that some columns have values of the batch; None if these are too many.

        :param prefix: Before each name: in a MERGE the source has columns of these names, too.
        """
        if not columns:
            return None
        texts = [as_text(F.col(column), self.kind(column)) for column in columns]
        values = self.rows.select(*texts).distinct().limit(_VALUES + 1).collect()
        if len(values) > _VALUES:
            return None
        return write_rules.one_of([(self.name(c), self.kind(c)) for c in columns], sorted(values), of=prefix)


_VALUES = 100
"""The most values of partition columns that a condition lists."""


@contextmanager
def staged(
    batch: Batch,
    keys: Mapping[str, Sequence[str]],
    table: str,
    deleted_by: Sequence[str],
    held_keys: Keys | None = None,
) -> Iterator[Staged]:
    """Read the rows of a batch once, check that each has its keys, and hold them for the block.

    Rows that stand for keys to be deleted are held with the others, and ``IS_DELETED`` marks them.

    :param keys: Argument -> the columns that it names.
    :param deleted_by: The columns of such a key.
    :param held_keys: Counts and ranges of the keys, if Spark holds the rows already.
    :raises MergeKeyError: A key is NULL.
    :raises InputError: There is no such column, or a key cannot have its type.
    """
    rows = batch.rows
    names, kinds = tuple(rows.columns), tuple(field.dataType.simpleString() for field in rows.schema)
    positions: dict[int, str] = {}
    for argument, columns in keys.items():
        for name in columns:
            position = write_rules.place(argument, name, names, table)
            write_rules.check_key(argument, names[position], kinds[position], table)
            positions.setdefault(position, argument)
    numbered_rows = rows.toDF(*[f"c{number}" for number in range(len(names))])
    is_deleted = F.lit(col=False)
    if batch.deleted is not None:
        numbered_rows = _with_deleted(numbered_rows, batch.deleted, deleted_by, names, kinds)
        is_deleted = F.col(IS_DELETED)
    # Files may have the text of a CHAR column without its blanks, so no condition has literals of it.
    kinds = tuple("char" if name.lower() in batch.chars else kinds[n] for n, name in enumerate(names))
    with ExitStack() as block:
        if held_keys is None:
            key_columns = {names[n].lower(): (F.col(f"c{n}"), kinds[n]) for n in positions}
            # A row to be deleted has values in the columns of the primary key only.
            aggregates = key_aggregates(key_columns, ~is_deleted, is_deleted)
            numbered_rows, values = read_once(block, numbered_rows, aggregates)
            held_keys = Keys({name: kind for name, (_, kind) in key_columns.items()}, values)
        elif settings.is_small_batch(held_keys.rows):
            numbered_rows = numbered_rows.coalesce(1)
        load = Staged(batch, numbered_rows, names, kinds, table, held_keys)
        for number, argument in positions.items():
            if held_keys.nulls(names[number].lower()):
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
    positions = [(name, write_rules.place("the key", name, names, "")) for name in key]
    columns = [F.col(quoted(name)).cast(kinds[n]).alias(f"c{n}") for name, n in positions]
    marked = deleted.select(*columns, F.lit(col=True).alias(IS_DELETED))
    unmarked = numbered_rows.withColumn(IS_DELETED, F.lit(col=False))
    return unmarked.unionByName(marked, allowMissingColumns=True)


def check_stored_keys(load: Staged, commit: Commit, keys: Mapping[str, Sequence[str]]) -> None:
    """Refuse keys that the table only gets with the batch: they would find none of its rows.

    :raises InputError: As said.
    """
    if not load.batch.brings_columns:
        return
    stored = DeltaTable.forPath(commit.log.spark, commit.log.table).toDF().columns
    for argument, names in keys.items():
        for name in names:
            if name.lower() not in {column.lower() for column in stored}:
                raise InputError(
                    f"{argument} names {name!r}, which is not a column of the table {load.table}: "
                    f"{', '.join(stored)}.",
                    kept=NO_ROW_WRITTEN,
                    do="if it was renamed in the table, give it its name back; or run once with "
                    "full_refresh=True, which replaces all rows",
                )


def one_row_per_key(staged: Staged, rule: write_rules.Merge) -> tuple[DataFrame, int]:
    """Choose the row that counts for each primary key, and count the rows that do not.

    Without ``dedup_sort`` it is the same row in each try, whatever order Spark reads them in.

    :raises MergeKeyError: A key comes twice, and nothing says which row counts.
    :raises InputError: ``dedup_sort`` names no column, whether or not a key comes twice.
    """
    key = staged.columns("primary_key", rule.primary_key)
    order = []
    is_delete = is_flagged(staged, rule.hard_delete)
    if rule.sequence_by:
        order += [F.col(*staged.columns("sequence_by", [rule.sequence_by])).desc(), is_delete.desc()]
    if rule.dedup_sort:
        name, direction = rule.dedup_sort
        column = F.col(*staged.columns("dedup_sort", [name]))
        order.append(column.asc_nulls_last() if direction == "asc" else column.desc_nulls_last())
    by_key = staged.rows.groupBy(*key).agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    duplicates = count_duplicates(by_key)
    if not duplicates:
        return staged.rows, 0
    if rule.needs_winner:
        raise _doubled(staged, key, by_key)
    by_rank = Window.partitionBy(*key)
    if rule.sequence_by and not rule.dedup_sort:
        first_rows = staged.rows.withColumn("n", F.rank().over(by_rank.orderBy(*order))).where("n = 1")
        contents = F.count_distinct(F.when(~is_delete, staged.content()))
        ties = first_rows.groupBy(*key).agg(contents.alias("n")).where("n > 1")
        if examples := _examples(staged, ties, key):
            raise _tie(staged.table, rule.sequence_by, examples)
    order.append(
        staged.content() if rule.sequence_by else F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    )
    first = F.row_number().over(by_rank.orderBy(*order))
    return staged.rows.withColumn("n", first).where("n = 1").drop("n"), duplicates


def count_duplicates(groups: DataFrame) -> int:
    """Count the rows that are too many, of groups of which each has the number ``n`` of its rows."""
    total = groups.agg(F.sum(F.col("n") - 1)).first()
    return int(total[0] or 0) if total else 0


def is_flagged(staged: Staged, hard_delete: str | None) -> Column:
    """Mark rows that stand for a key to be deleted: the batch says so, or the column ``hard_delete``."""
    is_flagged = F.lit(col=False) if staged.batch.deleted is None else F.col(IS_DELETED)
    if hard_delete is None:
        return is_flagged
    (column,) = staged.columns("hard_delete", [hard_delete])
    if staged.kind(column) == "boolean":
        return is_flagged | F.coalesce(F.col(column), F.lit(col=False))
    return is_flagged | F.col(column).isNotNull()


def _examples(staged: Staged, rows: DataFrame, columns: Sequence[str]) -> str:
    """Write a few rows, with the table's names of the columns, for a message."""
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
    columns = [f"c{n}" for n, kind in enumerate(staged.kinds) if write_rules.KEYS.fullmatch(kind)]
    rows = staged.rows.where(F.col(f"c{number}").isNull())
    if IS_DELETED in rows.columns:
        rows = rows.where(~F.col(IS_DELETED))
    return MergeKeyError(
        f"{count:,} of {staged.keys.rows:,} rows for {staged.table} have no {staged.names[number]}, which is "
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


def _tie(table: str, sequence_by: str, examples: str) -> MergeKeyError:
    return MergeKeyError(
        f"Rows for {table} have the same primary key and the same {sequence_by}, and differ: {examples}.",
        kept=NO_ROW_WRITTEN,
        do="set dedup_sort=(column, 'desc') to decide which of them counts; or set sequence_by to a "
        "column that tells them apart",
    )


_SOURCE = "spark.databricks.delta.merge.materializeSource"
"""Whether Delta keeps the source of a MERGE, which it reads twice, after the first read."""
_REPARTITION = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
"""Whether Delta brings the rows of a partition together before it writes them. It takes a column whose name
has a dot for a field of a struct."""

_HASHED = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
"""Up to this size, Spark keeps a task's part of one side of a join in memory, and sorts neither side.

It is set to the size that Spark aims at for a part. By default, Spark would sort the whole table."""
_HASHED_ROWS = 200_000
"""Up to so many rows of the batch for each task they are kept in memory, whatever their size on disk."""


def write(batch: Batch, commit: Commit) -> int | None:
    """Merge the rows by the rule of the batch, in one commit, even if that changes no row."""
    rule = write_rules.of_plan(write_rules.Merge, batch.how)
    keys = {"primary_key": rule.primary_key, "merge_key": rule.merge_key}
    if rule.sequence_by:
        keys["sequence_by"] = (rule.sequence_by,)
    held_keys = _held_keys(batch, rule)
    with staged(batch, keys, commit.log.table, rule.primary_key, held_keys) as load:
        is_unique = held_keys is not None or not rule.primary_key
        rows, duplicates = (load.rows, 0) if is_unique else one_row_per_key(load, rule)
        rows = rows.withColumn("flag", is_flagged(load, rule.hard_delete)).drop(IS_DELETED)
        changes = {"deduplicated": duplicates}
        if rule.hard_delete:
            changes["hard_deleted"] = rows.where("flag").count()
        elif batch.deleted is not None:
            changes["hard_deleted"] = load.keys.deleted
        commit.note(changes=changes)
        if rule.sequence_by and rule.hard_delete:
            rows = _without_deleted(load, rule, rows, changes["hard_deleted"], commit)
        live = load.with_rows(rows.where("NOT flag"))
        if batch.creates or batch.overwrites or not rule.has_keys:
            return plain.write(live, commit)
        partitions = _partitions(load, rule)
        if partitions:
            return plain.write(replace(live, overwrites=True, where=partitions), commit)
        check_stored_keys(load, commit, {"primary_key": rule.primary_key, "merge_key": rule.merge_key})
        if rule.sequence_by:
            commit.note(offered=load.keys.rows - duplicates)
            with naming_ties(load, rule.sequence_by):
                return commit.execute(lambda session: _upsert(Merge(session, load), rule, rows))
        merge = _STRATEGIES[rule.strategy]
        return commit.execute(lambda session: merge(Merge(session, load), rule, rows))


def _without_deleted(
    load: Staged, rule: write_rules.Merge, rows: DataFrame, deletes: int, commit: Commit
) -> DataFrame:
    """Keep the deletes of a batch for later ones, and leave out its rows that are older than such a delete.

    :param deletes: How many rows of the batch are deletes.
    """
    batch, (sequence,) = load.batch, load.columns("sequence_by", [rule.sequence_by or ""])
    tombstones = Tombstones.of(commit.log, commit.number)
    positions = [int(column[1:]) for column in load.columns("primary_key", rule.primary_key)]
    # Values of another column, by which rows were ordered before, say nothing about those of this one.
    rows = rows.withColumn("key", F.concat(load.content(positions), F.lit(f" {load.name(sequence).lower()}")))
    text = as_text(F.col(sequence), load.kind(sequence)).alias("sequence")
    deleted = rows.where("flag").select("key", text)
    tombstones.put(
        deleted,
        deletes,
        batch.how["now"],
        rule.tombstone_retention_days or write_rules.TOMBSTONE_RETENTION_DAYS,
    )
    stored = tombstones.read()
    if stored is None:
        return rows.drop("key")
    newest = F.max(F.col("sequence").try_cast(load.kind(sequence)))
    rows = rows.join(stored.groupBy("key").agg(newest.alias("deleted")), "key", "left")
    is_older = ~F.col("flag") & (F.col(sequence) <= F.col("deleted"))
    return rows.where(~F.coalesce(is_older, F.lit(col=False))).drop("key", "deleted")


def _held_keys(batch: Batch, rule: write_rules.Merge) -> Keys | None:
    """Take the counts and ranges of the primary key, if Spark holds the rows already.

    :return: None if they are to be read again: a check of the columns that partition the table, which fails
        at some values, has not been done when they were held.
    """
    if batch.keys is None or batch.partitions or rule.merge_key or rule.sequence_by:
        return None
    kinds = {name.lower(): kind for name, kind in batch.rows.dtypes}
    key_kinds = {name.lower(): kinds.get(name.lower()) for name in rule.primary_key}
    return batch.keys if key_kinds == batch.keys.kinds else None


def _partitions(load: Staged, rule: write_rules.Merge) -> str | None:
    """Write the condition for the partitions that a batch replaces as a whole: their rows need not be read.

    :return: None if it replaces other rows, or none.
    """
    columns = load.columns("merge_key", rule.merge_key)
    if rule.primary_key or not all(load.name(column) in load.batch.partitions for column in columns):
        return None
    return load.values_of(columns)


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE of the rows of a batch, in a session of its own."""

    session: SparkSession
    load: Staged

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.session, self.load.table)

    def stored(self, columns: Sequence[str], where: Column | None = None) -> DataFrame:
        """Read columns of the table (``t``) as the MERGE sees it, under the names of the batch's rows.

        Delta reads them in the transaction of the MERGE: a row that another writer adds meanwhile is a
        conflict, and is not missed.
        """
        values = [F.col(f"t.{quoted(self.load.name(column))}").alias(column) for column in columns]
        rows = self.table.toDF().alias("t")
        return (rows if where is None else rows.where(where)).select(*values)

    def into(self, source: DataFrame, condition: Sequence[str], *, once: bool = False) -> DeltaMergeBuilder:
        """Begin the MERGE of a source into the table.

        :param condition: All of these hold for rows that match.
        :param once: Whether Delta has to keep the source after the first read, as it comes from the table
            itself.
        """
        self._prepare(once=once)
        builder = self.table.alias("t").merge(self.load.source(source), " AND ".join(condition))
        return builder.withSchemaEvolution() if self.load.batch.brings_columns else builder

    def _prepare(self, *, once: bool) -> None:
        conf, row_count = self.session.conf, self.load.keys.rows
        # The rows are held: only the table is read here, and its files may not say which calendar they have.
        values = dict(settings.OF_TABLES)
        # Spark holds the batch already; if it is lost, it cannot be read again.
        values[_SOURCE] = "all" if once else "none"
        if row_count <= _HASHED_ROWS * int(conf.get("spark.sql.shuffle.partitions") or 1):
            values[_HASHED] = conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes") or "64m"
        if any("." in name or "`" in name for name in self.load.batch.partitions):
            values[_REPARTITION] = "false"
        if settings.is_small_merge(row_count, DeltaLog(self.session, self.load.table).size_bytes()):
            values |= settings.OF_SMALL
        for name, value in values.items():
            conf.set(name, value)


def _upsert(merge: Merge, rule: write_rules.Merge, rows: DataFrame) -> None:
    load = merge.load
    # Tombstones are read with the rows, and another pipeline may add some.
    builder = merge.into(rows, _same_key(load, rule), once=bool(rule.sequence_by and rule.hard_delete))
    flag = f"s.{quoted(load.in_source('flag'))}"
    deletes, replaces = (
        _sequence_conditions(merge, rule, F.expr(flag)) if rule.sequence_by else (F.expr(flag), None)
    )
    if rule.hard_delete or load.batch.deleted is not None:
        builder = builder.whenMatchedDelete(deletes)
    # A column that the batch lacks becomes NULL, as in a row that is inserted.
    values = {**load.values(), **{quoted(name): "NULL" for name in load.batch.lacking}}
    builder = builder.whenMatchedUpdate(replaces, set=values)
    builder.whenNotMatchedInsert(f"NOT {flag}", values=load.values()).execute()


_TIE = "@@airflow-provider-scope-tie "
_TIED = re.compile(rf"{_TIE}(.*?)@@", re.DOTALL)


def tie_error(key: Column) -> Column:
    """Fail at a row of the batch that ties with one of the table; ``naming_ties`` makes the error of it."""
    return F.raise_error(F.concat(F.lit(_TIE), key, F.lit("@@")))


def _sequence_conditions(merge: Merge, rule: write_rules.Merge, flag: Column) -> tuple[Column, Column]:
    """Write when a row of the batch (``s``) deletes the one of the table (``t``), and when it replaces it.

    Of a delete and a row with one sequence the delete counts; of two rows the first by ``dedup_sort``, and
    by their hash if that is the same, too: the same one, whichever was loaded first.
    """
    load = merge.load
    stored = {field.name.lower(): field for field in merge.table.toDF().schema}

    def pair(argument: str, name: str) -> tuple[Column, Column]:
        (column,) = load.columns(argument, [name])
        name = load.name(column)
        # What was stored before there was such a column has no value in it.
        stored_value = F.col(f"t.{quoted(name)}") if name.lower() in stored else F.lit(None)
        return F.col(f"s.{quoted(name)}"), stored_value

    sequence, latest = pair("sequence_by", rule.sequence_by or "")
    content = row_hash(load.batch.rows.schema, lambda name: f"s.{quoted(name)}")
    names = (*load.names, *load.batch.lacking)  # and no column that the table computes
    fields = [stored[name.lower()] for name in names if name.lower() in stored]
    other_content = row_hash(fields, lambda name: f"t.{quoted(name)}")
    if rule.dedup_sort:
        sort, other_sort = pair("dedup_sort", rule.dedup_sort[0])
        comes_first = sort < other_sort if rule.dedup_sort[1] == "asc" else sort > other_sort
        wins = F.when(sort.eqNullSafe(other_sort), content < other_content)
        wins = wins.otherwise(F.coalesce(comes_first, other_sort.isNull()))
    else:
        key = F.to_json(F.struct(*[pair("primary_key", name)[0] for name in rule.primary_key]))
        wins = F.when(content == other_content, F.lit(col=False)).otherwise(tie_error(key).cast("boolean"))
    is_newer = latest.isNull() | (sequence > latest)
    return (
        flag & (is_newer | (sequence == latest)),
        ~flag & F.when(is_newer, F.lit(col=True)).when(sequence == latest, wins).otherwise(F.lit(col=False)),
    )


@contextmanager
def naming_ties(load: Staged, sequence_by: str) -> Iterator[None]:
    """Turn Spark's error for a row of the batch that ties with one of the table.

    :raises MergeKeyError: Instead of it.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        tie = _TIED.search(whole_text(err))
        if tie is None:
            raise
        raise _tie(load.table, sequence_by, f"{tie[1]}, of which the table has one") from err


def _insert_only(merge: Merge, rule: write_rules.Merge, rows: DataFrame) -> None:
    builder = merge.into(rows.where("NOT flag"), _same_key(merge.load, rule))
    builder.whenNotMatchedInsert(values=merge.load.values()).execute()


def _same_key(load: Staged, rule: write_rules.Merge) -> list[str]:
    key = load.columns("primary_key", rule.primary_key)
    return [write_rules.equal(load.pairs(key)), *load.ranges_of(key)]


def _delete_insert(merge: Merge, rule: write_rules.Merge, rows: DataFrame) -> None:
    """Delete rows by their keys and insert the rows of the batch, in one MERGE.

    Its source has a row for each key to delete, and the rows to insert. The latter have no values in the
    columns of the condition, so none of them matches.
    """
    load = merge.load
    key, merge_key = load.columns("primary_key", rule.primary_key), load.columns("merge_key", rule.merge_key)
    columns, has_two_keys = [*dict.fromkeys([*key, *merge_key])], bool(key and merge_key)
    if has_two_keys:
        # The pairs of both keys in the table of which the batch has one or the other.
        stored = merge.stored(columns)
        by_key, by_merge_key = (
            stored.join(load.rows.select(*one_key).distinct(), [*one_key], "left_semi")
            for one_key in (key, merge_key)
        )
        keys = by_key.unionByName(by_merge_key).distinct()
    else:
        # The rows have each primary key once.
        keys = rows if key else rows.select(*columns).distinct()
    old = keys.select(*[F.col(c).alias(f"k_{c}") for c in columns], F.lit(1).alias("old"))
    source = old.unionByName(rows.where("NOT flag").drop("flag"), allowMissingColumns=True)
    is_old = f"s.{quoted(load.in_source('old'))}"
    condition = [f"{is_old} = 1", write_rules.equal(load.pairs(columns, prefix="k_"), with_null=has_two_keys)]
    if not has_two_keys:
        condition += load.ranges_of(columns)
    builder = merge.into(source, condition, once=has_two_keys)
    builder.whenMatchedDelete().whenNotMatchedInsert(f"{is_old} IS NULL", values=load.values()).execute()


_STRATEGIES: dict[str, Callable[[Merge, write_rules.Merge, DataFrame], None]] = {
    "delete-insert": _delete_insert,
    "upsert": _upsert,
    "insert-only": _insert_only,
}
