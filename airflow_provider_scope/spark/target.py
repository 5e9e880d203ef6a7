"""The Delta table that the batches go to."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import scd2_rule
from airflow_provider_scope.delta.schema import missing_properties
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, SchemaMismatchError
from airflow_provider_scope.spark import shaping
from airflow_provider_scope.spark.commit import Batch
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError, DeltaLog, conflicts
from airflow_provider_scope.spark.files.quarantine import Quarantine
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.structs import of_table, to_columns, to_struct
from airflow_provider_scope.spark.writes import PREPARE, WRITES
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.delta import schema as schemas
    from airflow_provider_scope.delta.schema import Evolution
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Transaction, Write
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.plan import Plan

    _Commit = Callable[..., int | None]

_WIDENS_BY_ITSELF = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
_HIVES_NULL = "__HIVE_DEFAULT_PARTITION__"
_YEAR_1 = "0001-01-01T00:00:00Z"


def _now() -> datetime:
    return datetime.now(UTC)


class Target:
    """One table, seen through Delta on Spark."""

    def __init__(self, spark: SparkSession, plan: Plan, now: Callable[[], datetime] = _now) -> None:
        self.spark = spark
        self.now = now
        self.plan = plan
        self.log = DeltaLog(spark, plan.table)
        self.quarantines = [Quarantine(spark, plan.pipeline, table) for table in plan.quarantines]
        self.told = ""
        """What the newest write did to the table's columns; empty if they are the SELECT's."""
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
    ) -> int | None:
        """Commit the rows of a batch.

        :param notes: What the commit says of the batch beside that, for its record.
        :param deleted: Keys of rows that are to go, for a write that has keys: columns of their names.
        :param keys: As ``Batch.keys``.
        :return: The table's version, or None if Delta skipped the write because the batch is there.
        :raises SchemaMismatchError: Before anything is written.
        :raises ConcurrentCommitError: Another writer committed in between.
        """
        self.told = ""
        entry = transaction.entry
        # One instant for all that the batch changes.
        how = {"now": self.now().isoformat(), **self.plan.write}
        kind = how.pop("kind", "append")
        if kind in PREPARE:
            rows = PREPARE[kind](rows, how)
        with conflicts():
            metadata = self.log.metadata()
            lengths = shaping.char_lengths(metadata)
            shaping.check_range(self.spark, entry.where, metadata, self.plan.table)
            commit = partial(
                self._commit,
                transaction,
                WRITES[kind],
                notes or {},
                how=how,
                deleted=None if deleted is None else shaping.pad_chars(deleted, lengths),
                keys=None if lengths else keys,
                chars=lengths,
            )
            if metadata is None:
                return self._create(entry, rows, commit)
            self._prepare(metadata)
            made, after, partitions, is_new = self._fitted(entry, rows, metadata)
            lacking = shaping.missing_columns(made, metadata)
            if not entry.overwrites_table:
                scd2_rule.refuse_without_versions(lacking, self.plan.table)
            self._alter(shaping.needed_properties(made, metadata, widens=bool(after.widened)))
            stored = self._checked(entry, made if is_new else shaping.pad_chars(made, lengths), partitions)
            try:
                with with_settings(self.spark, {_WIDENS_BY_ITSELF: "always"} if after.widened else {}):
                    version = commit(
                        stored,
                        partitions if is_new else None,
                        brings_columns=after.changes,
                        partitions=partitions,
                        lacking=lacking,
                    )
            except AnalysisException as err:
                now = self.log.metadata()
                if now and now["schemaString"] != metadata["schemaString"]:
                    raise ConcurrentCommitError("another writer changed the table's columns") from err
                raise
            self.told = after.summary() if version is not None else ""
            return version

    def _fitted(
        self, entry: OffsetEntry, rows: DataFrame, metadata: dict[str, Any]
    ) -> tuple[DataFrame, Evolution, list[str], bool]:
        """Give the rows as the table has them after the batch, what is new in it, and its partitioning.

        :return: And whether the table is made anew: only a refresh of the whole table may do so.
        """
        partitions: list[str] = metadata["partitionColumns"]
        try:
            if self.plan.schema_evolution == "fail":
                self._check_declared(to_columns(of_table(metadata)), in_order=entry.overwrites_table)
            self._check_partitions(partitions)
            return *shaping.fit_to_table(self.plan, rows, metadata), partitions, False
        except InputError:
            if not entry.overwrites_table:
                raise
            made, after = shaping.fit_to_table(self.plan, rows, None)
            return made, after, self._partitions_of(to_columns(made.schema)), True

    def _checked(
        self, entry: OffsetEntry, rows: DataFrame, partitions: Sequence[str], *, creates: bool = False
    ) -> DataFrame:
        """Let rows fail that Delta would store as others, or that lie outside of the range of the batch."""
        partitioned = {name.lower() for name in partitions}
        rows = rows.withColumns(
            {name: _kept(name, kind) for name, kind in rows.dtypes if name.lower() in partitioned}
        )
        if entry.where and (entry.mode != "overwrite" or creates):
            # A batch that replaces a range is checked by Delta; one that adds to it, or has none yet, is not.
            return rows.where(_inside(entry.where))
        return rows

    def write_nothing(self, transaction: Transaction, notes: Mapping[str, Any]) -> int | None:
        """Commit a batch without rows: none of its files could be read.

        :raises InputError: There is no table, and nothing tells its columns.
        """
        self.told = ""
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
            metadata = self.log.metadata()
            if metadata:
                columns = of_table(metadata)
            elif self.plan.table_columns:
                columns = to_struct(self.plan.table_columns)
            else:
                raise InputError(
                    f"The table {self.plan.table} does not exist yet, so batch {transaction.entry.seq} "
                    "cannot be committed to it without rows.",
                    kept="everything; nothing was written",
                    do="name the table's columns (table=TableSpec(columns=...)); or run the task once with "
                    "full_refresh=True, without the files that cannot be read: nothing has been loaded yet",
                )
            empty = self.spark.createDataFrame([], columns)
            partitions = None if metadata else [*self.plan.partition_by]
            # Some writes delete rows that a batch does not have, and this one was not read.
            return self._commit(transaction, WRITES["append"], notes, empty, partitions, abandoned=abandoned)

    def _commit(
        self,
        transaction: Transaction,
        write: Write,
        notes: Mapping[str, Any],
        rows: DataFrame,
        partition_by: Sequence[str] | None,
        *,
        abandoned: bool = False,
        **more: Any,
    ) -> int | None:
        """Commit rows that have the shape of the table.

        :param partition_by: The partitioning of a table that is made or changed by this write, else None.
        :param more: What else a ``Batch`` says.
        """
        # Delta's writer takes no other properties when it makes a table.
        properties = {k: v for k, v in self.plan.properties.items() if k.lower().startswith("delta.")}
        entry = transaction.entry
        batch = Batch(
            rows=rows,
            overwrites=entry.mode == "overwrite",
            where=entry.where,
            partition_by=partition_by,
            properties=properties,
            **more,
        )
        with shaping.naming_invalid_columns(rows, self.plan.table):
            return transaction.commit(write, batch, notes, abandoned=abandoned)

    # ---- the table itself ----------------------------------------------------------------------

    def _create(self, entry: OffsetEntry, rows: DataFrame, commit: _Commit) -> int | None:
        """Make the table with the rows of its first batch, in one transaction."""
        made, _ = shaping.fit_to_table(self.plan, rows, None)
        partitions = self._partitions_of(to_columns(made.schema))
        version = commit(self._checked(entry, made, partitions, creates=True), partitions, creates=True)
        metadata = self.log.metadata()
        if metadata:
            self._prepare(metadata)  # the properties that the writer does not take
        return version

    def _partitions_of(self, columns: Sequence[schemas.Column]) -> list[str]:
        """Give the columns that partition a table that is made with these columns."""
        names = {name.lower() for name, _ in columns}
        problem, listed = None, ", ".join(name for name, _ in columns)
        for name in self.plan.partition_by:
            if name.lower() not in names:
                problem = f"partition_by names {name!r}, which is not a column of the table: {listed}."
        if names == {name.lower() for name in self.plan.partition_by}:
            problem = (
                f"partition_by names all columns of the table, {listed}: its files would have no column."
            )
        if problem:
            raise InputError(
                problem,
                kept="everything; the table was not created or changed, and the batch stays logged",
                do="correct partition_by, or the columns of the SELECT",
            )
        return [*self.plan.partition_by]

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
        if self.plan.properties:
            stored_properties = metadata.get("configuration", {})
            self._alter(missing_properties(self.plan.properties, stored_properties, self.log.protocol()))
        self._prepared = True

    def _alter(self, properties: dict[str, str]) -> None:
        if properties:
            self.log.alter(properties)

    def _check_declared(self, table: Sequence[schemas.Column], *, in_order: bool) -> None:
        """Refuse a table with other columns; rows are matched by name, so their order is no reason to."""
        declared = self.plan.table_columns
        if not declared:
            return
        declared_columns = to_columns(to_struct(declared))
        declared_pairs, table_pairs = (
            [(name.lower(), kind) for name, kind in columns] for columns in (declared_columns, table)
        )
        if declared_pairs != table_pairs and (in_order or sorted(declared_pairs) != sorted(table_pairs)):
            raise SchemaMismatchError(
                f"The table {self.plan.table} has the columns {_listed(table)}; declared are "
                f"{_listed(declared_columns)}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's columns, change the table, or run once with full_refresh=True",
            )

    def _check_partitions(self, partitions: Sequence[str]) -> None:
        # Delta keeps a name as the SELECT that made the table has it.
        declared, existing = (
            [name.lower() for name in names] for names in (self.plan.partition_by, partitions)
        )
        if declared and declared != existing:
            raise InputError(
                f"The table {self.plan.table} is partitioned by {list(partitions)!r}; declared is "
                f"{list(self.plan.partition_by)!r}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's partitioning, or run once with full_refresh=True",
            )


def _kept(name: str, kind: str) -> Column:
    """Give a column that partitions the table; it fails at a value that Delta stores as another."""
    value = F.col(quoted(name))
    for is_changed, change in _changed_in_partitions(value, kind):
        message = F.lit(f"the partition column {name} has {change}")
        value = F.when(_here(is_changed), F.raise_error(message)).otherwise(value)
    return value


def _changed_in_partitions(value: Column, kind: str) -> list[tuple[Column, str]]:
    """Give which values of a partition column Delta stores as others, and as which."""
    text = value.cast("string")
    changes = [(text.isin("", _HIVES_NULL), f"an empty text or {_HIVES_NULL}, which Delta turns into NULL")]
    if kind == "timestamp":
        # It writes the year without its sign, and 45 BC becomes 45.
        early = value < F.lit(_YEAR_1).cast("timestamp")
        changes.append((early, "a time before the year 1, which Delta turns into another time"))
    if kind == "binary":
        changes.append((~F.is_valid_utf8(text), "bytes that are no UTF-8, which Delta turns into others"))
    return changes


def _inside(where: str) -> Column:
    message = F.lit(f"a row lies outside of the range that is replaced: {where}")
    return F.when(_here(F.coalesce(F.expr(where), F.lit(col=False))), F.lit(col=True)).otherwise(
        F.raise_error(message).cast("boolean")
    )


def _here(condition: Column) -> Column:
    """Give a condition that Spark evaluates where it stands: for the rows that are written, and no others.

    Spark takes ``raise_error`` for harmless (SPARK-58627), and moves what holds it below the SELECT's joins
    and offsets, where it meets rows that they drop. It moves nothing that it cannot compute twice.
    """
    return condition & (F.spark_partition_id() >= 0)


def _listed(columns: Sequence[schemas.Column]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
