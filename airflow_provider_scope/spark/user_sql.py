"""The user's SELECT over the rows of a batch, and the rules of ``TableSpec.expect`` that its rows keep."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope import sql as sql_text
from airflow_provider_scope.exceptions import BadRecordError, SqlError, mask
from airflow_provider_scope.expectations import LEVEL_HINT, RULE_HINT, SHARE_HINT, RuleCount, over_share
from airflow_provider_scope.spark.files.formats import Check, bad_record, fail_on_bad_record, json_of
from airflow_provider_scope.spark.files.listing import KEPT, SHOWN
from airflow_provider_scope.spark.held import read_once
from airflow_provider_scope.spark.session import SPARK_ERRORS, short_cause, whole_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.expectations import Expectation
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.plan import Plan
    from airflow_provider_scope.spark.target import Target

ROW = json_of("*")
"""SQL of a row of the SELECT as text."""


def selected(spark: SparkSession, plan: Plan, data: DataFrame, seq: int) -> DataFrame:
    """Make the user's SELECT over the rows of a batch.

    :param seq: Of the batch, for the view's name.
    """
    return over_rows(spark, plan.sql, plan.sql_params, data, seq)


def over_rows(
    spark: SparkSession, sql: str, params: Mapping[str, Any], data: DataFrame, seq: int
) -> DataFrame:
    """Make a SELECT over rows; ``pre_filter_sql`` is one, too."""
    view = f"scope_data_{seq}"
    data.createOrReplaceTempView(view)
    try:
        return spark.sql(sql_text.over_view(sql, view), args=dict(params) or None)
    finally:
        spark.catalog.dropTempView(view)


def checked(plan: Plan, result: DataFrame) -> DataFrame:
    """Let the rows of a SELECT fail that break a rule of ``TableSpec.expect``, unless it only warns.

    :raises SqlError: A rule does not fit the columns of the SELECT.
    """
    check_rules(result.sparkSession, plan.expect, result)
    rules = [
        Check(words(name, rule), rule.sql, "NULL", LEVEL_HINT if rule.on_violation else RULE_HINT)
        for name, rule in plan.rules("fail", "quarantine").items()
    ]
    return fail_on_bad_record(result, rules, ROW, file_of(result))


def check_rules(spark: SparkSession, rules: Mapping[str, Expectation], rows: DataFrame | None = None) -> None:
    """Refuse a rule that is no SQL of one value; over rows, also one that is no boolean of their columns.

    :raises SqlError: As said, with the rule.
    """
    for name, rule in rules.items():
        try:
            for text in (rule.predicate, breaks := _breaks(rule)):  # it has to be whole alone, too
                spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
            if rows is not None:
                rows.select("*", F.expr(breaks))
        except AnalysisException as err:
            raise SqlError(
                f"The rule {name!r} of `expect` ({rule.predicate}) is not valid: {short_cause(err)}",
                kept=KEPT,
                do=f"{RULE_HINT}; the next run loads the batch with it",
            ) from err


def _breaks(rule: Expectation) -> str:
    return f"NOT coalesce({rule.sql}, false)"


def words(name: str, rule: Expectation) -> str:
    """Say what is wrong with a row that breaks a rule."""
    return f"it breaks the rule {name!r} ({rule.predicate})"


class Marks:
    """Columns that say of each row which rules it breaks, until they are counted and dropped."""

    def __init__(self, rules: Mapping[str, Expectation]) -> None:
        self.rules = rules
        self.columns = {name: f"_scope_breaks_{number}" for number, name in enumerate(rules)}

    def on(self, rows: DataFrame) -> DataFrame:
        """Add the columns; a predicate may be what Spark does not take inside of an aggregate."""
        values = [F.expr(_breaks(self.rules[name])).alias(column) for name, column in self.columns.items()]
        return rows.select("*", *values)

    @property
    def aggregates(self) -> list[Column]:
        """The numbers of rows that break each rule, of which ``counts`` takes the values."""
        return [F.count_if(F.col(column)).alias(column) for column in self.columns.values()]

    def counts(self, values: Mapping[str, Any]) -> dict[str, RuleCount]:
        """Return rule -> how many rows break it.

        :param values: Of the aggregates, and ``rows``.
        """
        rows = int(values["rows"])
        return {name: RuleCount(int(values[column]), rows) for name, column in self.columns.items()}

    def check_shares(
        self, held: DataFrame, counts: Mapping[str, RuleCount], seq: int, *, row: str = ROW
    ) -> None:
        """Refuse a batch of which too many rows break a rule, before anything of it is written.

        :param held: The rows with these columns, which Spark has read.
        :param row: SQL of a row as text.
        :raises BadRecordError: As said, with a row that breaks the first of these rules.
        """
        problems = over_share(self.rules, counts)
        if problems:
            broken = held.where(F.col(self.columns[next(iter(problems))])).drop(*self.columns.values())
            ((example,),) = broken.select(F.expr(row)).limit(1).collect()
            raise BadRecordError(
                f"Batch {seq}: {'; '.join(problems.values())}. Such a row: {mask(example)[:SHOWN]!r}.",
                kept=KEPT,
                do=SHARE_HINT,
            )

    def warned(self, counts: Mapping[str, RuleCount]) -> dict[str, dict[str, int]]:
        """Return what the commit says of the rules that only warn."""
        return {
            name: asdict(rows) for name, rows in counts.items() if self.rules[name].on_violation == "warn"
        }


def counted(block: ExitStack, plan: Plan, rows: DataFrame, seq: int) -> tuple[DataFrame, dict[str, Any]]:
    """Count the rows that break the rules which only warn; they are read once, and held for the block.

    :param rows: The result of ``checked``: no row breaks another rule.
    :return: The rows, and what the commit says of them.
    :raises BadRecordError: Too many rows break a rule.
    """
    marks = Marks(plan.rules("warn"))
    if not marks.columns:
        return rows, {}
    aggregates = [F.count(F.lit(1)).alias("rows"), *marks.aggregates]
    held, values = read_once(block, marks.on(rows), aggregates, StorageLevel.DISK_ONLY)
    counts = marks.counts(values)
    marks.check_shares(held, counts, seq)
    return held.drop(*marks.columns.values()), {"warned": marks.warned(counts)}


def write(
    plan: Plan,
    target: Target,
    transaction: Transaction,
    result: DataFrame,
    notes: dict[str, Any],
    *,
    deleted: DataFrame | None = None,
    keys: Keys | None = None,
) -> int | None:
    """Write the rows of a SELECT that keep the rules; those of files are written by ``file_slice``.

    :param deleted: As ``Target.write`` takes it; ``keys``, too.
    :raises BadRecordError: A row breaks a rule by which it cannot be loaded, or too many break another one.
    """
    seq = transaction.entry.seq
    with ExitStack() as block:
        try:
            rows, warned = counted(block, plan, checked(plan, result), seq)
            return target.write(transaction, rows, {**notes, **warned}, deleted=deleted, keys=keys)
        except SPARK_ERRORS as err:
            record = bad_record(whole_text(err)) if plan.expect else None
            if record is None:
                raise
            raise record.error(f"Batch {seq}") from err


def file_of(result: DataFrame) -> str:
    """Write SQL of the file of a row of the SELECT, NULL where the SELECT does not have it."""
    return "source_file_uri" if "source_file_uri" in result.columns else "CAST(NULL AS string)"


def failed(place: str, cause: str) -> SqlError:
    """Make the error of a SELECT that fails on a record, or on the rows of a batch."""
    return SqlError(
        f"The SQL fails on {place}: {cause}",
        kept=KEPT,
        do="correct `sql` (or `columns`, or `options`); the next run loads the batch with them",
    )
