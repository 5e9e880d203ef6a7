"""The batch of an entry with versions: the changes of a table, the net one of each key, and the state."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    ChangeFeedError,
    InputError,
    MergeKeyError,
    SqlError,
)
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.state import DELETED, TIMESTAMP, TYPE, VERSION
from airflow_provider_scope.spark import settings, storage
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.files.reading import checked, over_rows
from airflow_provider_scope.spark.held import Keys, looks, released
from airflow_provider_scope.spark.row_hash import row_hash
from airflow_provider_scope.spark.session import SPARK_ERRORS, emit, short_cause, whole_text
from airflow_provider_scope.spark.structs import schema_without_metadata, without_metadata
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.plan import Plan
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.values import VersionSlice


_MISSING = (
    "commits that it needs are missing in the log",
    "files of it were deleted: VACUUM removes what is older than delta.deletedFileRetentionDuration",
)
_CAUSES = {
    "DELTA_(LOG_FILE_NOT_FOUND|VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG)": _MISSING[0],
    "FILE_NOT_EXIST|FileNotFoundException": _MISSING[1],
    "BEYOND_DELETED_FILE_RETENTION": "it is older than delta.deletedFileRetentionDuration, and VACUUM may "
    "have removed files of it",
    "DELTA_MISSING_CHANGE_DATA": "the feed was disabled for a while",
    "INCOMPATIBLE_(DATA_)?SCHEMA": (
        "the table's columns have changed, and not only by columns that were added"
    ),
}
"""What Delta says of a range that it cannot read, as patterns -> why."""


def select(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Give the changes of a slice, or the rows of its snapshot as changes; nothing is read yet.

    :raises ChangeFeedError: The table is another one, or a commit is missing.
    """
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source = plan.changes
    _check_there(spark, source.table, found)
    reader = spark.read.format("delta")
    with naming_causes(source.table, found):
        if found.snapshot:
            rows = reader.option("versionAsOf", found.last).load(source.table)
            rows = without_metadata(rows)
            return rows if source.replaces else _as_changes(spark, rows, source.table, found)
        # Both ends: without the second one, each reading would go as far as the table does then.
        reader = reader.option("readChangeFeed", "true").option("startingVersion", found.first)
        return _directly(spark, reader.option("endingVersion", found.last).load(source.table))


def _directly(spark: SparkSession, feed: DataFrame) -> DataFrame:
    """Give the rows of a feed as Spark's own, where Delta makes a Java object of each value.

    Delta 4.4 checks the range and the columns, and then reads the feed by a plan of its own, of which it
    hands on ``Dataset.rdd`` (``DeltaCDFRelation.buildScan``; delta-io/delta pull request 5084 is to end it).
    That takes a third of the time of a read, and moves the dates from 5 to 14 October 1582 to the 15th, as
    Java's calendar does not have them. This is the same plan, with the columns that the feed has by Delta.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta's Python API has no way to it
    session = spark._jsparkSession  # noqa: SLF001
    relation = feed._jdf.queryExecution().analyzed().collectLeaves().head().relation()  # noqa: SLF001
    reader = getattr(jvm, "org.apache.spark.sql.delta.commands.cdc.CDCReader$")
    rows = getattr(reader, "MODULE$").changesToBatchDF(
        relation.deltaLog(),
        relation.startingVersion().get(),
        relation.endingVersion().get(),
        session,
        relation.catalogTableOpt(),
        jvm.scala.Option.apply(relation.snapshotForBatchSchema()),
        False,  # noqa: FBT003 - a Scala signature
        jvm.scala.Option.empty(),
    )
    in_order = DataFrame(rows, spark).select(*[F.col(quoted(name)) for name in feed.columns])
    values = in_order._jdf.queryExecution().toRdd()  # noqa: SLF001
    # The plan's columns have notes of Delta's in them, and so have the fields of their structs.
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema_without_metadata(feed.schema).json())
    return DataFrame(session.internalCreateDataFrame(values, schema, False), spark)  # noqa: FBT003


def _check_there(spark: SparkSession, table: str, found: VersionSlice) -> None:
    """See that all commits of the range are there: Delta leaves one out that is not, without an error."""
    there = (DeltaLog(spark, table).metadata() or {}).get("id")
    if there != found.source:
        raise feed_state.recreated(table, there, found.source)
    for version in () if found.snapshot else range(found.first, found.last + 1):
        name = f"{table}/_delta_log/{version:020}.json"
        try:
            storage.read(spark, name, at_most=1)
        except FileNotFoundError as err:
            raise feed_state.missing(table, version) from err


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


@contextmanager
def naming_causes(table: str, found: VersionSlice) -> Iterator[None]:
    """Say of what fails while a range is read why it cannot be read, and what to do.

    :raises ChangeFeedError: Instead of Spark's error, if it is a known one.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        text = whole_text(err)
        why = next((why for pattern, why in _CAUSES.items() if re.search(pattern, text)), None)
        if why is None:
            raise
        raise ChangeFeedError(
            f"The {found.text()} ({table}) cannot be read: {why}. Delta says: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do=f"put these files back, from a copy of the source's folder; or {feed_state.START_OVER}"
            if why in _MISSING
            else feed_state.START_OVER,
        ) from err


_EQUAL_KEYS = (
    "rows that were inserted in the source replaced others with the same key, at least {count:,}. Check "
    "whether {keys} identifies each row of the source"
)


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the changes, together with the state after them.

    :param rows: Gives what ``select`` gave.
    :return: The table's version, or None if the batch was there.
    :raises ChangeFeedError: The changes cannot be read, or not be brought to one for each key.
    """
    entry = transaction.entry
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    notes = {"state": feed_state.state_behind(found)}
    data = rows()
    key = plan.write.get({"merge": "primary_key", "scd2": "merge_key"}.get(plan.write.get("kind", ""), ""))
    if not key:
        with _with_ways_out(found):
            result = over_rows(target.spark, plan.sql, plan.sql_params, data, entry.seq)
        with naming_causes(plan.changes.table, found):
            return target.write(transaction, checked(plan, result), notes)
    net = Net(target.spark, plan, entry, data, key)
    with _with_ways_out(found), net.held() as (result, deleted):
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


@contextmanager
def _with_ways_out(found: VersionSlice) -> Iterator[None]:
    """Say of a key or a column what can be done about it: the batch keeps its versions."""
    try:
        yield
    except AnalysisException as err:
        if "UNRESOLVED_COLUMN" not in str(err.getCondition()):
            raise
        raise SqlError(
            f"The SQL fails on the {found.text()}: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do=f"correct `sql`: it sees the columns that the source had at version {found.last}. If a column "
            "was renamed since, run the task with its old name until this batch is committed, and then with "
            "the new one",
        ) from err
    except MergeKeyError as err:
        raise MergeKeyError(
            err.what,
            kept=err.kept,
            do=f"{err.do}. The batch is the {found.text()}: a correction in the source comes with a later "
            "version. To load both together, correct the source, and abandon the batch with `airflow scope "
            "abandon`: the next batch goes up to the newest version",
        ) from err


SELECT_ALL = re.compile(r"\s*select\s+\*\s+from\s+@data\s*", re.IGNORECASE)
_FEED = (TYPE, VERSION, TIMESTAMP)
_ORDER, _NUMBER, _TWICE = "_scope_order", "_scope_number", "_scope_twice"
_RANKS = 4
_DELETED, _OLD, _UPDATED, _INSERTED = range(_RANKS)
"""The order of changes within a commit: after one of the last two, the row exists."""
_EXAMPLES = 3


class Net:
    """The net changes of one batch.

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
                    f"The key names {name!r}, which is not a column of {plan.changes.table}: "
                    f"{', '.join(self.columns)}. The last change of each key is found before `sql` is run.",
                    kept=NO_ROW_WRITTEN,
                    do="name columns of the source, and let `sql` keep their names",
                )
        if self.deletes == "soft" and DELETED in there:
            raise InputError(
                f"The source has a column {DELETED!r}, which deletes='soft' writes itself.",
                kept=NO_ROW_WRITTEN,
                do="set deletes='apply' or 'ignore'",
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
        """Read the changes once, hold them for the block, and run the SELECT over the net rows.

        :return: The rows that exist, and the keys of those that no longer do.
        :raises ChangeFeedError: The changes cannot be read, or a commit has a key twice.
        """
        with ExitStack() as block:
            changes, found = self._ranked(), None
            if self.deletes != "soft":  # which writes whole rows that are gone, not their keys alone
                changes = self._read(block, changes)
                found = self._by_count(block, changes)
            yield self._results(*(found or self._by_order(block, changes)))

    def _ranked(self) -> DataFrame:
        """Give the changes with their order; within a commit, the rows that exist after it come last."""
        kind = F.col(TYPE)
        rank = F.when(kind == "delete", _DELETED).when(kind == "update_preimage", _OLD)
        rank = rank.when(kind == "update_postimage", _UPDATED).otherwise(_INSERTED)
        columns = [F.col(quoted(name)) for name in self.columns]
        if self.deletes != "soft":
            # Of a row that no longer exists the key alone counts: Spark need not move the rest.
            columns = [self._if_there(name) for name in self.columns]
        # One number, version and rank: Spark sorts by what is to be compared, column by column.
        return self.data.select(*columns, (F.col(VERSION) * _RANKS + rank).alias(_ORDER))

    def _read(self, block: ExitStack, changes: DataFrame) -> DataFrame:
        seen, rank = Observation(), F.col(_ORDER) % _RANKS
        growth = F.count_if(rank == _INSERTED) - F.count_if(rank == _DELETED)
        looked_at = changes.observe(seen, growth.alias("growth"), F.count(F.lit(1)).alias("rows"))
        held = self._hold(block, looked_at)
        self.growth = seen.get["growth"]
        return held.coalesce(1) if settings.is_small_batch(seen.get["rows"]) else held

    def _by_count(self, block: ExitStack, changes: DataFrame) -> tuple[DataFrame, DataFrame] | None:
        """Give the net rows, and the keys without one, if no key needs its changes put in order.

        It takes an order if several rows of a key exist, if one came and went, or if one has no key: in few
        batches. Counting moves the keys alone, where ``_by_order`` moves and sorts whole rows.

        :return: None if it takes an order.
        """
        there, rows = _is_there(F.col(_ORDER)), F.col(_NUMBER)
        keys = changes.groupBy(*self._keys()).agg(
            F.max(_ORDER).alias(_ORDER), F.count_if(there).alias(_NUMBER)
        )
        several, seen = Observation(), Observation()
        in_order = (rows > 1) | (~there & (rows > 0)) | ~self._has_key()
        looked_at = keys.observe(several, F.count_if(in_order).alias("keys"))
        gone = self._hold(block, looked_at.observe(seen, *self._looks()).where(~there))
        if several.get["keys"]:
            return None
        self._seen = seen.get
        return changes.where(there), gone

    def _by_order(self, block: ExitStack, changes: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Give the last change of each key: those after which a row exists, and the others.

        :raises ChangeFeedError: A commit has a key twice.
        """
        order, has_key = F.col(_ORDER), self._has_key()
        there = _is_there(order)
        # NULL tells no rows from each other, but their values do: those exist that came and did not go.
        same_row = F.when(~has_key, row_hash([f for f in changes.schema if f.name != _ORDER]))
        rows = Window.partitionBy(*self._keys(), same_row)
        by_key, left = rows.orderBy(order.desc()), F.sum(F.when(there, 1).otherwise(-1)).over(rows)
        other = F.lead(_ORDER).over(by_key)
        same = (_version(other) == _version(order)) & _is_there(other) & there & has_key
        marked = changes.withColumns(
            {
                _NUMBER: F.row_number().over(by_key),
                _TWICE: F.coalesce(same, F.lit(col=False)),
                _ORDER: F.when(has_key, order).when(left > 0, _INSERTED).otherwise(_DELETED),
            }
        )
        doubled, seen = Observation(), Observation()
        looked_at = marked.observe(doubled, F.count_if(F.col(_TWICE)).alias("rows"))
        is_last = (F.col(_NUMBER) == 1) & (has_key | there)
        last = looked_at.where(is_last).drop(_NUMBER, _TWICE)
        held = self._hold(block, last.observe(seen, *self._looks()))
        if doubled.get["rows"]:
            raise self._twice(marked)
        self._seen = seen.get
        return (held if self.deletes == "soft" else held.where(there)), held.where(~there)

    def _hold(self, block: ExitStack, rows: DataFrame) -> DataFrame:
        with naming_causes(self.plan.changes.table, self.found):
            held = rows.localCheckpoint(eager=True)
        block.enter_context(released(held))
        return held

    def keys(self, result: DataFrame) -> Keys | None:
        """Give what was seen of the keys, if the rows are those that are held.

        A SELECT makes others of them, and a rule of ``expect`` is looked at when a row is read.
        """
        if self.plan.expect or not SELECT_ALL.fullmatch(self.plan.sql):
            return None
        kinds = {name.lower(): kind for name, kind in result.dtypes}
        return Keys({name: kinds[name] for name in self._kinds}, self._seen)

    def _looks(self) -> list[Column]:
        there, has_key = _is_there(F.col(_ORDER)), self._has_key()
        if self.deletes == "soft":
            there, has_key = F.lit(col=True), F.lit(col=False)
        keys = {name: (F.col(quoted(name)), kind) for name, kind in self._kinds.items()}
        return looks(keys, there, ~there & has_key)

    def _if_there(self, name: str) -> Column:
        column = F.col(quoted(name))
        if name.lower() in {key.lower() for key in self.key}:
            return column
        is_gone = F.col(TYPE).isin("delete", "update_preimage")
        return F.when(~is_gone | ~self._has_key(), column).alias(name)

    def _results(self, rows: DataFrame, gone: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        columns = [F.col(quoted(name)) for name in self.columns]
        if self.deletes == "soft":
            result = self._sql(rows.select(*columns, (~_is_there(F.col(_ORDER))).alias(DELETED)))
            if DELETED not in {name.lower() for name in result.columns}:
                raise InputError(
                    f"`sql` leaves out {DELETED!r}, which marks the rows that the source no longer has.",
                    kept=NO_ROW_WRITTEN,
                    do=f"select {DELETED}; or set deletes='apply' or 'ignore'",
                )
        else:
            result = self._sql(rows.select(*columns))
        if self.found.snapshot:
            return result, None
        if SELECT_ALL.fullmatch(self.plan.sql):
            return result, None if self.deletes == "soft" else self._known(gone)
        # What the SELECT made of older images and makes of the new ones no more is there no more: so a row
        # that a WHERE leaves out since it was updated goes, too.
        images = self.data.where(F.col(TYPE).isin("delete", "update_preimage"))
        flag = [F.lit(col=False).alias(DELETED)] if self.deletes == "soft" else []
        old = self._sql(images.select(*columns, *flag))
        missed = self._known(old).distinct().join(result.select(*self._keys()), self.key, "left_anti")
        return result, missed

    def _known(self, rows: DataFrame) -> DataFrame:
        """Give the keys of rows; one with NULL in it was never loaded."""
        # Not by dropna: it takes a name with a dot for a path.
        return rows.select(*self._keys()).where(self._has_key())

    def _sql(self, rows: DataFrame) -> DataFrame:
        return over_rows(self.spark, self.plan.sql, self.plan.sql_params, rows, self.seq)

    def _has_key(self) -> Column:
        return reduce(and_, [key.isNotNull() for key in self._keys()])

    def _keys(self) -> list[Column]:
        return [F.col(quoted(name)) for name in self.key]

    def _twice(self, marked: DataFrame) -> ChangeFeedError:
        key = F.to_json(F.struct(*self._keys()), {"ignoreNullFields": "false"})
        version = F.min(_version(F.col(_ORDER))).alias(VERSION)
        keys = marked.where(F.col(_TWICE)).groupBy(*self._keys()).agg(version)
        count = keys.count()
        shown = keys.select(key.alias("key"), VERSION).limit(_EXAMPLES).collect()
        examples = "; ".join(f"{row['key'][:200]} in {row[VERSION]}" for row in shown)
        come = "came twice in a version"
        if self.found.snapshot:
            come = "was found twice" if count == 1 else "were found twice"
        return ChangeFeedError(
            f"{count:,} key{'' if count == 1 else 's'} of {self.plan.changes.table} {come}, such as "
            f"{examples}: nothing says which of the two rows counts.",
            kept=NO_ROW_WRITTEN,
            do="name a key that identifies each row of the source; or load all changes with "
            f'write="append"; or correct the source, and {feed_state.START_OVER}',
        )


def _version(order: Column) -> Column:
    return F.floor(order / _RANKS)


def _is_there(order: Column) -> Column:
    return order % _RANKS >= _UPDATED
