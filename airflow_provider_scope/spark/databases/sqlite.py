"""What SQLite is asked: the values that its columns are declared for. It holds none of them to its type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_scope.sources.cursor.databases import MARK, named
from airflow_provider_scope.spark.databases import jdbc
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.databases.jdbc import Column, Session
    from airflow_provider_scope.spark.plan import CursorPlan
    from airflow_provider_scope.values import CursorSlice

_TIMES = ("DATE", "TIME", "TIMESTAMP", "DATETIME")
_NAMED = {
    "BIGINT": ("INT",),
    "STRING": ("CHAR", "CLOB", "TEXT"),
    "DOUBLE": ("REAL", "FLOA", "DOUB"),
}
"""Type -> what is in the names of those that SQLite takes for it, in the order in which it looks for them."""
_FITS = {
    "BIGINT": "typeof({0}) = 'integer'",
    "DOUBLE": "typeof({0}) IN ('real', 'integer')",
    "STRING": "typeof({0}) <> 'blob'",
}
"""Type -> whether it holds a value."""
_NO_DIGITS = (38, 18)
"""What Spark makes of a number for which none are declared, and of an expression."""
_NOISE = 4
"""Digits behind those of a decimal that SQLite, which has floats in its place, may have made itself."""


def rows(session: Session, source: CursorPlan, found: CursorSlice, seq: int) -> DataFrame:
    """Give the rows of a batch: reading them fails where the driver would make another value of one."""
    columns, custom = session.columns(), session.custom()
    jdbc.warn_of_late_rows(source, found, seq)
    kept = {name.lower() for name in custom}
    types = {column.name: _type(column) for column in columns if column.name.lower() not in kept}
    values = ", ".join(f"{_value(one, types.get(one.name))} AS {named(one.name)}" for one in columns)
    # Of any length or size, whatever they were declared with.
    told = {name: kind for name, kind in types.items() if kind in _FITS}
    told |= {name: kind.simpleString() for name, kind in custom.items()}
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in told.items())
    table = f"(SELECT {values} FROM {session.rows_of}) AS q"  # noqa: S608 - names are quoted
    read = partial(jdbc.reader, session, table, schema or None)
    return jdbc.narrowed(read, source, found, seq, are_times_text=True)


def _type(column: Column) -> str:
    kind = column.kind.upper().partition("(")[0].strip()
    if kind in _TIMES:
        return "STRING"
    found = (one for one, parts in _NAMED.items() if any(part in kind for part in parts))
    return next(found, "DECIMAL" if column.is_decimal else kind)


def _value(column: Column, kind: str | None) -> str:
    name = named(column.name)
    fits = _FITS.get(kind or "")
    if kind == "DECIMAL":
        digits, scale = (column.precision, column.scale) if column.precision else _NO_DIGITS
        is_exact = f"round({{0}}, {scale}) = round({{0}}, {scale + _NOISE})"
        fits = f"typeof({{0}}) IN ('real', 'integer') AND {is_exact} AND abs({{0}}) < 1e{digits - scale}"
    if kind == "BOOLEAN":
        fits = "typeof({0}) = 'integer' AND {0} IN (0, 1)"
    if fits is None:
        return name
    said = f"{MARK}column {column.name} has the value ".replace("'", "''")
    shown = f"replace(substr(quote({name}), 1, 50), char(10), ' ')"
    # Nothing else in SQLite fails with words of ours: this is no path.
    fails = f"json_extract('{{}}', '{said}' || {shown} || '\"')"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {fits.format(name)} THEN {name} ELSE {fails} END"
