"""The SQL for SQLite. Its columns hold values of any type: one that the declared type lacks is refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_scope.sources.cursor.databases import MARK, named
from airflow_provider_scope.sources.cursor.values import WHOLE
from airflow_provider_scope.spark.databases import jdbc
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.databases.jdbc import Column, Session

_TIMES = ("DATE", "TIME", "TIMESTAMP", "DATETIME")
_NAMED = {
    "BIGINT": ("INT",),
    "STRING": ("CHAR", "CLOB", "TEXT"),
    "DOUBLE": ("REAL", "FLOA", "DOUB"),
    "BOOLEAN": ("BOOL",),
}
"""Spark's type -> parts of the declared types that SQLite takes for it, in the order in which it looks for
them."""
_FITS = {
    "BIGINT": "typeof({0}) = 'integer'",
    "DOUBLE": "typeof({0}) IN ('real', 'integer')",
    "STRING": "typeof({0}) <> 'blob'",
    "BOOLEAN": "typeof({0}) = 'integer' AND {0} IN (0, 1)",
}
"""Spark's type -> the condition in SQL that it holds a value."""
_NO_DIGITS = (38, 18)
"""The precision and scale that Spark gives an expression, and a number that is declared without them."""
_NOISE = 4
"""Digits after the last one of a decimal that are not compared: SQLite stores it as a float, which may add
digits there."""


def rows(session: Session) -> DataFrame:
    """Select the rows of a batch; reading them fails at a value that the driver would change."""
    columns, custom_types = session.columns(), session.custom_types()
    session.warn_of_late_rows()
    types = {column.name: _type(column) for column in columns if column.name.lower() not in custom_types}
    values = [f"{_value(column, types.get(column.name))} AS {named(column.name)}" for column in columns]
    # Without the length or size that the table declares, which SQLite does not enforce.
    declared_types = {name: kind for name, kind in types.items() if kind in _FITS}
    declared_types |= {name: kind.simpleString() for name, kind in custom_types.items()}
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in declared_types.items())
    table = f"(SELECT {', '.join(values)} FROM {session.rows_of}) AS q"  # noqa: S608 - names are quoted
    # Its times are text, and its decimals floats, of which 0.80 may be 0.7999999999999999.
    return jdbc.narrowed(session, partial(jdbc.reader, session, table, schema or None), WHOLE)


def _type(column: Column) -> str:
    """Choose Spark's type for a column; the declared type in capitals if ``_NAMED`` has none for it."""
    kind = column.kind.upper().partition("(")[0].strip()
    if kind in _TIMES:
        return "STRING"
    matches = (name for name, parts in _NAMED.items() if any(part in kind for part in parts))
    return next(matches, "DECIMAL" if column.is_decimal else kind)


def _value(column: Column, kind: str | None) -> str:
    """Write the SQL for a column's value: it fails at a value that the type does not hold.

    :param kind: The type, as ``_type`` chooses it; None if the user names the type.
    """
    name = named(column.name)
    fits = _FITS.get(kind or "")
    if kind == "DECIMAL":
        digits, scale = (column.precision, column.scale) if column.precision else _NO_DIGITS
        is_exact = f"round({{0}}, {scale}) = round({{0}}, {scale + _NOISE})"
        fits = f"typeof({{0}}) IN ('real', 'integer') AND {is_exact} AND abs({{0}}) < 1e{digits - scale}"
    if fits is None:
        return name
    message = f"{MARK}column {column.name} has the value ".replace("'", "''")
    shown = f"replace(substr(quote({name}), 1, 50), char(10), ' ')"
    # Nothing else in SQLite fails with words of ours: this is no path.
    fails = f"json_extract('{{}}', '{message}' || {shown} || '\"')"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {fits.format(name)} THEN {name} ELSE {fails} END"
