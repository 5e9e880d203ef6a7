"""The batch of an entry with versions: the changes of a table, or its rows, and the state behind them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import changes
from airflow_provider_scope.core.changes import DELETED, TIMESTAMP, TYPE, VERSION, ChangeState
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, ChangeFeedError, InputError, MergeKeyError
from airflow_provider_scope.spark import files
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.held import Keys, looks, released
from airflow_provider_scope.spark.reading import checked, over_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.slices import VersionSlice
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.spark.transaction import Transaction

SELECT_ALL = re.compile(r"\s*select\s+\*\s+from\s+@data\s*", re.IGNORECASE)
_FEED = (TYPE, VERSION, TIMESTAMP)
_ORDER, _NUMBER, _TWICE = "_scope_order", "_scope_number", "_scope_twice"
_RANKS = 4
_DELETED, _OLD, _UPDATED, _INSERTED = range(_RANKS)
"""The ranks of a commit's changes: behind the last two of them the row is there."""
_EXAMPLES = 3
_MISSING = (
    "commits that it needs are missing in the log",
    "files of it were deleted: VACUUM removes what is older than delta.deletedFileRetentionDuration",
)
_CAUSES = {
    "DELTA_(LOG_FILE_NOT_FOUND|VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG)": _MISSING[0],
    "FILE_NOT_EXIST|FileNotFoundException": _MISSING[1],
    "BEYOND_DELETED_FILE_RETENTION": "it is older than delta.deletedFileRetentionDuration, and VACUUM may "
    "have removed files of it",
    "DELTA_MISSING_CHANGE_DATA": "the feed was off for a while",
    "INCOMPATIBLE_(DATA_)?SCHEMA": "the table's columns have changed, beyond columns that were added",
}
"""What Delta says of a range that it cannot read, as patterns -> why."""
_EQUAL_KEYS = (
    "at least {count:,} rows that were inserted in the source took the place of others with the same key. "
    "See whether {keys} tells the source's rows from each other"
)


def select(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Give the changes of a slice, or the rows of its snapshot as changes; nothing is read yet.

    :raises ChangeFeedError: The table is another one, or a commit is missing.
    """
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source = plan.changes
    _check_there(spark, source.table, found)
    reader = spark.read.format("delta")
    with _naming_causes(source.table, found):
        if found.snapshot:
            rows = reader.option("versionAsOf", found.last).load(source.table)
            return rows if source.replaces else _as_changes(spark, rows, source.table, found)
        # Delta makes Java's own dates of the values, which have no days between 4 and 15 October 1582.
        spark.conf.set("spark.sql.datetime.java8API.enabled", "true")
        # Both ends: without the second one, each reading would go as far as the table does then.
        reader = reader.option("readChangeFeed", "true").option("startingVersion", found.first)
        return reader.option("endingVersion", found.last).load(source.table)


def _check_there(spark: SparkSession, table: str, found: VersionSlice) -> None:
    """See that all commits of the range are there: Delta leaves one out that is not, without an error."""
    there = (DeltaLog(spark, table).metadata() or {}).get("id")
    if there != found.source:
        raise changes.recreated(table, there, found.source)
    for version in () if found.snapshot else range(found.first, found.last + 1):
        name = f"{table}/_delta_log/{version:020}.json"
        try:
            files.read(spark, name, at_most=1)
        except FileNotFoundError as err:
            raise changes.missing(table, version) from err


def _as_changes(spark: SparkSession, rows: DataFrame, table: str, found: VersionSlice) -> DataFrame:
    history = spark.sql(f"DESCRIBE HISTORY delta.{quoted(table)}").where(F.col("version") == found.last)
    told = history.select(F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")).first()
    return rows.withColumns(
        {
            TYPE: F.lit("insert"),
            VERSION: F.lit(found.last).cast("bigint"),
            TIMESTAMP: F.lit(told[0] if told else None).cast("timestamp"),
        }
    )


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the changes, together with the state behind them.

    :param rows: Gives what ``select`` gave.
    :return: The table's version, or None if the batch was there.
    :raises ChangeFeedError: The changes cannot be read, or not be brought to one for each key.
    """
    entry = transaction.entry
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    notes = {"state": _state(found)}
    data = rows()
    key = plan.write.get({"merge": "primary_key", "scd2": "merge_key"}.get(plan.write.get("kind", ""), ""))
    if not key:
        result = over_rows(target.spark, plan.sql, plan.sql_params, data, entry.seq)
        with _naming_causes(plan.changes.table, found):
            return target.write(transaction, checked(plan, result), notes)
    net = Net(target.spark, plan, entry, data, key)
    with net.held() as (result, deleted), _with_ways_out(found):
        if not net.count and entry.mode == "append" and target.log.metadata() is not None:
            return target.write_nothing(transaction, notes)
        version = target.write(
            transaction,
            checked(plan, result),
            notes,
            deleted=deleted,
            keys=net.keys(result),
        )
        if version is not None and net.is_whole and entry.where is None:
            _tell_of_equal_keys(net, target.log.growth(version))
        return version


def _tell_of_equal_keys(net: Net, growth: int | None) -> None:
    """Warn if the source has got more rows than the table: the feed does not say that a key was there.

    A table that got more rows than the source lacked some, as if the first load began amid the changes.
    """
    if growth is not None and growth < net.growth:
        told = _EQUAL_KEYS.format(count=net.growth - growth, keys=", ".join(net.key))
        emit(event="notice", seq=net.seq, told=told)


def _state(found: VersionSlice) -> str:
    before = changes.decode(found.before, "the entry")
    first = before.first if before else found.first
    return ChangeState(
        identifier=found.identifier, source=found.source, version=found.last, first=first
    ).encode()


class Net:
    """What the changes of one batch come to, for each key.

    :param data: The changes, which are the same whenever they are read.
    :param key: The columns that tell one row from another.
    """

    def __init__(
        self, spark: SparkSession, plan: Plan, entry: OffsetEntry, data: DataFrame, key: Sequence[str]
    ) -> None:
        self.spark = spark
        self.plan = plan
        self.found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
        self.seq = entry.seq
        self.deletes = plan.changes.deletes
        self.key = list(key)
        self.columns = [name for name in data.columns if name not in _FEED]
        there = {name.lower() for name in self.columns}
        for name in self.key:
            if name.lower() not in there:
                raise InputError(
                    f"The key names {name!r}, which is no column of {plan.changes.table}: "
                    f"{', '.join(self.columns)}. The last change of each key is found before `sql` is run.",
                    kept=NO_ROW_WRITTEN,
                    do="name columns of the source, and let `sql` keep their names",
                )
        if self.deletes == "soft" and DELETED in there:
            raise InputError(
                f"The source has a column {DELETED!r}, which deletes='soft' writes itself.",
                kept=NO_ROW_WRITTEN,
                do="say deletes='apply' or 'ignore'",
            )
        self.data = data.where(F.col(TYPE) != "delete") if self.deletes == "ignore" else data
        kinds = {name.lower(): kind for name, kind in data.dtypes}
        self._kinds = {name.lower(): kinds[name.lower()] for name in self.key}
        self._seen: Mapping[str, Any] = {"rows": 0}
        self.growth = 0
        """By how many rows the source has grown, once the changes are read."""

    @property
    def is_whole(self) -> bool:
        """Whether the table gets all rows of the source, and loses those that it has no more."""
        rule = self.plan.write
        by_key = rule.get("kind") == "merge" and rule.get("strategy") != "insert-only"
        some = self.plan.expect or rule.get("hard_delete") or rule.get("merge_key")
        return bool(by_key and not some and self.deletes == "apply" and SELECT_ALL.fullmatch(self.plan.sql))

    @property
    def count(self) -> int:
        """The keys with a change."""
        return int(self._seen["rows"])

    @contextmanager
    def held(self) -> Iterator[tuple[DataFrame, DataFrame | None]]:
        """Read the changes once, hold the last one of each key for the block, and run the SELECT over them.

        :return: The rows that are there, and the keys of those that are there no more.
        :raises ChangeFeedError: The changes cannot be read, or a commit has a key twice.
        """
        seen, doubled = Observation(), Observation()
        marked = self._marked()
        rank = F.col(_ORDER) % _RANKS
        looked_at = marked.observe(
            doubled,
            F.count_if(F.col(_TWICE)).alias("twice"),
            (F.count_if(rank == _INSERTED) - F.count_if(rank == _DELETED)).alias("growth"),
        )
        last = looked_at.where(F.col(_NUMBER) == 1).drop(_NUMBER, _TWICE).observe(seen, *self._looks())
        with _naming_causes(self.plan.changes.table, self.found):
            held = last.localCheckpoint(eager=True)
        with released(held):
            if doubled.get["twice"]:
                raise self._twice(marked)
            self._seen, self.growth = seen.get, doubled.get["growth"]
            yield self._results(held)

    def keys(self, result: DataFrame) -> Keys | None:
        """Give what was seen of the keys, if the rows are those that are held.

        A SELECT makes others of them, and a rule of ``expect`` is looked at when a row is read.
        """
        if self.plan.expect or not SELECT_ALL.fullmatch(self.plan.sql):
            return None
        kinds = {name.lower(): kind for name, kind in result.dtypes}
        return Keys({name: kinds[name] for name in self._kinds}, self._seen)

    def _looks(self) -> list[Column]:
        there, has_key = _is_there(F.col(_ORDER)), reduce(and_, [key.isNotNull() for key in self._keys()])
        if self.deletes == "soft":
            there, has_key = F.lit(col=True), F.lit(col=False)
        keys = {name: (F.col(quoted(name)), kind) for name, kind in self._kinds.items()}
        return looks(keys, there, ~there & has_key)

    def _marked(self) -> DataFrame:
        """Give the changes with their place among those of their key, the last one first.

        Of one commit, what is there behind it comes first.
        """
        kind = F.col(TYPE)
        rank = F.when(kind == "delete", _DELETED).when(kind == "update_preimage", _OLD)
        rank = rank.when(kind == "update_postimage", _UPDATED).otherwise(_INSERTED)
        # One number, version and rank: Spark sorts by what is to be compared, column by column.
        order = F.col(VERSION) * _RANKS + rank
        columns = [F.col(quoted(name)) for name in self.columns]
        if self.deletes != "soft":
            # Of a row that is there no more, the key alone counts: Spark need not move the rest.
            columns = [self._if_there(name) for name in self.columns]
        by_key = Window.partitionBy(*self._keys()).orderBy(F.col(_ORDER).desc())
        other = F.lead(_ORDER).over(by_key)
        same = (_version(other) == _version(F.col(_ORDER))) & _is_there(other)
        return self.data.select(*columns, order.alias(_ORDER)).withColumns(
            {
                _NUMBER: F.row_number().over(by_key),
                _TWICE: F.coalesce(same & _is_there(F.col(_ORDER)), F.lit(col=False)),
            }
        )

    def _if_there(self, name: str) -> Column:
        column = F.col(quoted(name))
        if name.lower() in {key.lower() for key in self.key}:
            return column
        is_gone = F.col(TYPE).isin("delete", "update_preimage")
        return F.when(~is_gone, column).alias(name)

    def _results(self, held: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        is_gone = ~_is_there(F.col(_ORDER))
        rows = held.select(*[F.col(quoted(name)) for name in self.columns], is_gone.alias(_NUMBER))
        if self.deletes == "soft":
            result = self._sql(rows.withColumnRenamed(_NUMBER, DELETED))
            if DELETED not in {name.lower() for name in result.columns}:
                raise InputError(
                    f"`sql` leaves out {DELETED!r}, which tells the rows that the source has no more.",
                    kept=NO_ROW_WRITTEN,
                    do=f"select {DELETED}; or say deletes='apply' or 'ignore'",
                )
        else:
            result = self._sql(rows.where(~F.col(_NUMBER)).drop(_NUMBER))
        if self.found.snapshot:
            return result, None
        if SELECT_ALL.fullmatch(self.plan.sql):
            return result, None if self.deletes == "soft" else self._known(rows.where(F.col(_NUMBER)))
        # What the SELECT made of older images and makes of the new ones no more is there no more: so a row
        # that a WHERE leaves out since it was updated goes, too.
        images = self.data.where(F.col(TYPE).isin("delete", "update_preimage"))
        flag = [F.lit(col=False).alias(DELETED)] if self.deletes == "soft" else []
        old = self._sql(images.select(*[F.col(quoted(name)) for name in self.columns], *flag))
        gone = self._known(old).distinct().join(result.select(*self._keys()), self.key, "left_anti")
        return result, gone

    def _known(self, rows: DataFrame) -> DataFrame:
        """Give the keys of rows; one with NULL in it was never loaded."""
        # Not by dropna: it takes a name with a dot for a path.
        return rows.select(*self._keys()).where(reduce(and_, [key.isNotNull() for key in self._keys()]))

    def _sql(self, rows: DataFrame) -> DataFrame:
        return over_rows(self.spark, self.plan.sql, self.plan.sql_params, rows, self.seq)

    def _keys(self) -> list[Column]:
        return [F.col(quoted(name)) for name in self.key]

    def _twice(self, marked: DataFrame) -> ChangeFeedError:
        key = F.to_json(F.struct(*self._keys()), {"ignoreNullFields": "false"})
        version = F.min(_version(F.col(_ORDER))).alias(VERSION)
        keys = marked.where(F.col(_TWICE)).groupBy(*self._keys()).agg(version)
        count = keys.count()
        rows = keys.orderBy(reduce(or_, [column.isNull() for column in self._keys()]))
        shown = rows.select(key.alias("key"), VERSION).limit(_EXAMPLES).collect()
        examples = "; ".join(f"{row['key'][:200]} in {row[VERSION]}" for row in shown)
        come = "came twice in a version"
        if self.found.snapshot:
            come = "was found twice" if count == 1 else "were found twice"
        return ChangeFeedError(
            f"{count:,} key{'' if count == 1 else 's'} of {self.plan.changes.table} {come}, such as "
            f"{examples}: nothing says which of the two rows counts.",
            kept=NO_ROW_WRITTEN,
            do="name a key that tells the source's rows from each other; or load all changes with "
            f'write="append"; or correct the source, and {changes.ANEW}',
        )


def _version(order: Column) -> Column:
    return F.floor(order / _RANKS)


def _is_there(order: Column) -> Column:
    return order % _RANKS >= _UPDATED


@contextmanager
def _with_ways_out(found: VersionSlice) -> Iterator[None]:
    """Say of a key what can be done about it: the batch keeps its versions."""
    try:
        yield
    except MergeKeyError as err:
        raise MergeKeyError(
            err.what,
            kept=err.kept,
            do=f"{err.do}. The batch is the {found.text()}: a correction in the source comes with a later "
            "version. To load both at once, correct the source, and give the batch up with `airflow scope "
            "abandon`: the next one goes up to the newest version",
        ) from err


@contextmanager
def _naming_causes(table: str, found: VersionSlice) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as err:
        text = whole_text(err)
        why = next((why for pattern, why in _CAUSES.items() if re.search(pattern, text)), None)
        if why is None:
            raise
        raise ChangeFeedError(
            f"The {found.text()} ({table}) cannot be read: {why}. Delta says: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do=f"bring them back; or {changes.ANEW}" if why in _MISSING else changes.ANEW,
        ) from err
