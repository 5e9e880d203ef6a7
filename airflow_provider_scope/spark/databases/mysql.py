"""The SQL for MySQL and MariaDB: values that Spark's reader would change are read as numbers or text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.sources.cursor.databases import MARK, OF_NUMBERS
from airflow_provider_scope.spark.databases import jdbc
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as DataColumn
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.databases.jdbc import Column, Session

_TIMES = {"DATE": "date", "DATETIME": "timestamp_ntz", "TIMESTAMP": "timestamp"}
"""The database's type of a time -> Spark's type."""
_NUMBERS = {
    "date": ("DATEDIFF(%s, '1970-01-01')", -(2**31)),
    "timestamp_ntz": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
    "timestamp": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
}
"""Spark's type -> SQL that makes a number of a value, and the number that stands for a value that is no day,
such as 0000-00-00."""


def rows(session: Session) -> DataFrame:
    columns, custom_types = session.columns(), session.custom_types()
    jdbc.check_decimals(columns, custom_types)
    session.warn_of_late_rows()
    values: list[str] = []
    times: dict[str, str] = {}  # name -> Spark's type: the result of the statement has numbers
    for column in columns:
        is_custom = column.name.lower() in custom_types  # read as it is
        value = quoted(column.name) if is_custom else _value(column)
        values.append(f"{value} AS {quoted(column.name)}")
        if not is_custom and column.kind in _TIMES:
            times[column.name] = _TIMES[column.kind]
    cursor = None if session.computes_column else session.cursor_in(columns)
    where = _where(session, cursor) if cursor and cursor.name in times else ""
    statement = f"SELECT {', '.join(values)} FROM {session.rows_of}{where}"  # noqa: S608 - names are quoted

    def read(*, pushes: bool = False) -> DataFrame:
        data = jdbc.reader(session, f"({statement}) AS q", pushes=pushes)
        return data.select(
            [_time(name, times[name]) if name in times else quoted(name) for name in data.columns]
        )

    return jdbc.narrowed(session, read)


def _time(name: str, kind: str) -> DataColumn:
    """Make a time of its number; that fails at a value that is no day."""
    column = F.col(quoted(name))
    message = f'{MARK}column {name} has the value 0000-00-00, or another that is no day"'
    time = F.expr(OF_NUMBERS[kind] % quoted(name))
    no_day = column == F.lit(_NUMBERS[kind][1])
    return F.when(no_day, F.raise_error(F.lit(message))).otherwise(time).alias(name)


def _value(column: Column) -> str:
    """Write the SQL for a column's value, as a number or a text where Spark's reader would change it."""
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


def _where(session: Session, column: Column) -> str:
    """Write the WHERE clause for a cursor that is a time.

    The times are made of numbers after the read, so that Spark cannot hand a condition on them down.
    """
    kind = _TIMES[column.kind]
    start = session.start(kind)
    if start is None:
        return ""
    literal = f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{start.removesuffix('Z')}'"
    name = quoted(column.name)
    or_missing = "" if session.cursor.excludes_missing else f" OR {name} IS NULL"
    return f" WHERE {name} {'>=' if session.cursor.is_rising else '<='} {literal}{or_missing}"
