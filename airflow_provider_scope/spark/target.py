"""The Delta table that the batches go to."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.delta.schema import missing_properties
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, SchemaMismatchError
from airflow_provider_scope.spark import shaping
from airflow_provider_scope.spark.commit import Batch, ConcurrentCommitError, DeltaLog, conflicts
from airflow_provider_scope.spark.files.partitions import HIVES_NULL
from airflow_provider_scope.spark.files.quarantine import Quarantine
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.structs import of_table, to_struct, without_lengths
from airflow_provider_scope.spark.tombstones import Tombstones
from airflow_provider_scope.spark.writes import PREPARE, WRITES
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

    from airflow_provider_scope.delta.schema import Evolution
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.plan import Plan

_WIDENS_BY_ITSELF = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
_YEAR_1 = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rows of a batch as the table has them after it."""

    rows: DataFrame
    evolution: Evolution
    partitions: list[str]
    """The columns that partition the table."""
    makes_table: bool
    """Whether the batch makes the table, or makes it anew."""


class Target:
    """One table, seen through Delta on Spark.

    :param now: The instant of the changes; None is when a batch is written.
    :param report: Takes the number of a batch, and what its write did to the table's columns.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        now: datetime | None = None,
        report: Callable[[int, str], None] = lambda seq, text: None,  # noqa: ARG005 - nobody asked
    ) -> None:
        self.spark = spark
        self.now = now
        self.report = report
        self.plan = plan
        self.log = DeltaLog(spark, plan.table)
        self.quarantines = [Quarantine(spark, plan.pipeline, table) for table in plan.quarantines]
        self._prepared = False

    # ---- writing -------------------------------------------------------------------------------

    def write(
        self,
        transaction: Transaction,
        rows: DataFrame,
        notes: Mapping[str, Any] | None = None,
        *,
        deleted: DataFrame | None = None,
        keys: Keys | None = None,
        abandoned: bool = False,
    ) -> int | None:
        """Commit the rows of a batch; its first one makes the table in the same transaction.

        :param notes: What the commit says of the batch beside that, for its record.
        :param deleted: Keys of rows that are to go, for a write that has keys: columns of their names.
        :param keys: As ``Batch.keys``.
        :param abandoned: Whether there are no rows, for the batch is given up.
        :return: The table's version, or None if Delta skipped the write because the batch is there.
        :raises SchemaMismatchError: Before anything is written.
        :raises ConcurrentCommitError: Another writer committed in between.
        """
        entry = transaction.entry
        # One instant for all that the batch changes.
        now = self.now or datetime.now(UTC)
        how = {"now": now.isoformat(), **self.plan.write}
        kind = how.pop("kind", "append")
        if kind in PREPARE:
            rows = PREPARE[kind](rows, how)
        with conflicts():
            metadata = self.log.metadata()
            chars = shaping.char_types(metadata)
            shaping.check_range(self.spark, entry.where, metadata, self.plan.table)
            if metadata:
                self._prepare(metadata)
            fitted = self._fitted(entry, rows, metadata)
            evolution, lacking = fitted.evolution, []
            if metadata:
                lacking = shaping.missing_columns(fitted.rows, metadata)
                if not entry.overwrites_table:
                    write_rules.refuse_without_versions(lacking, self.plan.table)
                widens = bool(evolution.widened)
                self._alter(shaping.needed_properties(fitted.rows, metadata, widens=widens))
            padded = fitted.rows if fitted.makes_table else shaping.pad_chars(fitted.rows, chars)
            batch = self._batch(
                entry,
                self._checked(entry, padded, fitted.partitions, metadata),
                creates=metadata is None,
                partition_by=fitted.partitions if fitted.makes_table else None,
                brings_columns=evolution.changes,
                how=how,
                deleted=None if deleted is None else shaping.pad_chars(deleted, chars),
                keys=None if chars else keys,
                partitions=fitted.partitions if metadata else (),
                chars=shaping.chars_of(chars),
                lacking=lacking,
            )
            if entry.overwrites_table:
                self._tombstones(transaction).clear(anew=True)
            settings = {_WIDENS_BY_ITSELF: "always"} if evolution.widened else {}
            with self._noticing_changes_of(metadata), with_settings(self.spark, settings):
                version = transaction.commit(WRITES[kind], batch, notes or {}, abandoned=abandoned)
            if metadata is None and (made := self.log.metadata()):
                self._prepare(made)  # the properties that the writer does not take
            if version is not None and (summary := evolution.summary()):
                self.report(entry.seq, summary)
            return version

    @contextmanager
    def _noticing_changes_of(self, metadata: dict[str, Any] | None) -> Iterator[None]:
        """Turn Spark's error for rows that no longer fit, since another writer changed the table's columns.

        :raises ConcurrentCommitError: The columns are others now.
        """
        try:
            yield
        except AnalysisException as err:
            now = self.log.metadata() if metadata else None
            if metadata and now and now["schemaString"] != metadata["schemaString"]:
                raise ConcurrentCommitError("another writer changed the table's columns") from err
            raise

    def _fitted(self, entry: OffsetEntry, rows: DataFrame, metadata: dict[str, Any] | None) -> Fitted:
        """Fit rows to the table; only a refresh of the whole table may make it anew for them."""
        if metadata:
            partitions: list[str] = metadata["partitionColumns"]
            try:
                if self.plan.schema_evolution == "fail":
                    self._check_declared(of_table(metadata), in_order=entry.overwrites_table)
                self._check_partitions(partitions)
                return Fitted(*shaping.fit_to_table(self.plan, rows, metadata), partitions, makes_table=False)
            except InputError:
                if not entry.overwrites_table:
                    raise
        made, evolution = shaping.fit_to_table(self.plan, rows, None)
        return Fitted(made, evolution, self._partitions_of(made.columns), makes_table=True)

    def _checked(
        self,
        entry: OffsetEntry,
        rows: DataFrame,
        partitions: Sequence[str],
        metadata: dict[str, Any] | None,
    ) -> DataFrame:
        """Let rows fail that Delta would store as others, or that lie outside of the range of the batch."""
        partitioned = {name.lower() for name in partitions}
        rows = rows.withColumns(
            {name: _kept(name, kind) for name, kind in rows.dtypes if name.lower() in partitioned}
        )
        if entry.where and (entry.mode != "overwrite" or metadata is None):
            # A batch that replaces a range is checked by Delta; one that adds to it, or has none yet, is not.
            checked = rows.withColumns(shaping.computed_columns(rows, metadata)).where(_inside(entry.where))
            return checked.select(*[F.col(quoted(name)) for name in rows.columns])
        return rows

    def write_nothing(self, transaction: Transaction, notes: Mapping[str, Any]) -> int | None:
        """Commit a batch without rows: none of its files could be read, or has a column.

        :raises InputError: There is no table, and nothing tells its columns.
        """
        where = transaction.entry.where
        shaping.check_range(self.spark, where, self.log.metadata(), self.plan.table)
        return self._empty(transaction, notes, abandoned=False)

    def fence(self, transaction: Transaction) -> int | None:
        """Commit the batch without its rows, as one that was abandoned.

        An overwrite still empties what it replaces: all files since it count as not loaded, and rows of
        before it that stayed would be doubled by them.
        """
        return self._empty(transaction, {}, abandoned=True)

    def _empty(self, transaction: Transaction, notes: Mapping[str, Any], *, abandoned: bool) -> int | None:
        with conflicts():
            if abandoned:
                self._tombstones(transaction).clear(anew=transaction.entry.overwrites_table)
            metadata = self.log.metadata()
            if metadata:
                # Delta takes no rows that name an identity, even if there are none.
                columns = shaping.without_identities(of_table(metadata))
            elif self.plan.table_columns:
                columns = without_lengths(to_struct(self.plan.table_columns))
            else:
                raise InputError(
                    f"The table {self.plan.table} does not exist yet, so batch {transaction.entry.seq} "
                    "cannot be committed to it without rows.",
                    kept="everything; nothing was written",
                    do="name the table's columns (table=TableSpec(columns=...)); or run the task once with "
                    "full_refresh=True, without the files of the batch: nothing has been loaded yet",
                )
            empty = self.spark.createDataFrame([], columns)
            partitions = None if metadata else [*self.plan.spec.partition_by]
            batch = self._batch(transaction.entry, empty, partition_by=partitions)
            # Some writes delete rows that a batch does not have, and this one was not read.
            return transaction.commit(WRITES["append"], batch, notes, abandoned=abandoned)

    def _tombstones(self, transaction: Transaction) -> Tombstones:
        return Tombstones.of(self.log, (transaction.pipeline, transaction.entry.seq))

    def _batch(self, entry: OffsetEntry, rows: DataFrame, **more: Any) -> Batch:
        # Delta's writer takes no other properties when it makes a table.
        declared = self.plan.spec.properties or {}
        properties = {k: v for k, v in declared.items() if k.lower().startswith("delta.")}
        overwrites = entry.mode == "overwrite"
        return Batch(rows=rows, overwrites=overwrites, where=entry.where, properties=properties, **more)

    # ---- the table itself ----------------------------------------------------------------------

    def _partitions_of(self, columns: Sequence[str]) -> list[str]:
        """Check the columns that partition a table that is made with these columns."""
        names = {name.lower() for name in columns}
        problem, listed = None, ", ".join(columns)
        for name in self.plan.spec.partition_by:
            if name.lower() not in names:
                problem = f"partition_by names {name!r}, which is not a column of the table: {listed}."
        if names == {name.lower() for name in self.plan.spec.partition_by}:
            problem = (
                f"partition_by names all columns of the table, {listed}: its files would have no column."
            )
        if problem:
            raise InputError(
                problem,
                kept="everything; the table was not created or changed, and the batch stays logged",
                do="correct partition_by, or the columns of the SELECT",
            )
        return [*self.plan.spec.partition_by]

    def _prepare(self, metadata: dict[str, Any]) -> None:
        """Set the declared properties, once, and refuse a table that forgets transactions."""
        if self._prepared:
            return
        configuration = {str(k).lower(): v for k, v in metadata.get("configuration", {}).items()}
        if "delta.settransactionretentionduration" in configuration:
            raise InputError(
                f"The table {self.plan.table} has delta.setTransactionRetentionDuration="
                f"{configuration['delta.settransactionretentionduration']!r}: it would forget which batches "
                "it holds, and load them again.",
                kept="the table; nothing was written",
                do=f"ALTER TABLE delta.`{self.plan.table}` UNSET TBLPROPERTIES "
                "('delta.setTransactionRetentionDuration')",
            )
        if declared := self.plan.spec.properties:
            stored_properties = metadata.get("configuration", {})
            self._alter(missing_properties(declared, stored_properties, self.log.protocol()))
        self._prepared = True

    def _alter(self, properties: dict[str, str]) -> None:
        if properties:
            self.log.alter(properties)

    def _check_declared(self, table: T.StructType, *, in_order: bool) -> None:
        """Refuse a table with other columns; rows are matched by name, so their order is no reason to."""
        if not self.plan.table_columns:
            return
        declared = without_lengths(to_struct(self.plan.table_columns))
        declared_pairs, table_pairs = (
            [(field.name.lower(), field.dataType.simpleString()) for field in columns]
            for columns in (declared, table)
        )
        if declared_pairs != table_pairs and (in_order or sorted(declared_pairs) != sorted(table_pairs)):
            raise SchemaMismatchError(
                f"The table {self.plan.table} has the columns {_listed(table)}; declared are "
                f"{_listed(declared)}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's columns, change the table, or run once with full_refresh=True",
            )

    def _check_partitions(self, partitions: Sequence[str]) -> None:
        # Delta keeps a name as the SELECT that made the table has it.
        declared, existing = (
            [name.lower() for name in names] for names in (self.plan.spec.partition_by, partitions)
        )
        if declared and declared != existing:
            raise InputError(
                f"The table {self.plan.table} is partitioned by {list(partitions)!r}; declared is "
                f"{list(self.plan.spec.partition_by)!r}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's partitioning, or run once with full_refresh=True",
            )


def _kept(name: str, kind: str) -> Column:
    """Let a column that partitions the table fail at a value that Delta stores as another."""
    value = F.col(quoted(name))
    for is_changed, change in _changed_in_partitions(value, kind):
        message = F.lit(f"the partition column {name} has {change}")
        value = F.when(_here(is_changed), F.raise_error(message)).otherwise(value)
    return value


def _changed_in_partitions(value: Column, kind: str) -> list[tuple[Column, str]]:
    """Find the values of a partition column that Delta stores as others; say as which."""
    text = value.cast("string")
    changes = [(text.isin("", HIVES_NULL), f"an empty text or {HIVES_NULL}, which Delta turns into NULL")]
    if kind == "timestamp":
        # It writes the year without its sign, and 45 BC becomes 45.
        early = value < F.lit(_YEAR_1).cast("timestamp")
        changes.append((early, "a time before the year 1, which Delta turns into another time"))
    if kind.startswith(("binary", "string")):  # a collation follows
        changes.append((~F.is_valid_utf8(text), "bytes that are no UTF-8, which Delta turns into others"))
    return changes


def _inside(where: str) -> Column:
    message = F.lit(f"a row lies outside of the range that is replaced: {where}")
    return F.when(_here(F.coalesce(F.expr(where), F.lit(col=False))), F.lit(col=True)).otherwise(
        F.raise_error(message).cast("boolean")
    )


def _here(condition: Column) -> Column:
    """Let Spark evaluate a condition where it stands: for the rows that are written, and no others.

    Spark takes ``raise_error`` for harmless (SPARK-58627), and moves what holds it below the SELECT's joins
    and offsets, where it meets rows that they drop. It moves nothing that it cannot compute twice.
    """
    return condition & (F.spark_partition_id() >= 0)


def _listed(columns: T.StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)
