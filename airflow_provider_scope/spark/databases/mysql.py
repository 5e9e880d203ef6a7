"""The SQL for MySQL and MariaDB: values that Spark's reader would change are read as numbers or text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.databases import MARK, OF_NUMBERS
from airflow_provider_scope.spark.databases import jdbc
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pyspark.sql import Column as DataColumn
    from pyspark.sql import DataFrame

    from airflow_provider_scope.sources.cursor.state import CursorRule
    from airflow_provider_scope.spark.databases.jdbc import Column, Session
    from airflow_provider_scope.spark.plan import CursorPlan
    from airflow_provider_scope.values import CursorSlice

_TIMES = {"DATE": "date", "DATETIME": "timestamp_ntz", "TIMESTAMP": "timestamp"}
"""The database's type of a time -> Spark's type."""
_NUMBERS = {
    "date": ("DATEDIFF(%s, '1970-01-01')", -(2**31)),
    "timestamp_ntz": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
    "timestamp": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
}
"""Spark's type -> SQL that makes a number of a value, and the number that stands for a value that is no day,
such as 0000-00-00."""


class _Statement(NamedTuple):
    """A SELECT, and the columns (name -> Spark's type) whose times its result has as numbers."""

    sql: str
    times: dict[str, str]

    def with_times(self, data: DataFrame) -> DataFrame:
        """Give the result with times in place of the numbers; reading it fails at a value that is no day."""
        return data.select([self._with_time(name) for name in data.columns])

    def _with_time(self, name: str) -> DataColumn:
        kind, column = self.times.get(name), F.col(quoted(name))
        if kind is None:
            return column
        message = f'{MARK}column {name} has the value 0000-00-00, or another that is no day"'
        time = F.expr(OF_NUMBERS[kind] % quoted(name))
        no_day = column == F.lit(_NUMBERS[kind][1])
        return F.when(no_day, F.raise_error(F.lit(message))).otherwise(time).alias(name)


def rows(session: Session, source: CursorPlan, cursor_slice: CursorSlice, seq: int) -> DataFrame:
    columns, custom_types = session.columns(), session.custom_types()
    jdbc.check_decimals(columns, custom_types)
    jdbc.warn_of_late_rows(source, cursor_slice, seq)
    rule = None if source.pre_filter_sql else source.rule_over(cursor_slice.column)
    statement = _statement(session, columns, rule, cursor_slice, custom_types)

    def read(*, pushes: bool = False) -> DataFrame:
        return statement.with_times(jdbc.reader(session, f"({statement.sql}) AS q", pushes=pushes))

    return jdbc.narrowed(read, source, cursor_slice, seq)


def _statement(
    session: Session,
    columns: Sequence[Column],
    rule: CursorRule | None,
    cursor_slice: CursorSlice,
    custom_columns: Container[str],
) -> _Statement:
    """Give the SELECT for the rows of a batch.

    :param rule: The cursor's rule; None if ``pre_filter_sql`` computes the cursor's column.
    :param custom_columns: Columns whose types the user gives, in lower case: they are read as they are.
    """
    values: list[str] = []
    times: dict[str, str] = {}
    for column in columns:
        is_custom = column.name.lower() in custom_columns
        value = quoted(column.name) if is_custom else _value(column)
        values.append(f"{value} AS {quoted(column.name)}")
        if not is_custom and column.kind in _TIMES:
            times[column.name] = _TIMES[column.kind]
    cursor = next((column for column in columns if column.name.lower() == cursor_slice.column.lower()), None)
    where = _where(cursor, rule, cursor_slice) if rule and cursor and cursor.name in times else ""
    selected = ", ".join(values)
    return _Statement(f"SELECT {selected} FROM {session.rows_of}{where}", times)  # noqa: S608 - names are quoted


def _value(column: Column) -> str:
    """Give the SQL for a column's value, as a number or a text where Spark's reader would change it."""
    name = quoted(column.name)
    if column.kind in _TIMES:
        number, no_day = _NUMBERS[_TIMES[column.kind]]
        # With ALLOW_INVALID_DATES there may be a 31 February, which counts as 3 March.
        is_day = f"DAYOFMONTH({name}) <= DAYOFMONTH(LAST_DAY({name}))"
        cases = f"WHEN {is_day} THEN COALESCE({number % name}, {no_day}) ELSE {no_day}"
        return f"CASE WHEN {name} IS NULL THEN NULL {cases} END"
    if column.kind == "TIME":  # a length of time: it may be negative, or longer than a day
        return f"CAST({name} AS CHAR)"
    if column.kind == "BIT" and column.precision > 1:
        return f"({name} + 0)"
    return name


def _where(column: Column, rule: CursorRule, cursor_slice: CursorSlice) -> str:
    """Give the WHERE clause for a cursor that is a time.

    The times are made of numbers after the read, so that Spark cannot hand a condition on them down.
    """
    kind = _TIMES[column.kind]
    start = cursor_state.start_of_slice(rule, cursor_slice, kind, "the log")
    if start is None:
        return ""
    literal = f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{start.removesuffix('Z')}'"
    name = quoted(column.name)
    or_missing = "" if rule.missing == "exclude" else f" OR {name} IS NULL"
    return f" WHERE {name} {'>=' if rule.func == 'max' else '<='} {literal}{or_missing}"
