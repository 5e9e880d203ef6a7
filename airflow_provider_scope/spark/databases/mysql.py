"""What MySQL and MariaDB are asked: values that Spark's reader would change, as numbers or text."""

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
"""Its types -> ours."""
_NUMBERS = {
    "date": ("DATEDIFF(%s, '1970-01-01')", -(2**31)),
    "timestamp_ntz": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
    "timestamp": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
}
"""Type -> the number that a value is, and the one that stands for no day, such as 0000-00-00."""


class _Statement(NamedTuple):
    """A SELECT, and the columns of its result that are numbers in place of times, with their types."""

    sql: str
    times: dict[str, str]

    def over(self, data: DataFrame) -> DataFrame:
        """Make times of numbers, and refuse what is no time."""
        return data.select([self._made(name) for name in data.columns])

    def _made(self, name: str) -> DataColumn:
        kind, column = self.times.get(name), F.col(quoted(name))
        if kind is None:
            return column
        said = f'{MARK}column {name} has the value 0000-00-00, or another that is no day"'
        made = F.expr(OF_NUMBERS[kind] % quoted(name))
        no_day = column == F.lit(_NUMBERS[kind][1])
        return F.when(no_day, F.raise_error(F.lit(said))).otherwise(made).alias(name)


def rows(session: Session, source: CursorPlan, found: CursorSlice, seq: int) -> DataFrame:
    """Give the rows of a batch."""
    columns, custom = session.columns(), session.custom()
    jdbc.check_decimals(columns, custom)
    jdbc.warn_of_late_rows(source, found, seq)
    rule = None if source.pre_filter_sql else source.rule(found.column)
    asked = _statement(session, columns, rule, found, {name.lower() for name in custom})

    def read(*, pushes: bool = False) -> DataFrame:
        return asked.over(jdbc.reader(session, f"({asked.sql}) AS q", pushes=pushes))

    return jdbc.narrowed(read, source, found, seq)


def _statement(
    session: Session,
    columns: Sequence[Column],
    rule: CursorRule | None,
    found: CursorSlice,
    kept: Container[str],
) -> _Statement:
    """Give the SELECT for the rows of a batch.

    :param rule: The cursor's; None if the database does not have its column.
    :param kept: Columns whose types the user gives, in lower case: they are read as they are.
    """
    changed = [one for one in columns if one.name.lower() not in kept]
    values = {one.name: _value(one) for one in changed}
    selected = ", ".join(f"{values.get(one.name, quoted(one.name))} AS {quoted(one.name)}" for one in columns)
    times = {one.name: _TIMES[one.kind] for one in changed if one.kind in _TIMES}
    column = next((one for one in columns if one.name.lower() == found.column.lower()), None)
    where = _where(column, rule, found) if rule and column and column.name in times else ""
    return _Statement(f"SELECT {selected} FROM {session.rows_of}{where}", times)  # noqa: S608 - names are quoted


def _value(column: Column) -> str:
    name = quoted(column.name)
    if column.kind in _TIMES:
        number, no_day = _NUMBERS[_TIMES[column.kind]]
        # With ALLOW_INVALID_DATES there may be a 31 February, which counts as 3 March.
        is_day = f"DAYOFMONTH({name}) <= DAYOFMONTH(LAST_DAY({name}))"
        made = f"WHEN {is_day} THEN COALESCE({number % name}, {no_day}) ELSE {no_day}"
        return f"CASE WHEN {name} IS NULL THEN NULL {made} END"
    if column.kind == "TIME":  # a length of time: it may be negative, or longer than a day
        return f"CAST({name} AS CHAR)"
    if column.kind == "BIT" and column.precision > 1:
        return f"({name} + 0)"
    return name


def _where(column: Column, rule: CursorRule, found: CursorSlice) -> str:
    """Give the condition of a cursor that is a time: Spark hands down none over what it makes of numbers."""
    kind = _TIMES[column.kind]
    start = cursor_state.start_of_slice(rule, found, kind, "the log")
    if start is None:
        return ""
    literal = f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{start.removesuffix('Z')}'"
    name = quoted(column.name)
    others = "" if rule.missing == "exclude" else f" OR {name} IS NULL"
    return f" WHERE {name} {'>=' if rule.func == 'max' else '<='} {literal}{others}"
