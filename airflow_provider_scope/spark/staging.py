"""The rows of a batch before they are merged: read once, their keys looked at, one row of each key."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import merge as rules
from airflow_provider_scope.core import small
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, MergeKeyError
from airflow_provider_scope.spark.held import Keys, as_text, looks, released

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

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
        return [f"c{rules.place(argument, name, self.names, self.table)}" for name in named]

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
            condition = rules.within(name, kind, *(self.keys.range(name.lower()) or (None, None)))
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
        return rules.one_of([(self.name(c), self.kind(c)) for c in columns], sorted(values), of=of)


_VALUES = 100
"""Values of partition columns that are named in a condition."""


@contextmanager
def staged(
    rows: DataFrame,
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
    names, kinds = tuple(rows.columns), tuple(field.dataType.simpleString() for field in rows.schema)
    positions: dict[int, str] = {}
    for argument, columns in keys.items():
        for name in columns:
            position = rules.place(argument, name, names, table)
            rules.check_key(argument, names[position], kinds[position], table)
            positions.setdefault(position, argument)
    plain = rows.toDF(*[f"c{number}" for number in range(len(names))])
    if deleted:
        plain = _with_deleted(plain, *deleted, names, kinds)
    if known is None:
        seen, gone = Observation(), F.col(GONE) if deleted else F.lit(col=False)
        looked_at = {names[n].lower(): (F.col(f"c{n}"), kinds[n]) for n in positions}
        # Of a row to be deleted, the keys alone are known.
        plain = plain.observe(seen, *looks(looked_at, ~gone, gone)).localCheckpoint(eager=True)
        found = Keys({name: kind for name, (_, kind) in looked_at.items()}, seen.get)
    else:
        found = known
    rows = plain.coalesce(1) if small.is_small_batch(found.rows) else plain
    result = Staged(rows, names, kinds, table, found)
    with released(plain) if known is None else nullcontext():
        for number, argument in positions.items():
            if found.nulls(names[number].lower()):
                raise _no_key(result, number, argument)
        yield result


def _with_deleted(
    plain: DataFrame, deleted: DataFrame, key: Sequence[str], names: Sequence[str], kinds: Sequence[str]
) -> DataFrame:
    places = [(name, rules.place("the key", name, names, "")) for name in key]
    columns = [F.col(quoted(name)).cast(kinds[n]).alias(f"c{n}") for name, n in places]
    gone = deleted.select(*columns, F.lit(True).alias(GONE))  # noqa: FBT003 - a value
    return plain.withColumn(GONE, F.lit(False)).unionByName(gone, allowMissingColumns=True)  # noqa: FBT003


def one_for_each(staged: Staged, rule: rules.MergeRule) -> tuple[DataFrame, int]:
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
    columns = [f"c{n}" for n, kind in enumerate(staged.kinds) if rules.KEYS.fullmatch(kind)]
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
