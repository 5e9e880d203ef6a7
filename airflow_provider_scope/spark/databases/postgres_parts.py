"""Reading rows of PostgreSQL over several connections at once, all from one snapshot."""

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
"""How long a part waits for a lock. The transaction with the snapshot has the lock already, so a part waits
only for a session that waits for that transaction, to change the table. Without a limit, both would wait for
ever."""
_OTHER_MOMENT = "airflow-provider-scope: this connection does not read the snapshot of the load, but "
_LOST = re.compile(
    re.escape(_OTHER_MOMENT) + "|invalid snapshot identifier|could not import the requested snapshot"
)
_BLOCKED = re.compile(r"(?=.*lock timeout)(?=.*PSQLException)", re.DOTALL)
_BY_DEFAULT = 4
"""The most connections where the user does not say how many: a database has a limited number of them."""
_PART_BYTES = 64 * 1024 * 1024
"""The least bytes of a table for each of these connections."""
_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_IS_NAME = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,2}}")
_SIZE = """
SELECT CASE WHEN c.relkind IN ('r', 'm', 'p') THEN max(s) / current_setting('block_size')::int END,
  CASE WHEN current_setting('server_version_num')::int >= 140000 THEN sum(s) ELSE 0 END
FROM pg_class c,
  LATERAL (SELECT c.oid AS one UNION SELECT relid FROM pg_partition_tree(c.oid)) AS p,
  LATERAL (SELECT coalesce(pg_relation_size(one), 0) AS s) AS q
WHERE c.oid = to_regclass('{name}') GROUP BY c.oid, c.relkind"""
"""Pages of the largest partition, or NULL if rows have no place in pages; and bytes of all partitions, or 0
before PostgreSQL 14: those versions read all pages of a table for a range of them."""


@dataclass(frozen=True, slots=True)
class Divider:
    """What the rows are divided by."""

    count: int
    column: Column | None
    """None is the place of a row in the table, by page."""
    name: str
    """Its name in the statement that is divided, beside the columns that are read."""
    pages: int = 0
    """How many pages are divided: those of the table, or of its largest partition."""

    @property
    def value(self) -> str:
        """SQL of the value that is compared."""
        return named(self.column.name) if self.column else "q.ctid"


class Parts(NamedTuple):
    """How rows are divided among connections."""

    conditions: list[str]
    """For each connection, its condition in SQL, over the divider."""
    begin: str
    """The SQL that a connection runs before it reads, in its transaction."""
    divider: Divider


def is_lost(text: str) -> bool:
    """Whether an error says that a connection could not read the snapshot of a load."""
    return _LOST.search(text) is not None


def is_blocked(text: str) -> bool:
    """Whether an error says that a connection waited for a lock, and gave up."""
    return _BLOCKED.search(text) is not None


def divided(session: Session, columns: list[Column], where: str, *, reads_all: bool) -> Parts | None:
    """Divide rows among connections, and begin the transaction whose snapshot all of them read.

    The condition that holds back rows of running transactions was computed before: a snapshot that is older
    than that could miss rows that are within the condition.

    :param where: The condition of the statement that is divided; it may be empty.
    :param reads_all: Whether all rows are new. Else an index may find the new ones, and a division by pages
        would not use it.
    :return: The parts; None if one connection is to read all rows, for which no snapshot is shared.
    :raises InputError: The rows cannot be divided as the user says.
    """
    count = session.source.num_partitions
    if count == 1 or (count is None and not reads_all):
        return None
    try:
        divider = _divider(session, columns)
        return _parts(session, divider, where) if divider else None
    except Py4JJavaError as err:
        if count is not None:
            raise
        # Other databases that speak PostgreSQL's protocol have no pages, or no snapshots to share.
        message = f"the table is read over one connection, because it cannot be divided: {short_cause(err)}"
        emit(event="notice", seq=session.seq, message=f"{message}. With num_partitions=1 this is not tried")
        return None


def reader(session: Session, table: str, types: str, parts: Parts) -> DataFrame:
    """Select the rows of a table, to be read over one connection for each part.

    :param table: The SQL after FROM.
    :param types: The types that the user names (Spark's ``customSchema``); it may be empty.
    """
    options = {**session.options, "pushDownPredicate": "false", **({"customSchema": types} if types else {})}
    url = options.pop("url")
    # Spark runs it in the transaction of the SELECT: with a fetch size, it reads without autocommit.
    init_statement = options.get("sessionInitStatement")
    options["sessionInitStatement"] = f"{parts.begin}; {init_statement}" if init_statement else parts.begin
    session.stays_open = True
    return session.spark.read.options(**options).jdbc(url, table, predicates=parts.conditions)


def _divider(session: Session, columns: list[Column]) -> Divider | None:
    """Choose what the rows are divided by; None if they are too few to divide.

    :raises InputError: The rows cannot be divided as the user says.
    """
    source = session.source
    name = _free_name(columns)
    if source.partition_column and source.num_partitions:
        return Divider(source.num_partitions, _column_of(columns, source.partition_column), name)
    is_name = source.table is not None and _IS_NAME.fullmatch(source.table)
    size_row = session.ask(_SIZE.format(name=str(source.table).replace("'", "''"))) if is_name else []
    pages: int | None = None
    size = 0
    if size_row and size_row[0] is not None:
        pages, size = int(size_row[0]), int(size_row[1] or 0)
    if source.num_partitions is None:
        count = min(_BY_DEFAULT, _cores(session), size // _PART_BYTES)
    else:
        count = source.num_partitions
        if pages is None:
            raise InputError(
                f"num_partitions={count} is not possible without partition_column: {source.table} is not "
                "the name of a table, and only a table has pages to divide.",
                kept=NO_ROW_WRITTEN,
                do="name a partition_column; or leave num_partitions out",
            )
    return Divider(count, None, name, pages or 0) if count > 1 else None


def _cores(session: Session) -> int:
    return session.spark.sparkContext.defaultParallelism


def _column_of(columns: list[Column], name: str) -> Column:
    """Find the column by whose values rows are divided.

    :raises InputError: There is no such column, or its values cannot be divided into ranges.
    """
    matches = [column for column in columns if column.name == name] or [
        column for column in columns if column.name.lower() == name.lower()
    ]
    if not matches:
        raise _bad(name, f"there is no such column: {', '.join(column.name for column in columns)}")
    column = matches[0]
    if column.kind not in (*_WHOLE_KINDS, "numeric", *_FLOAT_KINDS, *_SINCE):
        raise _bad(name, f"the column has the type {column.kind}, whose values cannot be divided into ranges")
    return column


def _free_name(columns: list[Column]) -> str:
    """Find a name that no column has, for the value that conditions compare."""
    names = {column.name.lower() for column in columns}
    name = "scope_part"
    while name in names:
        name += "_"
    return name


def _parts(session: Session, divider: Divider, where: str) -> Parts | None:
    """Begin the transaction with the snapshot, and divide the rows; None if they are all in one part."""
    connection = session.connection
    connection.setAutoCommit(False)
    connection.setTransactionIsolation(_REPEATABLE_READ)
    # The transaction is idle while the other connections read.
    session.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    snapshot, snapshot_text = session.ask("SELECT pg_export_snapshot(), pg_current_snapshot()::text")
    if divider.column:
        conditions = _conditions(session, divider.column, divider, where)
    else:
        conditions = _pages(session, divider)
    if len(conditions) == 1:
        return None
    # A driver or a pool in between could begin another transaction. The message is not a constant, so the
    # database does not evaluate the cast in advance.
    is_same_snapshot = (
        f"CASE WHEN pg_current_snapshot()::text = '{snapshot_text}' THEN TRUE "
        f"ELSE ('{_OTHER_MOMENT}' || pg_current_snapshot()::text)::boolean END"
    )
    return Parts(
        [f"({condition}) AND {is_same_snapshot}" for condition in conditions],
        f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; "
        f"SET LOCAL lock_timeout = '{_WAIT}'",
        divider,
    )


def _pages(session: Session, divider: Divider) -> list[str]:
    """Write the conditions for equal ranges of pages."""
    # A lock on the table and its partitions, as every SELECT takes it, until the transaction ends: what moves
    # rows to other pages (VACUUM FULL, CLUSTER, TRUNCATE) waits for it.
    session.ask(f"SELECT 1 FROM {session.rows_of} WHERE q.ctid = '(0,0)'")  # noqa: S608 - the user's table
    width, count = max(divider.pages, 1), divider.count
    starts = dict.fromkeys(width * part // count for part in range(1, count))
    literals = [f"'({page},0)'::tid" for page in starts if page > 0]
    return databases.ranges(named(divider.name), literals, may_be_null=False)


def _conditions(session: Session, column: Column, divider: Divider, where: str) -> list[str]:
    """Write the conditions for equal ranges of a column's values."""
    value = named(column.name)
    # Neither infinite nor NaN, which PostgreSQL sorts above all numbers.
    finite = "TRUE" if column.kind in _WHOLE_KINDS else f"{value} > '-Infinity' AND {value} < 'Infinity'"
    numbers = ", ".join(f"{_number(f'{func}({value})', column.kind)}::text" for func in ("min", "max"))
    low, high = session.ask(
        f"SELECT {numbers} FROM {session.rows_of} WHERE ({where or 'TRUE'}) AND {finite}"  # noqa: S608 - quoted
    )
    if low is None or high is None:
        return ["TRUE"]
    kind = {"numeric": DECIMAL, "float4": FLOAT, "float8": FLOAT}.get(column.kind, WHOLE)
    edges = databases.edges(low, high, divider.count, kind)
    return databases.ranges(named(divider.name), [_literal(edge, column.kind) for edge in edges])


def _number(value: str, kind: str) -> str:
    """Write SQL of a value as a number: for a date its days, for a time its microseconds since 2000."""
    if kind == "date":
        return f"({value} - {_SINCE[kind]})"
    if kind in _SINCE:
        return f"trunc(extract(epoch FROM ({value} - {_SINCE[kind]})) * 1000000)"
    return value


def _literal(number: str, kind: str) -> str:
    """Write a number as a literal of the column's type; the inverse of ``_number``."""
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
