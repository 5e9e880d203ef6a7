"""The Delta table that the batches go to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core import scd2
from airflow_provider_scope.core import schema as schemas
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.core.table_properties import missing_properties
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError, SchemaMismatchError
from airflow_provider_scope.spark import shaping
from airflow_provider_scope.spark.commit import Batch
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError, DeltaLog, conflicts
from airflow_provider_scope.spark.quarantine import Quarantine
from airflow_provider_scope.spark.structs import to_columns, to_struct
from airflow_provider_scope.spark.with_settings import with_settings
from airflow_provider_scope.spark.writes import PREPARE, WRITES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Write
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.transaction import Transaction

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
        commit = partial(
            self._commit,
            transaction,
            WRITES[kind],
            notes or {},
            how=how,
            deleted=deleted,
            keys=keys,
        )
        with conflicts():
            metadata = self.log.metadata()
            if self.plan.schema_evolution != "fail":
                return self._write_evolving(entry, rows, metadata, commit)
            select = to_columns(rows.schema)
            if metadata is None:
                return self._create(entry, rows, self._wanted(select), commit)
            self._prepare(metadata)
            fits, partitions, new_schema = self._fit(entry, select, metadata)
            shaped = self._shaped(entry, rows, fits, partitions)
            if new_schema:
                self._alter(shaping.needed_properties(shaped, metadata))
            return commit(shaped, partitions if new_schema else None, partitions=partitions)

    def _write_evolving(
        self, entry: OffsetEntry, rows: DataFrame, metadata: dict[str, Any] | None, commit: _Commit
    ) -> int | None:
        """Commit the rows together with the columns and types that they bring."""
        if metadata is None:
            made, _ = shaping.grown(self.plan, rows, None)
            return self._create(entry, made, to_columns(made.schema), commit)
        self._prepare(metadata)
        partitions: list[str] = metadata["partitionColumns"]
        new_schema = False
        try:
            self._check_partitions(partitions)
            made, after = shaping.grown(self.plan, rows, metadata)
        except InputError:
            if not entry.overwrites_table:
                raise
            made, after = shaping.grown(self.plan, rows, None)
            partitions, new_schema = self._partitions_of(to_columns(made.schema)), True
        lacking = shaping.lacking(made, metadata)
        if not entry.overwrites_table:
            scd2.refuse_without_versions(lacking, self.plan.table)
        self._alter(shaping.needed_properties(made, metadata, widens=bool(after.widened)))
        fits = [schemas.Fit(name, name, None) for name in made.columns]
        batch = self._shaped(entry, made, fits, partitions)
        try:
            with with_settings(self.spark, {_WIDENS_BY_ITSELF: "always"} if after.widened else {}):
                version = commit(
                    batch,
                    partitions if new_schema else None,
                    brings_columns=after.changes,
                    partitions=partitions,
                    lacking=lacking,
                )
        except AnalysisException as err:
            now = self.log.metadata()
            if now and now["schemaString"] != metadata["schemaString"]:
                raise ConcurrentCommitError("another writer changed the table's columns") from err
            raise
        self.told = after.told() if version is not None else ""
        return version

    def _fit(
        self, entry: OffsetEntry, select: Sequence[schemas.Column], metadata: dict[str, Any]
    ) -> tuple[tuple[schemas.Fit, ...], list[str], bool]:
        """Match the SELECT to the table; only a refresh of the whole table may change the table."""
        table = to_columns(T.StructType.fromJson(json.loads(metadata["schemaString"])))
        partitions: list[str] = metadata["partitionColumns"]
        try:
            self._check_declared(table, in_order=entry.overwrites_table)
            self._check_partitions(partitions)
            return schemas.fit(select, table, self.plan.table), partitions, False
        except InputError:
            if not entry.overwrites_table:
                raise
            wanted = self._wanted(select)
            return schemas.fit(select, wanted, self.plan.table), self._partitions_of(wanted), True

    def _shaped(
        self,
        entry: OffsetEntry,
        rows: DataFrame,
        fits: Sequence[schemas.Fit],
        partitions: Sequence[str],
        *,
        creates: bool = False,
    ) -> DataFrame:
        kinds = {field.name: field.dataType.simpleString() for field in rows.schema}
        shaped = rows.select(*[_value(fit, kinds[fit.source], partitions) for fit in fits])
        if entry.where and (entry.mode != "overwrite" or creates):
            # A batch that replaces a range is checked by Delta; one that adds to it, or has none yet, is not.
            return shaped.where(_inside(entry.where))
        return shaped

    def write_nothing(self, transaction: Transaction, notes: Mapping[str, Any]) -> int | None:
        """Commit a batch without rows: none of its files could be read.

        :raises InputError: There is no table, and nothing tells its columns.
        """
        self.told = ""
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
                columns = T.StructType.fromJson(json.loads(metadata["schemaString"]))
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
        found: DataFrame,
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
            rows=found,
            overwrites=entry.mode == "overwrite",
            where=entry.where,
            partition_by=partition_by,
            properties=properties,
            **more,
        )
        with shaping.naming_odd_columns(found, self.plan.table):
            return transaction.commit(write, batch, notes, abandoned=abandoned)

    # ---- the table itself ----------------------------------------------------------------------

    def _wanted(self, select: Sequence[schemas.Column]) -> list[schemas.Column]:
        declared = self.plan.table_columns
        return to_columns(to_struct(declared)) if declared else [*select]

    def _create(
        self, entry: OffsetEntry, rows: DataFrame, columns: Sequence[schemas.Column], commit: _Commit
    ) -> int | None:
        """Make the table with the rows of its first batch, in one transaction."""
        partitions = self._partitions_of(columns)
        fits = schemas.fit(to_columns(rows.schema), columns, self.plan.table)
        shaped = self._shaped(entry, rows, fits, partitions, creates=True)
        version = commit(shaped, partitions, creates=True)
        metadata = self.log.metadata()
        if metadata:
            self._prepare(metadata)  # the properties that the writer does not take
        return version

    def _partitions_of(self, columns: Sequence[schemas.Column]) -> list[str]:
        """Give the columns that partition a table that is made with these columns."""
        names = {name.lower() for name, _ in columns}
        what, listed = None, ", ".join(name for name, _ in columns)
        for name in self.plan.partition_by:
            if name.lower() not in names:
                what = f"partition_by names {name!r}, which is not a column of the table: {listed}."
        if names == {name.lower() for name in self.plan.partition_by}:
            what = f"partition_by names all columns of the table, {listed}: its files would have no column."
        if what:
            raise InputError(
                what,
                kept="everything; the table was not created or changed, and the batch stays logged",
                do="correct partition_by, or the columns of the SELECT",
            )
        return [*self.plan.partition_by]

    def _prepare(self, metadata: dict[str, Any]) -> None:
        """Set the declared properties, once, and refuse a table that forgets transactions."""
        if self._prepared:
            return
        there = {str(k).lower(): v for k, v in metadata.get("configuration", {}).items()}
        if "delta.settransactionretentionduration" in there:
            raise InputError(
                f"The table {self.plan.table} has delta.setTransactionRetentionDuration="
                f"{there['delta.settransactionretentionduration']!r}: it would forget which batches it "
                "holds, and load them again.",
                kept="the table; nothing was written",
                do=f"ALTER TABLE delta.`{self.plan.table}` UNSET TBLPROPERTIES "
                "('delta.setTransactionRetentionDuration')",
            )
        if self.plan.properties:
            there_now = metadata.get("configuration", {})
            self._alter(missing_properties(self.plan.properties, there_now, self.log.protocol()))
        self._prepared = True

    def _alter(self, properties: dict[str, str]) -> None:
        if properties:
            self.log.alter(properties)

    def _check_declared(self, table: Sequence[schemas.Column], *, in_order: bool) -> None:
        """Refuse a table with other columns; rows are matched by name, so their order is no reason to."""
        declared = self.plan.table_columns
        if not declared:
            return
        wanted = to_columns(to_struct(declared))
        one, other = ([(name.lower(), kind) for name, kind in columns] for columns in (wanted, table))
        if one != other and (in_order or sorted(one) != sorted(other)):
            raise SchemaMismatchError(
                f"The table {self.plan.table} has the columns {_listed(table)}; declared are "
                f"{_listed(wanted)}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's columns, change the table, or run once with full_refresh=True",
            )

    def _check_partitions(self, partitions: Sequence[str]) -> None:
        # Delta keeps a name as the SELECT that made the table has it.
        declared, there = ([name.lower() for name in names] for names in (self.plan.partition_by, partitions))
        if declared and declared != there:
            raise InputError(
                f"The table {self.plan.table} is partitioned by {list(partitions)!r}; declared is "
                f"{list(self.plan.partition_by)!r}.",
                kept=NO_ROW_WRITTEN,
                do="declare the table's partitioning, or run once with full_refresh=True",
            )


def _value(fit: schemas.Fit, kind: str, partitions: Sequence[str]) -> Column:
    """Give a column as the table has it.

    :param kind: Its type in the SELECT.
    """
    value = F.col(quoted(fit.source))
    if fit.target.lower() in {name.lower() for name in partitions}:
        # Delta stores these texts in a partition column as NULL: another row than was read.
        what = f"the partition column {fit.target} has an empty text or {_HIVES_NULL}"
        message = f"{what}, which Delta turns into NULL"
        empty = value.cast("string").isin("", _HIVES_NULL)
        value = F.when(_here(empty), F.raise_error(F.lit(message))).otherwise(value)
        if (fit.cast_to or kind) == "timestamp":
            # It writes the year without its sign, and 45 BC becomes 45.
            what = f"the partition column {fit.target} has a time before the year 1"
            message = f"{what}, which Delta turns into another time"
            early = value < F.lit(_YEAR_1).cast("timestamp")
            value = F.when(_here(early), F.raise_error(F.lit(message))).otherwise(value)
    return (value.cast(fit.cast_to) if fit.cast_to else value).alias(fit.target)


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
