"""Read the rows of a database: one module for each kind of database.

Each module's ``rows`` gives the rows, or only those that the cursor may take, with all values unchanged.
"""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError

from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    CursorError,
    InputError,
    ScopeProviderError,
    SourceUnreadableError,
)
from airflow_provider_scope.sources.cursor.databases import finding, refused_value, rows_of
from airflow_provider_scope.spark.databases import jdbc, mysql, postgres, postgres_parts, sqlite
from airflow_provider_scope.spark.session import in_utc, short_cause, whole_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.sources.cursor.spec import JdbcSource
    from airflow_provider_scope.values import CursorSlice

_ROWS: dict[str, Callable[[jdbc.Session], DataFrame]] = {
    "postgresql": postgres.rows,
    "mysql": mysql.rows,
    "sqlite": sqlite.rows,
    "jdbc": jdbc.rows,
}
"""Kind of a database -> what reads its rows. "jdbc" is any other database, read as Spark reads it."""
_NESTED = re.compile(r"COLUMN_ARRAY_ELEMENT_TYPE_MISMATCH\] Some values in field (\d+)")


@contextmanager
def opened(
    spark: SparkSession, source: JdbcSource, cursor_slice: CursorSlice, seq: int
) -> Iterator[DataFrame]:
    """Select the rows of a database, or only those that the cursor may take, to be read in the block.

    The block keeps open the connection whose transaction has the snapshot that the rows are read from, if
    there is such a transaction.

    :raises CursorError: A column has a type whose values could change on the way; and as ``errors`` does.
    :raises InputError: The rows cannot be divided by the column that the user names; and as ``errors`` does.
    """
    with errors(spark, source), closing(jdbc.Session(spark, source, cursor_slice, seq)) as session:
        rows = _ROWS[session.kind](session)
        if not session.stays_open:
            session.close()
        yield in_utc(rows)


@contextmanager
def errors(spark: SparkSession, source: JdbcSource) -> Iterator[None]:
    """Turn the errors of a database and its driver into our own.

    :raises CursorError: A value cannot be loaded as it is.
    :raises InputError: The database refuses the user or the SQL; or its driver is missing.
    :raises SourceUnreadableError: The database cannot be reached, or ended the transaction whose snapshot is
        read; or one of several connections could not begin to read.
    """
    name = source.rows_of
    try:
        yield
    except ScopeProviderError:
        raise
    except Exception as err:
        text = whole_text(err)
        if array := _NESTED.search(text):
            raise CursorError(
                f"The column number {int(array[1]) + 1} of {name} has an array of several dimensions.",
                kept=NO_ROW_WRITTEN,
                do="read it as text with options={'customSchema': '<column> STRING'}; or make one dimension "
                "of it in `query`",
            ) from err
        if postgres_parts.is_lost(text):
            raise SourceUnreadableError(
                "The database ended the transaction whose snapshot all parts of the load read, or one of its "
                "connections did not read this snapshot.",
                kept=NO_ROW_WRITTEN,
                do="the next run reads all parts again. If it happens again, check whether something ends "
                "idle sessions, or whether a pool in between gives one transaction to several connections; "
                "or set num_partitions=1",
            ) from err
        if postgres_parts.is_blocked(text):
            raise SourceUnreadableError(
                f"The load waited too long for a lock on the table {name}: another session holds one, or "
                "waits for one (LOCK TABLE, VACUUM FULL, TRUNCATE, ALTER TABLE). lock_timeout ended the "
                "wait; it is 10 seconds where several connections read the table.",
                kept=NO_ROW_WRITTEN,
                do="run the task again when that session is done: the load has released the table, and "
                "reads it again. With num_partitions=1 such changes wait for the load",
            ) from err
        value = refused_value(text)
        if value is None:
            refusal = refusal_of(_sql_state(err), name, short_cause(err))
            if refusal is None:
                raise
            raise refusal from err
        # The database stops at the value, and does not tell in which row it is.
        query = finding(jdbc.kind_of(spark), rows_of(source.table, source.query), value)
        raise CursorError(
            f"The {value}, which the table's type cannot hold.",
            kept=NO_ROW_WRITTEN,
            do="leave such rows out, or give them another value, in `query`; or read the column as text with "
            "options={'customSchema': '<column> STRING'}" + (f". This finds them: {query}" if query else ""),
        ) from err


def _sql_state(err: Exception) -> str:
    """Find the SQL state (as in SQL's standard) of an error that a driver raised; empty if it has none."""
    cause = err.java_exception if isinstance(err, Py4JJavaError) else None
    while cause is not None:
        try:
            return str(cause.getSQLState() or "")
        except Py4JError:  # an error of Spark's, which has none
            cause = cause.getCause()
    return ""


def refusal_of(state: str, name: str, cause: str) -> InputError | SourceUnreadableError | None:
    """Make our error for an error of a driver; None if it is none of those that are known here.

    :param name: What is read, for messages.
    """
    if "ClassNotFoundException" in cause or "No suitable driver" in cause:
        return InputError(
            f"The database driver for reading {name} is missing: {cause}",
            kept=NO_ROW_WRITTEN,
            do="name it in the extra of the connection: `driver_class`, and `packages` with its Maven "
            "coordinates; if the engine has `packages` or `jars` of its own, it has to be one of them",
        )
    if state.startswith("08"):
        return SourceUnreadableError(
            f"Could not read {name}: the database cannot be reached, or it ended the connection: {cause}",
            kept=NO_ROW_WRITTEN,
            do="check that the database runs, and that host and port of the connection are right; the next "
            "try reads it again",
        )
    if state in ("57014", "70100"):  # of PostgreSQL and MySQL
        return SourceUnreadableError(
            f"The database ended the statement that reads {name}, because it took too long: {cause}",
            kept=NO_ROW_WRITTEN,
            do="check what it waited for (a lock of another session, a scan without an index); or give it "
            "more time: statement_timeout or max_statement_time of the database, queryTimeout in "
            "`options`. The next try reads it again",
        )
    if state.startswith("28"):
        return InputError(
            f"The database does not let this user log in to read {name}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct login and password of the connection; the next run loads the batch with them",
        )
    if state == "42501" or "command denied" in cause:
        return InputError(
            f"The database does not let this user read {name}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="GRANT SELECT on it, and USAGE on its schema, to the connection's login. The next run loads "
            "the batch with them",
        )
    if "SQLITE_CANTOPEN" in cause:
        return InputError(
            f"The database file cannot be opened to read {name}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct the host of the connection: the absolute path of a file that is where Spark runs",
        )
    if state.startswith(("42", "07")) or "No value specified for parameter" in cause:
        return InputError(
            f"The database does not accept the SQL that reads {name}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct `table` or `query` of the source: names with capitals, blanks or dots are quoted "
            "as the database requires, and a question mark is written twice. The next run loads the batch "
            "with it",
        )
    return None
