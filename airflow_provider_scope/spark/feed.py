"""Read a batch of versions: the changes of a table, the net change of each key, and the state after them."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta.commit import path_of
from airflow_provider_scope.delta.write_rules import COMMIT, COMMIT_TIME
from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    ChangeFeedError,
    InputError,
    MergeKeyError,
    SqlError,
)
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.state import DELETED, TIMESTAMP, TYPE, VERSION
from airflow_provider_scope.spark import storage, user_sql
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.spark.held import Keys, hold, key_aggregates, read_once
from airflow_provider_scope.spark.session import SPARK_ERRORS, emit, short_cause, whole_text
from airflow_provider_scope.spark.structs import row_hash, schema_without_metadata, without_metadata
from airflow_provider_scope.spark.user_sql import selected
from airflow_provider_scope.sql import quoted
from airflow_provider_scope.values import counted

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
    "DELTA_MISSING_CHANGE_DATA": "the feed was disabled for a while",
    "INCOMPATIBLE_(DATA_)?SCHEMA": (
        "the table's columns have changed, and not only by columns that were added"
    ),
}
"""Pattern of Delta's error for a range that it cannot read -> why it cannot."""


def read(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Select the changes of a slice, or the rows of its snapshot as changes; no row is read yet.

    :raises ChangeFeedError: The table is another one, or a commit is missing.
    """
    version_slice: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source = plan.changes
    _check_commits(spark, source.table, version_slice)
    reader = spark.read.format("delta")
    with _naming_causes(source.table, version_slice):
        if version_slice.snapshot:
            rows = reader.option("versionAsOf", version_slice.last).load(source.table)
            rows = without_metadata(rows)
            return rows if plan.replaces else _as_changes(spark, rows, source.table, version_slice)
        # Both ends: without the second one, each reading would go as far as the table does then.
        reader = reader.option("readChangeFeed", "true").option("startingVersion", version_slice.first)
        return _directly(spark, reader.option("endingVersion", version_slice.last).load(source.table))


def _directly(spark: SparkSession, feed: DataFrame) -> DataFrame:
    """Read the rows of a feed as Spark's own, where Delta makes a Java object of each value.

    Delta 4.4 checks the range and the columns, and then reads the feed by a plan of its own, of which it
    hands on ``Dataset.rdd`` (``DeltaCDFRelation.buildScan``; delta-io/delta pull request 5084 is to end it).
    That takes a third of the time of a read, and moves the dates from 5 to 14 October 1582 to the 15th, as
    Java's calendar does not have them. This is the same plan, with the columns that the feed has by Delta.
    """
    jvm: Any = spark._jvm  # Delta's Python API has no way to it
    session = spark._jsparkSession
    relation = feed._jdf.queryExecution().analyzed().collectLeaves().head().relation()
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
    values = in_order._jdf.queryExecution().toRdd()
    # The plan's columns have notes of Delta's in them, and so have the fields of their structs.
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema_without_metadata(feed.schema).json())
    return DataFrame(session.internalCreateDataFrame(values, schema, False), spark)  # noqa: FBT003


def _check_commits(spark: SparkSession, table: str, version_slice: VersionSlice) -> None:
    """Check that all commits of the range are there: Delta skips a missing one without an error."""
    table_id = (DeltaLog(spark, table).metadata() or {}).get("id")
    if table_id != version_slice.source:
        raise feed_state.recreated(table, table_id, version_slice.source)
    for version in () if version_slice.snapshot else range(version_slice.first, version_slice.last + 1):
        try:
            storage.read(spark, path_of(table, version), at_most=1)
        except FileNotFoundError as err:
            raise feed_state.missing(table, version) from err


def _as_changes(spark: SparkSession, rows: DataFrame, table: str, version_slice: VersionSlice) -> DataFrame:
    history = spark.sql(f"DESCRIBE HISTORY delta.{quoted(table)}").where(
        F.col("version") == version_slice.last
    )
    commit_time = history.select(F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")).first()
    return rows.withColumns(
        {
            TYPE: F.lit("insert"),
            VERSION: F.lit(version_slice.last).cast("bigint"),
            TIMESTAMP: F.lit(commit_time[0] if commit_time else None).cast("timestamp"),
        }
    )


@contextmanager
def _naming_causes(table: str, version_slice: VersionSlice) -> Iterator[None]:
    """Turn Spark's errors for a range of versions into one that says why it cannot be read, and what to do.

    :raises ChangeFeedError: Instead of Spark's error, if its cause is known.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        text = whole_text(err)
        why = next((why for pattern, why in _CAUSES.items() if re.search(pattern, text)), None)
        if why is None:
            raise
        raise ChangeFeedError(
            f"The {version_slice.text()} ({table}) cannot be read: {why}. Delta says: {short_cause(err)}",
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

    :param rows: Gives the result of ``read``.
    :return: The table's version, or None if the batch was there.
    :raises ChangeFeedError: The changes cannot be read, or have no single net change for a key.
    """
    entry = transaction.entry
    version_slice: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    notes = {"state": feed_state.state_after(version_slice)}
    data = rows()
    key = plan.write.get({"merge": "primary_key", "scd2": "merge_key"}.get(plan.write.get("kind", ""), ""))
    if key and plan.write.get("sequence_by"):
        # Each commit that changes a key is an event of its own.
        key = [*key, COMMIT_TIME]
        data = _with_commit_time(data, plan)
    if not key:
        with _with_ways_out(version_slice):
            result = selected(target.spark, plan, data, entry.seq)
        with _naming_causes(plan.changes.table, version_slice):
            return user_sql.write(plan, target, transaction, result, notes)
    changes = Net(target.spark, plan, entry, data, key)
    with (
        _with_ways_out(version_slice, is_by_commit=bool(plan.write.get("sequence_by"))),
        ExitStack() as block,
    ):
        net = changes.held(block)
        if not net.count and entry.mode == "append" and target.log.metadata() is not None:
            return target.write_nothing(transaction, notes)
        version = user_sql.write(
            plan, target, transaction, net.rows, notes, deleted=net.deleted, keys=net.keys
        )
        if version is not None and changes.is_whole and entry.where is None:
            # The feed does not say whether the source had the key of a new row before. If the table grew by
            # more, it lacked rows of the source, such as when the first load began amid the changes.
            growth = target.log.growth(version)
            if growth is not None and growth < net.growth:
                message = _EQUAL_KEYS.format(count=net.growth - growth, keys=", ".join(changes.key))
                emit(event="notice", seq=entry.seq, message=message)
        return version


def _with_commit_time(data: DataFrame, plan: Plan) -> DataFrame:
    """Name the time of the commits as the table does.

    :raises InputError: The source has such a column, or another one is to order its changes.
    """
    if plan.write["sequence_by"] != COMMIT:
        raise InputError(
            f"sequence_by={plan.write['sequence_by']!r} is not possible with a CdfSource: a feed "
            "has no such value for a delete.",
            kept=NO_ROW_WRITTEN,
            do=f"set sequence_by={COMMIT!r}, the time of the source's commits",
        )
    if COMMIT_TIME in {name.lower() for name in data.columns}:
        raise InputError(
            f"The source has a column {COMMIT_TIME!r}, which sequence_by={COMMIT!r} writes itself.",
            kept=NO_ROW_WRITTEN,
            do="rename it in the source; or leave sequence_by out",
        )
    return data.withColumnRenamed(TIMESTAMP, COMMIT_TIME)


@contextmanager
def _with_ways_out(version_slice: VersionSlice, *, is_by_commit: bool = False) -> Iterator[None]:
    """Complete the advice of errors about a key or a column: the batch stays at its versions.

    :param is_by_commit: Whether each commit counts by itself, so that a later one corrects nothing.
    """
    try:
        yield
    except AnalysisException as err:
        if "UNRESOLVED_COLUMN" not in str(err.getCondition()):
            raise
        raise SqlError(
            f"The SQL fails on the {version_slice.text()}: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do="correct `sql`: it sees the columns that the source had at version "
            f"{version_slice.last}. If a column was renamed since, run the task with its old name until this "
            "batch is committed, and then with the new one",
        ) from err
    except MergeKeyError as err:
        do = f"{err.do}. The batch is the {version_slice.text()}: a correction in the source comes with a "
        do += "later version"
        if not is_by_commit:
            do += (
                ". To load both together, correct the source, and abandon the batch with `airflow scope "
                "abandon`: the next batch goes up to the newest version, without max_commits_per_batch and "
                "max_bytes_per_batch"
            )
        raise MergeKeyError(err.what, kept=err.kept, do=do) from err


_SELECT_ALL = re.compile(r"\s*select\s+\*\s+from\s+@data\s*", re.IGNORECASE)
_FEED = (TYPE, VERSION, TIMESTAMP)
_ORDER, _NUMBER, _TWICE = "_scope_order", "_scope_number", "_scope_twice"
_RANKS = 4
_DELETED, _OLD, _UPDATED, _INSERTED = range(_RANKS)
"""The order of changes within a commit. After one of the last two, the row exists."""
_EXAMPLES = 3
_Held: TypeAlias = tuple[DataFrame, DataFrame, "Mapping[str, Any]"]
"""Rows that exist, the keys of those that do not, and the aggregates of the keys."""


@dataclass(frozen=True, slots=True)
class NetRows:
    """The net changes of a batch, which Spark holds."""

    rows: DataFrame
    """The result of the user's SELECT over the rows that exist."""
    deleted: DataFrame | None
    """Keys of rows that the table is to lose."""
    count: int
    """How many keys have a change."""
    growth: int
    """By how many rows the source has grown; 0 if that is not counted."""
    keys: Keys | None
    """Counts and ranges of the keys, if the rows are those that Spark holds."""


class Net:
    """The way from the changes of one batch to its net changes.

    :param data: The changes, which are the same whenever they are read.
    :param key: The columns that tell one row from another.
    """

    def __init__(
        self, spark: SparkSession, plan: Plan, entry: OffsetEntry, data: DataFrame, key: Sequence[str]
    ) -> None:
        self.spark = spark
        self.plan = plan
        self.version_slice: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
        self.seq = entry.seq
        self.deletes = plan.changes.deletes
        self.key = list(key)
        self.columns = [name for name in data.columns if name not in _FEED]
        names = {name.lower() for name in self.columns}
        for name in self.key:
            if name.lower() not in names:
                raise InputError(
                    f"The key names {name!r}, which is not a column of {plan.changes.table}: "
                    f"{', '.join(self.columns)}. The last change of each key is found before `sql` is run.",
                    kept=NO_ROW_WRITTEN,
                    do="name columns of the source, and let `sql` keep their names",
                )
        if self.deletes == "soft" and DELETED in names:
            raise InputError(
                f"The source has a column {DELETED!r}, which deletes='soft' writes itself.",
                kept=NO_ROW_WRITTEN,
                do="set deletes='apply' or 'ignore'",
            )
        self.data = data.where(F.col(TYPE) != "delete") if self.deletes == "ignore" else data
        kinds = {name.lower(): kind for name, kind in data.dtypes}
        self._kinds = {name.lower(): kinds[name.lower()] for name in self.key}

    @property
    def is_whole(self) -> bool:
        """Whether the table gets all rows of the source, and loses those that the source no longer has."""
        rule = self.plan.write
        by_key = rule.get("kind") == "merge" and rule.get("strategy") != "insert-only"
        leaves_out = self.plan.expect or rule.get("hard_delete") or rule.get("merge_key")
        return bool(
            by_key and not leaves_out and self.deletes == "apply" and _SELECT_ALL.fullmatch(self.plan.sql)
        )

    def held(self, block: ExitStack) -> NetRows:
        """Read the changes once, hold them until the block ends, and run the SELECT over the net rows.

        :raises ChangeFeedError: The changes cannot be read, or a commit has a key twice.
        """
        changes, growth, net = self._ranked(), 0, None
        if self.deletes != "soft":  # "soft" writes deleted rows as a whole, not only their keys
            changes, growth = self._read(block, changes)
            net = self._by_count(block, changes)
        rows, deleted_keys, aggregates = net or self._by_order(block, changes)
        result, deleted = self._results(rows, deleted_keys)
        keys = self._keys_in(result, aggregates)
        return NetRows(result, deleted, int(aggregates["rows"]), growth, keys)

    def _ranked(self) -> DataFrame:
        """Add their order to the changes; within a commit, the rows that exist after it come last."""
        kind = F.col(TYPE)
        rank = F.when(kind == "delete", _DELETED).when(kind == "update_preimage", _OLD)
        rank = rank.when(kind == "update_postimage", _UPDATED).otherwise(_INSERTED)
        columns = [F.col(quoted(name)) for name in self.columns]
        if self.deletes != "soft":
            # Only the key of a row that no longer exists is needed: Spark need not move the rest.
            columns = [self._if_exists(name) for name in self.columns]
        # Version and rank as one number: Spark compares several columns one after the other.
        return self.data.select(*columns, (F.col(VERSION) * _RANKS + rank).alias(_ORDER))

    def _read(self, block: ExitStack, changes: DataFrame) -> tuple[DataFrame, int]:
        rank = F.col(_ORDER) % _RANKS
        growth = F.count_if(rank == _INSERTED) - F.count_if(rank == _DELETED)
        with _naming_causes(self.plan.changes.table, self.version_slice):
            aggregates = [growth.alias("growth"), F.count(F.lit(1)).alias("rows")]
            held, values = read_once(block, changes, aggregates)
        return held, values["growth"]

    def _by_count(self, block: ExitStack, changes: DataFrame) -> _Held | None:
        """Find the net rows, and the keys without one, if no key needs its changes sorted.

        Changes have to be sorted if several rows of a key exist, if one came and went, or if one has no key:
        in few batches. Counting moves only the keys, where ``_by_order`` moves and sorts whole rows.

        :return: None if the changes have to be sorted.
        """
        exists, rows = _exists(F.col(_ORDER)), F.col(_NUMBER)
        keys = changes.groupBy(*self._keys()).agg(
            F.max(_ORDER).alias(_ORDER), F.count_if(exists).alias(_NUMBER)
        )
        order_check, observation = Observation(), Observation()
        needs_order = (rows > 1) | (~exists & (rows > 0)) | ~self._has_key()
        observed = keys.observe(order_check, F.count_if(needs_order).alias("keys"))
        deleted_keys = self._hold(
            block, observed.observe(observation, *self._key_aggregates()).where(~exists)
        )
        if order_check.get["keys"]:
            return None
        return changes.where(exists), deleted_keys, observation.get

    def _by_order(self, block: ExitStack, changes: DataFrame) -> _Held:
        """Find the last change of each key: those after which a row exists, and the others.

        :raises ChangeFeedError: A commit has a key twice.
        """
        order, has_key = F.col(_ORDER), self._has_key()
        exists = _exists(order)
        # A key with NULL identifies no row, so rows are told apart by their values: those exist that came and
        # did not go.
        same_row = F.when(~has_key, row_hash([f for f in changes.schema if f.name != _ORDER]))
        rows = Window.partitionBy(*self._keys(), same_row)
        by_key, net_count = rows.orderBy(order.desc()), F.sum(F.when(exists, 1).otherwise(-1)).over(rows)
        next_order = F.lead(_ORDER).over(by_key)
        is_twice = (_version(next_order) == _version(order)) & _exists(next_order) & exists & has_key
        marked = changes.withColumns(
            {
                _NUMBER: F.row_number().over(by_key),
                _TWICE: F.coalesce(is_twice, F.lit(col=False)),
                _ORDER: F.when(has_key, order).when(net_count > 0, _INSERTED).otherwise(_DELETED),
            }
        )
        twice_check, observation = Observation(), Observation()
        observed = marked.observe(twice_check, F.count_if(F.col(_TWICE)).alias("rows"))
        is_last = (F.col(_NUMBER) == 1) & (has_key | exists)
        last = observed.where(is_last).drop(_NUMBER, _TWICE)
        held = self._hold(block, last.observe(observation, *self._key_aggregates()))
        if twice_check.get["rows"]:
            raise self._twice(marked)
        existing = held if self.deletes == "soft" else held.where(exists)
        return existing, held.where(~exists), observation.get

    def _hold(self, block: ExitStack, rows: DataFrame) -> DataFrame:
        with _naming_causes(self.plan.changes.table, self.version_slice):
            return hold(block, rows)

    def _keys_in(self, result: DataFrame, aggregates: Mapping[str, Any]) -> Keys | None:
        """Take the counts and ranges of the keys.

        :return: None if the SELECT makes other rows of them, or a rule of ``expect`` is still to be checked.
        """
        if self.plan.expect or not _SELECT_ALL.fullmatch(self.plan.sql):
            return None
        kinds = {name.lower(): kind for name, kind in result.dtypes}
        return Keys({name: kinds[name] for name in self._kinds}, aggregates)

    def _key_aggregates(self) -> list[Column]:
        exists, has_key = _exists(F.col(_ORDER)), self._has_key()
        if self.deletes == "soft":
            exists, has_key = F.lit(col=True), F.lit(col=False)
        keys = {name: (F.col(quoted(name)), kind) for name, kind in self._kinds.items()}
        return key_aggregates(keys, exists, ~exists & has_key)

    def _if_exists(self, name: str) -> Column:
        """Select a column, without its values in rows that no longer exist, unless it is one of the key."""
        column = F.col(quoted(name))
        if name.lower() in {key.lower() for key in self.key}:
            return column
        is_old = F.col(TYPE).isin("delete", "update_preimage")
        return F.when(~is_old | ~self._has_key(), column).alias(name)

    def _results(self, rows: DataFrame, deleted_keys: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Run the user's SELECT, and find the keys of rows that the table is to lose."""
        columns = [F.col(quoted(name)) for name in self.columns]
        if self.deletes == "soft":
            result = self._sql(rows.select(*columns, (~_exists(F.col(_ORDER))).alias(DELETED)))
            if DELETED not in {name.lower() for name in result.columns}:
                raise InputError(
                    f"`sql` leaves out {DELETED!r}, which marks the rows that the source no longer has.",
                    kept=NO_ROW_WRITTEN,
                    do=f"select {DELETED}; or set deletes='apply' or 'ignore'",
                )
        else:
            result = self._sql(rows.select(*columns))
        if self.version_slice.snapshot:
            return result, None
        if _SELECT_ALL.fullmatch(self.plan.sql):
            return result, None if self.deletes == "soft" else self._keys_of(deleted_keys)
        # Rows that the SELECT made of older images, and no longer makes of the new ones, are to be deleted:
        # so is a row that a WHERE leaves out since it was updated.
        images = self.data.where(F.col(TYPE).isin("delete", "update_preimage"))
        flag = [F.lit(col=False).alias(DELETED)] if self.deletes == "soft" else []
        old = self._sql(images.select(*columns, *flag))
        missing = self._keys_of(old).distinct().join(result.select(*self._keys()), self.key, "left_anti")
        return result, missing

    def _keys_of(self, rows: DataFrame) -> DataFrame:
        """Select the keys of rows; not those with NULL, which were never loaded."""
        # Not by dropna: it takes a name with a dot for a path.
        return rows.select(*self._keys()).where(self._has_key())

    def _sql(self, rows: DataFrame) -> DataFrame:
        return selected(self.spark, self.plan, rows, self.seq)

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
        if self.version_slice.snapshot:
            come = "was found twice" if count == 1 else "were found twice"
        return ChangeFeedError(
            f"{counted(count, 'key')} of {self.plan.changes.table} {come}, such as "
            f"{examples}: nothing says which of the two rows counts.",
            kept=NO_ROW_WRITTEN,
            do="name a key that identifies each row of the source; or load all changes with "
            f'write="append"; or correct the source, and {feed_state.START_OVER}',
        )


def _version(order: Column) -> Column:
    return F.floor(order / _RANKS)


def _exists(order: Column) -> Column:
    return order % _RANKS >= _UPDATED
