"""What MySQL and MariaDB are asked: values that Spark's reader would change, as numbers or text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_scope.core import cursor as cursors
from airflow_provider_scope.core.cursor import Bound
from airflow_provider_scope.core.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.cursor import CursorRule
    from airflow_provider_scope.core.slices import CursorSlice
    from airflow_provider_scope.spark.jdbc import Column, Session

MARK = "airflow-provider-scope: "
_TIMES = {"DATE": "date", "DATETIME": "timestamp_ntz", "TIMESTAMP": "timestamp"}
"""Its types -> ours. Java's own times of before 1582 are other days."""
_NUMBERS = {
    "DATE": ("DATEDIFF(%s, '1970-01-01')", -(2**31)),
    "DATETIME": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
    "TIMESTAMP": ("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)", -(2**63)),
}
"""Type -> the number that a value is, and the one that stands for no day, such as 0000-00-00."""
_MADE = {
    "DATE": "date_from_unix_date(CAST(%s AS int))",
    "DATETIME": "CAST(timestamp_micros(%s) AS timestamp_ntz)",
    "TIMESTAMP": "timestamp_micros(%s)",
}


class Statement(NamedTuple):
    """A SELECT, and the columns of its result that are numbers in place of times."""

    sql: str
    times: dict[str, str]

    def over(self, data: DataFrame) -> DataFrame:
        """Make times of numbers, and refuse what is no time."""
        return data.selectExpr(*(self._made(name) for name in data.columns))

    def _made(self, name: str) -> str:
        kind, column = self.times.get(name), quoted(name)
        if kind is None:
            return column
        no_day = _NUMBERS[kind][1]
        said = f"{MARK}column {name} has the value 0000-00-00, or another that is no day".replace("'", "\\'")
        made = _MADE[kind] % column
        return f"""CASE WHEN {column} = {no_day}L THEN raise_error('{said}"') ELSE {made} END AS {column}"""


def statement(session: Session, rule: CursorRule | None, found: CursorSlice, kept: set[str]) -> Statement:
    """Give the SELECT for the rows of a batch.

    :param rule: The cursor's; None if the database does not have its column.
    :param kept: Columns whose types the user gives, in lower case: they are read as they are.
    """
    columns = session.columns()
    changed = [one for one in columns if one.name.lower() not in kept]
    values = {one.name: _value(one) for one in changed}
    selected = ", ".join(f"{values.get(one.name, named(one.name))} AS {named(one.name)}" for one in columns)
    times = {one.name: one.kind for one in changed if one.kind in _TIMES}
    column = next((one for one in columns if one.name.lower() == found.column.lower()), None)
    where = _where(column, rule, found) if rule and column and column.name in times else ""
    return Statement(f"SELECT {selected} FROM {session.rows_of}{where}", times)  # noqa: S608 - names are quoted


def named(name: str) -> str:
    """Quote the name of a column."""
    return "`" + name.replace("`", "``") + "`"


def _value(column: Column) -> str:
    name = named(column.name)
    if column.kind in _NUMBERS:
        number, no_day = _NUMBERS[column.kind]
        return f"CASE WHEN {name} IS NOT NULL THEN COALESCE({number % name}, {no_day}) END"
    if column.kind == "TIME":  # a length of time: it may be negative, or longer than a day
        return f"CAST({name} AS CHAR)"
    if column.kind == "BIT" and column.precision > 1:
        return f"({name} + 0)"
    return name


def _where(column: Column, rule: CursorRule, found: CursorSlice) -> str:
    """Give the condition of a cursor that is a time: Spark hands down none over what it makes of numbers."""
    kind = _TIMES[column.kind]
    before = None if found.end else cursors.decode(found.before, "the log")
    start = cursors.start_of(rule, before, kind, Bound.decode(found.first) if found.first else None)
    if start is None:
        return ""
    literal = f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{start.removesuffix('Z')}'"
    name = named(column.name)
    others = "" if rule.missing == "exclude" else f" OR {name} IS NULL"
    return f" WHERE {name} {'>=' if rule.func == 'max' else '<='} {literal}{others}"


def no_value(text: str) -> str | None:
    """Give what the error of ``Statement.over`` says; None if it is another one."""
    _, mark, said = text.partition(MARK + "column ")
    return "column " + said.partition('"')[0] if mark else None
