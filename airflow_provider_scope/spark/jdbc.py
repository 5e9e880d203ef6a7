"""Rows of a database, of which one load asks once."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import cursor as cursors
from airflow_provider_scope.core.databases import CONF, refused_value
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    CursorError,
    InputError,
    ScopeProviderError,
    SourceUnreadableError,
)
from airflow_provider_scope.spark import mysql, postgres, postgres_parts, sqlite
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.jdbc_types import Column, check_decimals, custom
from airflow_provider_scope.spark.with_settings import with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.plan import CursorPlan, DatabasePlan
    from airflow_provider_scope.core.slices import CursorSlice
    from airflow_provider_scope.spark.postgres_parts import Parts

FETCH_SIZE = "10000"
_ARRAY, _DECIMALS = 2003, (2, 3)
"""As ``java.sql.Types`` has them."""
_TOOK_TOO_LONG = ("57014", "70100")
"""As PostgreSQL and MySQL tell it."""
_LATE = (
    "rows that a transaction commits later with a smaller value of {column!r} are lost: for this database "
    "it is not known which transactions are still running. Set cursor.lag (for numbers, dates and "
    "timestamps): each load then looks again at the rows that lie that far back"
)
_ALL_DIGITS = "SET extra_float_digits = 1"
"""A role or a database of PostgreSQL may have 0: then it rounds floats where it writes them as text."""
_ANY_LENGTH = "spark.sql.legacy.charVarcharAsString"
_NESTED = re.compile(r"COLUMN_ARRAY_ELEMENT_TYPE_MISMATCH\] Some values in field (\d+)")
_NUMBER = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|double")


class Session:
    """One connection of the driver's process, for questions; the rows come by Spark's own."""

    def __init__(self, spark: SparkSession, database: DatabasePlan) -> None:
        self.spark = spark
        self.database = database
        self.options = _options(spark, database)
        jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to its drivers
        # The properties say so, too, for machines of a cluster; here a user's may have won.
        jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("UTC"))
        package = jvm.org.apache.spark.sql
        given = jvm.PythonUtils.toScalaMap({**self.options, "dbtable": "t"})
        options = package.execution.datasources.jdbc.JDBCOptions(given)
        factory = package.jdbc.JdbcDialects.get(self.options["url"]).createConnectionFactory(options)
        self.connection: Any = factory.apply(-1)
        if self.database.kind == "postgresql":
            self.tell(_ALL_DIGITS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def rows_of(self) -> str:
        """What stands behind FROM."""
        found = self.database
        if found.table:
            return f"{found.table} AS q"
        # A statement may end with a semicolon; it is a part of another one here.
        return f"({str(found.query).rstrip().removesuffix(';')}\n) AS q"

    def ask(self, sql: str) -> list[str | None]:
        """Give the values of the first row, as text; none if there is no row."""
        statement = self.connection.createStatement()
        try:
            result = statement.executeQuery(sql)
            count = result.getMetaData().getColumnCount()
            return [result.getString(at + 1) for at in range(count)] if result.next() else []
        finally:
            statement.close()

    def tell(self, sql: str) -> None:
        """Run a statement that gives no rows."""
        statement = self.connection.createStatement()
        try:
            statement.execute(sql)
        finally:
            statement.close()

    def columns(self) -> list[Column]:
        """Give the columns of what is read."""
        statement = self.connection.createStatement()
        try:
            sql = f"SELECT * FROM {self.rows_of} WHERE 1 = 0"  # noqa: S608 - the user's own SQL
            told = statement.executeQuery(sql).getMetaData()
            return [
                Column(
                    told.getColumnLabel(at),
                    told.getColumnTypeName(at),
                    told.getPrecision(at),
                    told.getScale(at),
                    told.isNullable(at) != 0,
                    told.getColumnType(at) == _ARRAY,
                    told.getColumnType(at) in _DECIMALS,
                )
                for at in range(1, told.getColumnCount() + 1)
            ]
        finally:
            statement.close()


def rows(
    spark: SparkSession,
    source: CursorPlan,
    database: DatabasePlan,
    found: CursorSlice,
    seq: int,
    *,
    until_read: ExitStack,
) -> DataFrame:
    """Give the rows of a database, or those alone that the cursor may take; nothing is read yet.

    :param until_read: To be closed when the rows were read: what they are read from may be open so long.
    :raises CursorError: A column has a type whose values could change on the way.
    :raises InputError: The rows cannot be divided by the column that the user names.
    """
    with errors(source.table), ExitStack() as stack:
        session = stack.enter_context(Session(spark, database))
        if session.database.kind != "postgresql":
            return _others(session, source, found, seq)
        statement = postgres.statement(session, source, found, seq)
        table = f"({statement.sql}\n) AS q"
        if statement.parts is None:
            return statement.over(_reader(session, table, statement.types))
        data = statement.over(_reader_of_parts(session, table, statement.types, statement.parts))
        # The snapshot is there as long as the transaction that gave it away.
        until_read.enter_context(stack.pop_all())
        return data


def _others(session: Session, source: CursorPlan, found: CursorSlice, seq: int) -> DataFrame:
    rule = source.rule(found.column)
    columns, is_sqlite = session.columns(), session.database.kind == "sqlite"
    given = custom(session.options.get("customSchema"))
    kept = {name.lower(): kind for name, kind in given.items()}
    if not is_sqlite:  # whose numbers have no declared digits
        check_decimals(columns, kept)
    if rule.lag is None and found.end is None:
        emit(event="notice", seq=seq, told=_LATE.format(column=found.column))
    if session.database.kind == "mysql":
        asked = mysql.statement(session, columns, None if source.pre_filter_sql else rule, found, kept)
        read = partial(_reader, session, f"({asked.sql}) AS q")
        return _narrowed(asked.over(read(pushes=True)), lambda: asked.over(read()), source, found, seq)
    if is_sqlite:
        checked = sqlite.statement(session, columns, given)
        read = partial(_reader, session, f"({checked.sql}) AS q", checked.types)
    else:
        read = partial(_reader, session, session.rows_of)
    return _narrowed(read(pushes=True), read, source, found, seq, are_times_text=is_sqlite)


def _narrowed(
    data: DataFrame,
    read: Callable[[], DataFrame],
    source: CursorPlan,
    found: CursorSlice,
    seq: int,
    *,
    are_times_text: bool = False,
) -> DataFrame:
    """Let Spark ask for no other rows than those from where the cursor begins, if it compares as we do.

    :param read: Gives the rows so that Spark compares them all.
    """
    rule = source.rule(found.column)
    field = next((one for one in data.schema.fields if one.name.lower() == found.column.lower()), None)
    kind = field.dataType.simpleString() if field else ""
    # Text: databases compare it by other rules than Spark. Times of SQLite are text as well, and it takes no
    # infinite number in a condition.
    is_asked = source.pre_filter_sql is None and (
        (_NUMBER.fullmatch(kind) and not (are_times_text and kind in ("float", "double")))
        or (kind in ("date", "timestamp", "timestamp_ntz") and not are_times_text)
    )
    if field is None or not is_asked:
        return read()
    start = cursors.start_of_slice(rule, found, kind, f"batch {seq}")
    if start is None:
        return data
    value = data[quoted(field.name)]
    limit = f"CAST('{start}' AS {kind})"
    beyond = value >= F.expr(limit) if rule.func == "max" else value <= F.expr(limit)
    return data.where(beyond if rule.missing == "exclude" else beyond | value.isNull())


@contextmanager
def _without_lengths(session: Session) -> Iterator[None]:
    """Let texts be of any length: Spark would fill them up to the declared one, or refuse."""
    if session.database.kind == "postgresql":
        yield
        return
    with with_settings(session.spark, {_ANY_LENGTH: "true"}):
        yield


def _reader(session: Session, table: str, types: str | None = None, *, pushes: bool = False) -> DataFrame:
    options = {**_with_types(session, types), "dbtable": table, "pushDownPredicate": str(pushes).lower()}
    with _without_lengths(session):
        return session.spark.read.format("jdbc").options(**options).load()


def _reader_of_parts(session: Session, table: str, types: str | None, parts: Parts) -> DataFrame:
    options = {**_with_types(session, types), "pushDownPredicate": "false"}
    url = options.pop("url")
    # Spark runs it in the transaction of the SELECT: what is fetched in turns is read without autocommit.
    options["sessionInitStatement"] = "; ".join(
        one for one in (parts.begin, options.get("sessionInitStatement")) if one
    )
    return session.spark.read.options(**options).jdbc(url, table, predicates=parts.conditions)


def _with_types(session: Session, types: str | None) -> dict[str, str]:
    return {**session.options, **({"customSchema": types} if types else {})}


def _options(spark: SparkSession, database: DatabasePlan) -> dict[str, str]:
    found = {name: spark.conf.get(CONF + name, None) for name in ("url", "user", "password", "driver")}
    if not found["url"]:
        raise InputError(
            "Spark was not told where the database is.",
            kept=NO_ROW_WRITTEN,
            do="give the same version of airflow-provider-scope to the worker and to Spark",
        )
    given = {name: value for name, value in found.items() if value}
    fixed = {"preferTimestampNTZ": "true", "numPartitions": "1"}
    if database.kind == "postgresql":
        first = database.options.get("sessionInitStatement")
        fixed["sessionInitStatement"] = f"{first}; {_ALL_DIGITS}" if first else _ALL_DIGITS
    return {"fetchsize": FETCH_SIZE, **database.options, **fixed, **given}


@contextmanager
def errors(what: str) -> Iterator[None]:
    """Turn what a database says into our own error.

    :param what: What is read, for people.
    :raises CursorError: A value cannot be loaded as it is.
    :raises InputError: The database refuses who asks, or what it is asked; or its driver is not there.
    :raises SourceUnreadableError: It cannot be reached, or ended the transaction whose snapshot is read; or a
        part could not begin.
    """
    try:
        yield
    except ScopeProviderError:
        raise
    except Exception as err:
        text = whole_text(err)
        if array := _NESTED.search(text):
            raise CursorError(
                f"The column number {int(array[1]) + 1} of {what} has an array of several dimensions.",
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
                f"The load waited too long for a lock on the table {what}: another session holds one, or "
                "waits for one (LOCK TABLE, VACUUM FULL, TRUNCATE, ALTER TABLE). lock_timeout ended the "
                "wait; it is 10 seconds where several connections read the table.",
                kept=NO_ROW_WRITTEN,
                do="run the task again when that session is done: the load has released the table, and "
                "reads it again. With num_partitions=1 such changes wait for the load",
            ) from err
        said = refused_value(text)
        if said is None:
            refused = _refusal(_sql_state(err), what, short_cause(err))
            if refused is None:
                raise
            raise refused from err
        raise CursorError(
            f"The {said}, which the table's type cannot hold.",
            kept=NO_ROW_WRITTEN,
            do="leave such rows out, or give them another value, in `query`; or read the column as text with "
            "options={'customSchema': '<column> STRING'}",
        ) from err


def _sql_state(err: Exception) -> str:
    """Give the code of an error that a driver raised, as SQL's standard has it; empty if it has none."""
    cause = err.java_exception if isinstance(err, Py4JJavaError) else None
    while cause is not None:
        try:
            return str(cause.getSQLState() or "")
        except Py4JError:  # an error of Spark's, which has none
            cause = cause.getCause()
    return ""


def _refusal(state: str, what: str, cause: str) -> InputError | SourceUnreadableError | None:
    """Give the error for what a driver says; None if nothing more is known of it."""
    if "ClassNotFoundException" in cause:
        return InputError(
            f"The database driver for reading {what} is missing: {cause}",
            kept=NO_ROW_WRITTEN,
            do="name it in the extra of the connection: `driver_class`, and `packages` with its Maven "
            "coordinates; if the engine has `packages` or `jars` of its own, it has to be one of them",
        )
    if state.startswith("08"):
        return SourceUnreadableError(
            f"Could not read {what}: the database cannot be reached, or it ended the connection: {cause}",
            kept=NO_ROW_WRITTEN,
            do="check that the database runs, and that host and port of the connection are right; the next "
            "try reads it again",
        )
    if state in _TOOK_TOO_LONG:
        return SourceUnreadableError(
            f"The database ended the statement that reads {what}, because it took too long: {cause}",
            kept=NO_ROW_WRITTEN,
            do="check what it waited for (a lock of another session, a scan without an index); or give it "
            "more time: statement_timeout or max_statement_time of the database, queryTimeout in "
            "`options`. The next try reads it again",
        )
    if state.startswith("28"):
        return InputError(
            f"The database does not let this user log in to read {what}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct login and password of the connection; the next run loads the batch with them",
        )
    if state == "42501" or "command denied" in cause:
        return InputError(
            f"The database does not let this user read {what}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="GRANT SELECT on it, and USAGE on its schema, to the connection's login. The next run loads "
            "the batch with them",
        )
    if "SQLITE_CANTOPEN" in cause:
        return InputError(
            f"The database file cannot be opened to read {what}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct the host of the connection: the absolute path of a file that is where Spark runs",
        )
    if state.startswith(("42", "07")) or "No value specified for parameter" in cause:
        return InputError(
            f"The database does not accept the SQL that reads {what}: {cause}",
            kept=NO_ROW_WRITTEN,
            do="correct `table` or `query` of the source: names with capitals, blanks or dots are quoted "
            "as the database requires, and a question mark is written twice. The next run loads the batch "
            "with it",
        )
    return None
