"""Rows of PostgreSQL that several connections read at once, as of one moment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_scope.core import databases
from airflow_provider_scope.core.databases import DECIMAL, FLOAT, WHOLE, named
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError

if TYPE_CHECKING:
    from airflow_provider_scope.spark.jdbc import Column, Session

_REPEATABLE_READ = 4
"""As ``java.sql.Connection`` numbers it."""
_WHOLE_KINDS = ("int2", "int4", "int8", "smallserial", "serial", "bigserial")
_FLOAT_KINDS = ("float4", "float8")
_SINCE = {
    "date": "DATE '2000-01-01'",
    "timestamp": "TIMESTAMP '2000-01-01'",
    "timestamptz": "TIMESTAMPTZ '2000-01-01 00:00+00'",
}
_OTHER_MOMENT = "airflow-provider-scope: this connection does not read the snapshot of the load, but "
_GONE = re.compile(
    re.escape(_OTHER_MOMENT) + "|invalid snapshot identifier|could not import the requested snapshot"
)


class Parts(NamedTuple):
    """How rows are divided among connections."""

    conditions: list[str]
    """In SQL, over the column ``column`` of the statement."""
    begin: str
    """What a connection runs before it reads, in its transaction."""


def is_lost(text: str) -> bool:
    """Tell whether an error says that a connection could not read the snapshot of a load."""
    return _GONE.search(text) is not None


def column_of(columns: list[Column], name: str) -> Column:
    """Find the column by whose values rows are divided.

    :raises InputError: There is none of this name, or it has no values between two others.
    """
    found = [one for one in columns if one.name == name] or [
        one for one in columns if one.name.lower() == name.lower()
    ]
    if not found:
        raise _bad(name, f"there is no such column: {', '.join(one.name for one in columns)}")
    column = found[0]
    if column.kind not in (*_WHOLE_KINDS, "numeric", *_FLOAT_KINDS, *_SINCE):
        raise _bad(name, f"the column has the type {column.kind}, whose values cannot be divided into ranges")
    return column


def free_name(columns: list[Column]) -> str:
    """Give a name that no column has: what conditions compare, beside the values that are read."""
    taken = {one.name.lower() for one in columns}
    name = "scope_part"
    while name in taken:
        name += "_"
    return name


def parts(session: Session, column: Column, name: str, where: str) -> Parts | None:
    """Begin the transaction whose snapshot all parts read, and divide the rows that it sees.

    Whatever bounds the rows was asked before: it looks at who still runs, and a snapshot that is older than
    this look could miss rows that are within the bound.

    :param name: What the column is called in the statement that is divided.
    :param where: The condition of that statement; it may be empty.
    :return: The parts, or None if there is but one: one statement needs no snapshot of others.
    """
    connection = session.connection
    connection.setAutoCommit(False)
    connection.setTransactionIsolation(_REPEATABLE_READ)
    # It is idle while others read.
    session.tell("SET LOCAL idle_in_transaction_session_timeout = 0")
    snapshot, sees = session.ask("SELECT pg_export_snapshot(), pg_current_snapshot()::text")
    conditions = _conditions(session, column, name, where)
    if len(conditions) == 1:
        return None
    # A driver or a pool between could begin another transaction. Not folded, as it is no constant.
    is_same = (
        f"CASE WHEN pg_current_snapshot()::text = '{sees}' THEN TRUE "
        f"ELSE ('{_OTHER_MOMENT}' || pg_current_snapshot()::text)::boolean END"
    )
    return Parts(
        [f"({one}) AND {is_same}" for one in conditions],
        f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'",
    )


def _conditions(session: Session, column: Column, name: str, where: str) -> list[str]:
    value = named(column.name)
    # Not infinite, and not NaN, which is above all.
    finite = "TRUE" if column.kind in _WHOLE_KINDS else f"{value} > '-Infinity' AND {value} < 'Infinity'"
    numbers = ", ".join(f"{_number(f'{one}({value})', column.kind)}::text" for one in ("min", "max"))
    low, high = session.ask(
        f"SELECT {numbers} FROM {session.rows_of} WHERE ({where or 'TRUE'}) AND {finite}"  # noqa: S608 - quoted
    )
    if low is None or high is None:
        return databases.ranges(name, [])
    kind = {"numeric": DECIMAL, "float4": FLOAT, "float8": FLOAT}.get(column.kind, WHOLE)
    found = databases.edges(low, high, session.database.num_partitions, kind)
    return databases.ranges(named(name), [_literal(one, column.kind) for one in found])


def _number(value: str, kind: str) -> str:
    """Give a value as a number: of a time the days or the microseconds since 2000."""
    if kind == "date":
        return f"({value} - {_SINCE[kind]})"
    if kind in _SINCE:
        return f"trunc(extract(epoch FROM ({value} - {_SINCE[kind]})) * 1000000)"
    return value


def _literal(number: str, kind: str) -> str:
    if kind in _FLOAT_KINDS:
        return f"FLOAT8 '{number}'"
    if kind == "date":
        return f"({_SINCE[kind]} + ({number}))"
    if kind in _SINCE:
        return f"({_SINCE[kind]} + ({number}) * INTERVAL '1 microsecond')"
    return f"({number})"


def _bad(name: str, why: str) -> InputError:
    return InputError(
        f"partition_column={name!r} is not possible: {why}.",
        kept=NO_ROW_WRITTEN,
        do="name a column of integers, numeric, floats, dates or timestamps; or leave partition_column and "
        "num_partitions out",
    )
