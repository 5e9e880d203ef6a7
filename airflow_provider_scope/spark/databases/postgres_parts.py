"""Rows of PostgreSQL that several connections read at once, as of one moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JJavaError

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.sources.cursor import databases
from airflow_provider_scope.sources.cursor.databases import DECIMAL, FLOAT, WHOLE, named
from airflow_provider_scope.spark.session import emit, short_cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.databases.jdbc import Column, Session

_REPEATABLE_READ = 4
"""As ``java.sql.Connection`` numbers it."""
_WHOLE_KINDS = ("int2", "int4", "int8", "smallserial", "serial", "bigserial")
_FLOAT_KINDS = ("float4", "float8")
_SINCE = {
    "date": "DATE '2000-01-01'",
    "timestamp": "TIMESTAMP '2000-01-01'",
    "timestamptz": "TIMESTAMPTZ '2000-01-01 00:00+00'",
}
_WAIT = "10s"
"""How long a part waits for a lock. The transaction with the snapshot has it already: nobody keeps the part
waiting but who waits for that transaction, to change the table. Without an end, both would wait for ever."""
_OTHER_MOMENT = "airflow-provider-scope: this connection does not read the snapshot of the load, but "
_GONE = re.compile(
    re.escape(_OTHER_MOMENT) + "|invalid snapshot identifier|could not import the requested snapshot"
)
_BLOCKED = re.compile(r"(?=.*lock timeout)(?=.*PSQLException)", re.DOTALL)
_BY_DEFAULT = 4
"""Connections where the user does not say how many: a database has only so many to give."""
_PART_BYTES = 64 * 1024 * 1024
"""Of a table, at the least, in each of these."""
_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_IS_NAME = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,2}}")
_SIZE = """
SELECT CASE WHEN c.relkind IN ('r', 'm', 'p') THEN max(s) / current_setting('block_size')::int END,
  CASE WHEN current_setting('server_version_num')::int >= 140000 THEN sum(s) ELSE 0 END
FROM pg_class c,
  LATERAL (SELECT c.oid AS one UNION SELECT relid FROM pg_partition_tree(c.oid)) AS p,
  LATERAL (SELECT coalesce(pg_relation_size(one), 0) AS s) AS q
WHERE c.oid = to_regclass('{name}') GROUP BY c.oid, c.relkind"""
"""Pages of the largest partition, if rows have a place in it; and bytes of all, if a range of pages is read
without a look at the others, which PostgreSQL does since version 14."""


@dataclass(frozen=True, slots=True)
class Divider:
    """By what the rows are divided."""

    count: int
    column: Column | None
    """None is the place of a row: a page of its table."""
    name: str
    """What it is called in the statement that is divided, beside the columns that are read."""
    pages: int = 0
    """Of the table, if they are what is divided; of its largest partition, if it has some."""

    @property
    def value(self) -> str:
        """What is selected."""
        return named(self.column.name) if self.column else "q.ctid"


class Parts(NamedTuple):
    """How rows are divided among connections."""

    conditions: list[str]
    """In SQL, over the divider."""
    begin: str
    """What a connection runs before it reads, in its transaction."""
    divider: Divider


def is_lost(text: str) -> bool:
    """Tell whether an error says that a connection could not read the snapshot of a load."""
    return _GONE.search(text) is not None


def is_blocked(text: str) -> bool:
    """Tell whether an error says that a connection waited for a lock, and gave up."""
    return _BLOCKED.search(text) is not None


def divided(
    session: Session, columns: list[Column], where: str, *, reads_all: bool, seq: int
) -> Parts | None:
    """Divide rows among connections, and begin the transaction whose snapshot all of them read.

    Whatever bounds the rows was asked before: it looks at who still runs, and a snapshot that is older than
    this look could miss rows that are within the bound.

    :param where: The condition of the statement that is divided; it may be empty.
    :param reads_all: Whether all rows are new. Else an index may find the new ones, and a page cannot.
    :return: The parts, or None for one connection: one statement needs no snapshot of others.
    :raises InputError: The rows cannot be divided as the user says.
    """
    count = session.database.num_partitions
    if count == 1 or (count is None and not reads_all):
        return None
    try:
        found = _divider(session, columns)
        return _parts(session, found, where) if found else None
    except Py4JJavaError as err:
        if count is not None:
            raise
        # Others speak PostgreSQL's language, and know no pages or no snapshots that are shared.
        told = f"the table is read over one connection, because it cannot be divided: {short_cause(err)}"
        emit(event="notice", seq=seq, told=f"{told}. With num_partitions=1 this is not tried")
        return None


def reader(session: Session, table: str, types: str, parts: Parts) -> DataFrame:
    """Give what stands behind FROM, read over a connection for each part."""
    options = {**session.options, "pushDownPredicate": "false", **({"customSchema": types} if types else {})}
    url = options.pop("url")
    # Spark runs it in the transaction of the SELECT: what is fetched in turns is read without autocommit.
    first = options.get("sessionInitStatement")
    options["sessionInitStatement"] = f"{parts.begin}; {first}" if first else parts.begin
    session.stays_open = True
    return session.spark.read.options(**options).jdbc(url, table, predicates=parts.conditions)


def _divider(session: Session, columns: list[Column]) -> Divider | None:
    asked = session.database
    name = _free_name(columns)
    if asked.partition_column and asked.num_partitions:
        return Divider(asked.num_partitions, _column_of(columns, asked.partition_column), name)
    is_name = asked.table is not None and _IS_NAME.fullmatch(asked.table)
    found = session.ask(_SIZE.format(name=str(asked.table).replace("'", "''"))) if is_name else []
    pages, size = (int(found[0] or 0), int(found[1] or 0)) if found and found[0] is not None else (None, 0)
    if asked.num_partitions is None:
        count = min(_BY_DEFAULT, _cores(session), size // _PART_BYTES)
    else:
        count = asked.num_partitions
        if pages is None:
            raise InputError(
                f"num_partitions={count} is not possible without partition_column: {asked.table} is not "
                "the name of a table, and only a table has pages to divide.",
                kept=NO_ROW_WRITTEN,
                do="name a partition_column; or leave num_partitions out",
            )
    return Divider(count, None, name, pages or 0) if count > 1 else None


def _cores(session: Session) -> int:
    return session.spark.sparkContext.defaultParallelism


def _column_of(columns: list[Column], name: str) -> Column:
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


def _free_name(columns: list[Column]) -> str:
    """Give a name that no column has: what conditions compare, beside the values that are read."""
    taken = {one.name.lower() for one in columns}
    name = "scope_part"
    while name in taken:
        name += "_"
    return name


def _parts(session: Session, divider: Divider, where: str) -> Parts | None:
    connection = session.connection
    connection.setAutoCommit(False)
    connection.setTransactionIsolation(_REPEATABLE_READ)
    # It is idle while others read.
    session.tell("SET LOCAL idle_in_transaction_session_timeout = 0")
    snapshot, sees = session.ask("SELECT pg_export_snapshot(), pg_current_snapshot()::text")
    if divider.column:
        conditions = _conditions(session, divider.column, divider, where)
    else:
        conditions = _pages(session, divider)
    if len(conditions) == 1:
        return None
    # A driver or a pool between could begin another transaction. Not folded, as it is no constant.
    is_same = (
        f"CASE WHEN pg_current_snapshot()::text = '{sees}' THEN TRUE "
        f"ELSE ('{_OTHER_MOMENT}' || pg_current_snapshot()::text)::boolean END"
    )
    return Parts(
        [f"({one}) AND {is_same}" for one in conditions],
        f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; "
        f"SET LOCAL lock_timeout = '{_WAIT}'",
        divider,
    )


def _pages(session: Session, divider: Divider) -> list[str]:
    # A lock on the table and its partitions, as every SELECT takes it, until the transaction ends: what moves
    # rows to other pages (VACUUM FULL, CLUSTER, TRUNCATE) waits for it.
    session.ask(f"SELECT 1 FROM {session.rows_of} WHERE q.ctid = '(0,0)'")  # noqa: S608 - the user's table
    width, count = max(divider.pages, 1), divider.count
    starts = dict.fromkeys(width * part // count for part in range(1, count))
    literals = [f"'({page},0)'::tid" for page in starts if page > 0]
    return databases.ranges(named(divider.name), literals, may_be_null=False)


def _conditions(session: Session, column: Column, divider: Divider, where: str) -> list[str]:
    value = named(column.name)
    # Not infinite, and not NaN, which is above all.
    finite = "TRUE" if column.kind in _WHOLE_KINDS else f"{value} > '-Infinity' AND {value} < 'Infinity'"
    numbers = ", ".join(f"{_number(f'{one}({value})', column.kind)}::text" for one in ("min", "max"))
    low, high = session.ask(
        f"SELECT {numbers} FROM {session.rows_of} WHERE ({where or 'TRUE'}) AND {finite}"  # noqa: S608 - quoted
    )
    if low is None or high is None:
        return ["TRUE"]
    kind = {"numeric": DECIMAL, "float4": FLOAT, "float8": FLOAT}.get(column.kind, WHOLE)
    found = databases.edges(low, high, divider.count, kind)
    return databases.ranges(named(divider.name), [_literal(one, column.kind) for one in found])


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
