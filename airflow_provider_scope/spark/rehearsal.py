"""Read a batch by the readers and checks of a run, and write nothing: all that does not fit is collected.

A run stops at the first refusal. Here the batch is then read as if that were mended, until nothing is left.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    BadFileError,
    BadRecordError,
    CursorError,
    InputError,
    ScopeProviderError,
    mask,
)
from airflow_provider_scope.expectations import RuleCount, lines, relaxed
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark import shaping, storage
from airflow_provider_scope.spark.commit import Commit, DeltaLog, Transaction
from airflow_provider_scope.spark.files.listing import SHOWN
from airflow_provider_scope.spark.files.quarantine import NOTHING_GOOD, Quarantine
from airflow_provider_scope.spark.target import Fitted, Target
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Batch, Write
    from airflow_provider_scope.spark.plan import Plan

    Act: TypeAlias = Callable[[Plan, Target, Transaction], object]

_NO_TABLE = re.compile(r'relation ".*" does not exist')
"""What PostgreSQL says where capitals of a name were not quoted."""
_MAPPING = "delta.columnMapping.mode"


class Findings:
    def __init__(self) -> None:
        self.refusals: list[ScopeProviderError] = []
        """Why runs would fail, one after the other."""
        self.bad: list[str] = []
        """A line for each rule that records, rows or files break."""
        self.warned: list[str] = []
        """A line for each rule that rows break which would be loaded."""
        self.rows: int | None = None
        """How many rows a run would write; None if it would not write them as they are."""

    def refuse(self, error: ScopeProviderError) -> None:
        error.kept = "everything; nothing was written"
        if error.what not in [refusal.what for refusal in self.refusals]:
            self.refusals.append(error)

    def encode(self) -> bytes:
        refusals = [error.to_dict() for error in self.refusals]
        counts = {"bad": self.bad, "warned": self.warned, "rows": self.rows}
        return json.dumps({"refusals": refusals, **counts}).encode()


def rehearse(spark: SparkSession, plan: Plan, entry: OffsetEntry, commit: Act) -> None:
    """Read a batch and check it against the table; put what was found into the checkpoint of the plan.

    :param commit: Reads a batch and commits it, and raises our own errors alone.
    """
    findings = Findings()
    attempt: tuple[Plan, OffsetEntry] | None = (plan, entry)
    while attempt:
        attempt = _attempt(spark, *attempt, commit, findings)
    storage.replace(spark, plans.findings_path(plan.checkpoint), findings.encode())


def _attempt(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, commit: Act, findings: Findings
) -> tuple[Plan, OffsetEntry] | None:
    """Read a batch up to the first refusal that ends it.

    :return: The batch as if that were mended; None if nothing is left to be found.
    """
    target = _Target(spark, plan, findings)
    transaction = _Transaction(target.log, plan.pipeline, entry, plan, findings)
    try:
        commit(plan, target, transaction)
    except ScopeProviderError as error:
        if not (_NO_TABLE.search(error.what) and _is_quoted(plan)):  # which was said of the name before
            findings.refuse(error)
        return _mended(plan, entry, error)
    return None


def _mended(plan: Plan, entry: OffsetEntry, error: ScopeProviderError) -> tuple[Plan, OffsetEntry] | None:
    """Return the batch as if what an error names were mended; None if nobody knows how."""
    source = plan.source
    if isinstance(source, FileSource) and isinstance(error, BadFileError | BadRecordError):
        sorting = replace(source, bad_records="quarantine", max_bad_records=None, max_bad_share=None)
        rules = relaxed(plan.expect, "quarantine") or None
        sorted_plan = replace(plan.with_spec(expect=rules), source=sorting)
        if sorted_plan != plan and not plan.has_to_infer:
            return sorted_plan, entry
        bad_files = error.files if isinstance(error, BadFileError) else {}
        remaining = entry.with_files({*entry.paths} - bad_files.keys())
        return (plan, remaining) if bad_files and remaining.files and remaining != entry else None
    if isinstance(error, BadRecordError):  # of a rule: it counts all rows then
        warning = relaxed(plan.expect, "warn")
        return (plan.with_spec(expect=warning), entry) if warning != plan.expect else None
    if isinstance(source, JdbcSource) and isinstance(error, CursorError) and error.columns:
        options = {**(source.options or {})}
        types = [options.get("customSchema"), *(f"`{name}` STRING" for name in error.columns)]
        options["customSchema"] = ", ".join(kind for kind in types if kind)
        return replace(plan, source=replace(source, options=options)), entry
    if isinstance(source, JdbcSource) and _NO_TABLE.search(error.what) and not _is_quoted(plan):
        name = ".".join(f'"{part}"' for part in str(source.table).split("."))
        return replace(plan, source=replace(source, table=name)), entry
    return None


def _is_quoted(plan: Plan) -> bool:
    """Return whether quotes cannot help: the table's name has them already, or no table is named."""
    return not isinstance(plan.source, JdbcSource) or not plan.source.table or '"' in plan.source.table


class _Log(DeltaLog):
    """The log of a table that is only read: all that writes to a table goes through one of these."""

    def commit(self, act: Callable[[], object], session: SparkSession) -> int | None:  # noqa: ARG002 - the same
        return None

    def alter(self, properties: Mapping[str, str]) -> None:
        """Set no property."""

    def cluster_by(self, columns: Sequence[str]) -> None:
        """Leave the clustering."""


@dataclass(frozen=True, slots=True)
class _Transaction(Transaction):
    """In place of a batch's transaction: the rows are read, and Delta checks their columns without a row."""

    plan: Plan
    findings: Findings

    def commit(
        self,
        write: Write,
        batch: Batch,
        notes: Mapping[str, Any],
        *,
        abandoned: bool = False,  # noqa: ARG002 - as the other one
    ) -> int | None:
        warned = {rule: RuleCount(**rows) for rule, rows in notes.get("warned", {}).items()}
        self.findings.warned = lines(warned)
        try:
            _show_to_delta(self.plan, self.log, batch)
        except InputError as err:
            self.findings.refuse(err)
        with shaping.naming_unfit_columns(batch.rows, self.log.table):
            write(batch, _Commit(self.log, (self.pipeline, self.entry.seq), {**notes}, self.findings))
        return None


def _show_to_delta(plan: Plan, log: DeltaLog, batch: Batch) -> None:
    """Make a table with the columns of a batch in the checkpoint of the plan, for Delta's own checks.

    :raises InputError: Delta allows a name of them in no table, or in none like this.
    """
    if batch.partition_by is None and not batch.brings_columns:
        return
    metadata = log.metadata() or {}
    mapping = {_MAPPING: metadata.get("configuration", {}).get(_MAPPING)}
    properties = {**{name: value for name, value in mapping.items() if value}, **batch.properties}
    empty = replace(
        batch,
        rows=batch.rows.sparkSession.createDataFrame([], batch.rows.schema),
        partition_by=batch.partition_by or [],
        properties=properties,
    )
    with shaping.naming_unfit_columns(batch.rows, plan.table):
        writer = empty.writer().mode("overwrite").option("overwriteSchema", "true")
        writer.save(f"{plan.checkpoint}/shape")


@dataclass(frozen=True, slots=True)
class _Commit(Commit):
    """In place of the commit of a batch. Rows that are merged have been read before it, and are held."""

    findings: Findings

    def save(self, writer: DataFrameWriter) -> int | None:
        """Read the rows that would be written, to their end."""
        rows: DataFrame = writer._df  # noqa: SLF001 - a writer does not tell its rows otherwise
        observation = Observation()
        counted_rows = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
        counted_rows.write.format("noop").mode("overwrite").save()
        self.findings.rows = int(observation.get["rows"])
        return None


class _Target(Target):
    """The table, which stays as it is; what does not fit it is noted, and the batch is read on."""

    def __init__(self, spark: SparkSession, plan: Plan, findings: Findings) -> None:
        super().__init__(spark, plan)
        self.log = _Log(spark, plan.table)
        self.findings = findings
        self.quarantines: list[Quarantine] = [_Quarantine(spark, plan, findings)]

    def _fitted(self, entry: OffsetEntry, rows: DataFrame, metadata: dict[str, Any] | None) -> Fitted:
        try:
            return super()._fitted(entry, rows, metadata)
        except InputError as err:
            self.findings.refuse(err)
            plan = self.plan.with_spec(columns=None)
            made, evolution = shaping.fit_to_table(plan, rows, None)
            return Fitted(made, evolution, [], makes_table=True)

    def _partitions_of(self, columns: Sequence[str]) -> list[str]:
        try:
            return super()._partitions_of(columns)
        except InputError as err:
            self.findings.refuse(err)
            return []


class _Quarantine(Quarantine):
    """In place of the quarantine: it tells what it would get."""

    def __init__(self, spark: SparkSession, plan: Plan, findings: Findings) -> None:
        super().__init__(spark, plan.pipeline, plan.table)
        self.findings = findings

    def put(self, entry: OffsetEntry, rows: DataFrame, count: int) -> int:  # noqa: ARG002 - the same
        first = F.min(F.struct("file", "record", F.left("value", F.lit(SHOWN)).alias("value"))).alias("first")
        # A file as a whole has no number, and neither has a row of the SELECT, which has a text.
        is_file = F.expr("record IS NULL AND raw IS NULL").alias("is_file")
        groups = (
            rows.where(F.col("rule") != NOTHING_GOOD)
            .groupBy("rule", is_file)
            .agg(F.count(F.lit(1)).alias("count"), first)
        )
        for group in groups.orderBy(F.desc("count"), "rule").collect():
            self.findings.bad.append(_line(group.rule, group["count"], group.first, is_file=group.is_file))
        return 0

    def holds(self, entry: OffsetEntry, number: int) -> bool:  # noqa: ARG002 - the same
        return True


def _line(rule: str, count: int, first: Any, *, is_file: bool) -> str:
    """Tell how many break a rule, and where the first of them is."""
    unit = "file" if is_file else "record" if first.record else "row"
    rule = f"the rule {rule!r} of `expect`" if unit == "row" else rule
    value = f" ({mask(first.value)!r})" if first.value and not is_file else ""
    number = f"record {first.record:,} of " if first.record else ""
    place = f", {'first in ' if count > 1 else 'in '}{number}{first.file}" if first.file else ""
    return f"{counted(count, unit)}: {rule}{value}{place}"
