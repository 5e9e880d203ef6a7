"""A connection to a database, its columns, and their rows as Spark's own reader gives them."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    CursorError,
    InputError,
)
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.databases import CONF, rows_of
from airflow_provider_scope.spark.session import emit, with_settings
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.sources.cursor.spec import JdbcSource
    from airflow_provider_scope.values import CursorSlice


DIGITS = 38
"""The most digits that a decimal can have."""


class Column(NamedTuple):
    """A column of a query's result, as the driver describes it."""

    name: str
    kind: str
    precision: int
    scale: int
    may_be_null: bool
    is_array: bool
    is_decimal: bool


def check_decimals(columns: Sequence[Column], custom_types: Mapping[str, T.DataType]) -> None:
    """Refuse columns of numbers that do not fit a decimal: Spark would round them silently.

    :param custom_types: Column, in lower case -> the type that the user names.
    :raises CursorError: Names all such columns.
    """
    unfit: dict[str, str] = {}
    for column in columns:
        if not column.is_decimal:
            continue
        kind = custom_types.get(column.name.lower())
        digits = f"{column.kind} of {column.precision} digits, {column.scale} of them after the decimal point"
        if kind is None and not column.precision:
            unfit[column.name] = f"{column.kind} without a precision"
        elif kind is None and not 0 < column.precision <= DIGITS:
            unfit[column.name] = digits
        elif isinstance(kind, T.DecimalType):
            whole_digits = kind.precision - kind.scale
            fits = kind.scale >= column.scale and whole_digits >= column.precision - column.scale
            if not fits or not column.precision:
                unfit[column.name] = f"{digits}, read as {kind.simpleString()}"
    if unfit:
        raise no_type_for(unfit, "a DECIMAL(p,s) that has all its digits")


def no_type_for(unfit: Mapping[str, str], number_type: str) -> CursorError:
    """Make the error for columns that the table cannot hold.

    :param unfit: The columns -> the reason.
    :param number_type: The type that the advice suggests for numbers.
    """
    columns = ", ".join(f"{name!r} ({reason})" for name, reason in unfit.items())
    error = CursorError(
        f"The table has no type for {columns}: values could change on the way.",
        kept=NO_ROW_WRITTEN,
        do="set their types with options={'customSchema': '<column> <type>, …'}: STRING for any type, or "
        f"{number_type}; or leave them out with `query`. The next run loads the batch with it",
    )
    error.columns = tuple(unfit)
    return error


FETCH_SIZE = "10000"
_ARRAY, _DECIMALS = 2003, (2, 3)
"""The numbers of ``java.sql.Types``."""
_LATE = (
    "rows that a transaction commits later with a smaller value of {column!r} are lost: for this database "
    "it is not known which transactions are still running. Set cursor.lag (for numbers, dates and "
    "timestamps): each load then looks again at the rows that lie that far back"
)
_ALL_DIGITS = "SET extra_float_digits = 1"
"""A role or a database of PostgreSQL may have 0: then it rounds floats where it writes them as text."""
_ANY_LENGTH = "spark.sql.legacy.charVarcharAsString"
_COMPARABLE = re.compile(
    r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|double|date|timestamp|timestamp_ntz"
)


class Session:
    """One connection for the questions of a load; the rows come by connections that Spark opens."""

    def __init__(self, spark: SparkSession, source: JdbcSource, batch: CursorSlice, seq: int) -> None:
        self.spark = spark
        self.source = source
        self.kind = kind_of(spark)
        self.batch = batch
        self.seq = seq
        self.cursor = replace(source.cursor, column=batch.column)
        self.max_rows = source.max_rows_per_batch
        self.computes_column = source.pre_filter_sql is not None
        """Whether the cursor's column may be one that the database does not have."""
        self.options = _options(spark, source)
        self.stays_open = False
        """Whether others read the snapshot of its transaction; then it stays open until the rows are read."""
        jvm: Any = spark._jvm  # Spark has no other way to its drivers
        package = jvm.org.apache.spark.sql
        scala_options = jvm.PythonUtils.toScalaMap({**self.options, "dbtable": "t"})
        options = package.execution.datasources.jdbc.JDBCOptions(scala_options)
        factory = package.jdbc.JdbcDialects.get(self.options["url"]).createConnectionFactory(options)
        self.connection: Any = factory.apply(-1)
        if self.kind == "postgresql":
            self.execute(_ALL_DIGITS)

    def close(self) -> None:
        """Close the connection, and release the snapshot of its transaction."""
        self.connection.close()

    @property
    def rows_of(self) -> str:
        """The SQL after FROM: the table or the query that is read."""
        return rows_of(self.source.table, self.source.query)

    def ask(self, sql: str) -> list[str | None]:
        """Run a query, and read the values of its first row as text; an empty list if it has no row."""
        with closing(self.connection.createStatement()) as statement:
            result = statement.executeQuery(sql)
            count = result.getMetaData().getColumnCount()
            return [result.getString(number + 1) for number in range(count)] if result.next() else []

    def execute(self, sql: str) -> None:
        """Run a statement that gives no rows."""
        with closing(self.connection.createStatement()) as statement:
            statement.execute(sql)

    def custom_types(self) -> dict[str, T.DataType]:
        """Read the types that the user names for columns (Spark's option ``customSchema``).

        :return: Column, in lower case -> its type: Spark compares these names whatever their case.
        """
        text = self.options.get("customSchema")
        fields: list[T.StructField] = getattr(T.StructType.fromDDL(text), "fields", []) if text else []
        return {field.name.lower(): field.dataType for field in fields}

    def columns(self) -> list[Column]:
        sql = f"SELECT * FROM {self.rows_of} WHERE 1 = 0"  # noqa: S608 - the user's own SQL
        with closing(self.connection.createStatement()) as statement:
            metadata = statement.executeQuery(sql).getMetaData()
            return [
                Column(
                    metadata.getColumnLabel(number),
                    metadata.getColumnTypeName(number),
                    metadata.getPrecision(number),
                    metadata.getScale(number),
                    metadata.isNullable(number) != 0,
                    metadata.getColumnType(number) == _ARRAY,
                    metadata.getColumnType(number) in _DECIMALS,
                )
                for number in range(1, metadata.getColumnCount() + 1)
            ]

    # ---- the cursor ------------------------------------------------------------------------------

    def cursor_in(self, columns: Sequence[Column]) -> Column | None:
        """Find the column of the cursor; None if the database has no such column."""
        name = self.batch.column.lower()
        return next((column for column in columns if column.name.lower() == name), None)

    def start(self, kind: str) -> str | None:
        """Find the first value of the cursor to read, as text of its type; None is all.

        All rows are read once, too, where the column has got another type: the state has texts of the one
        before, until ``Reading`` converts them or refuses the type.
        """
        before = None if self.batch.end else cursor_state.decode(self.batch.before, f"batch {self.seq}")
        if before and before.kind not in (None, kind):
            return None
        return cursor_state.start_of_slice(self.cursor, self.batch, kind, f"batch {self.seq}")

    def notify(self, text: str) -> None:
        """Report a notice; ``{column!r}`` in it is the column of the cursor."""
        # Not by `format`: a value in the text may have braces.
        emit(event="notice", seq=self.seq, message=text.replace("{column!r}", repr(self.batch.column)))

    def warn_of_late_rows(self, text: str = _LATE) -> None:
        """Warn that rows that are committed late may be lost, unless a lag says how late they come."""
        if self.cursor.lag is None and self.batch.end is None:
            self.notify(text)


def rows(session: Session) -> DataFrame:
    """Select the rows of a database of a kind that has no module of its own."""
    check_decimals(session.columns(), session.custom_types())
    session.warn_of_late_rows()
    return narrowed(session, partial(reader, session, session.rows_of))


def narrowed(
    session: Session, read: Callable[..., DataFrame], comparable: re.Pattern[str] = _COMPARABLE
) -> DataFrame:
    """Leave out the rows before the start of the cursor, in the database if it compares as Spark does.

    :param read: Selects the rows; with ``pushes=True`` Spark may hand conditions to the database.
    :param comparable: Spark's types whose values the database compares as Spark does. Text is none of them.
    """
    cursor, data = session.cursor, read(pushes=True)
    name = session.batch.column.lower()
    field = next((field for field in data.schema if field.name.lower() == name), None)
    kind = field.dataType.simpleString() if field else ""
    if field is None or session.computes_column or not comparable.fullmatch(kind):
        return read()
    start = session.start(kind)
    if start is None:
        return data
    value = data[quoted(field.name)]
    limit = F.expr(f"CAST('{start}' AS {kind})")
    is_from_start = value >= limit if cursor.is_rising else value <= limit
    return data.where(is_from_start if cursor.excludes_missing else is_from_start | value.isNull())


def reader(session: Session, table: str, types: str | None = None, *, pushes: bool = False) -> DataFrame:
    """Select the rows of a table, to be read over one connection.

    :param table: The SQL after FROM.
    :param types: The types that Spark is told (``customSchema``); None or empty leaves the user's.
    :param pushes: Whether Spark may hand conditions to the database.
    """
    options = {**session.options, "dbtable": table, "pushDownPredicate": str(pushes).lower()}
    if types:
        options["customSchema"] = types
    # Texts may be of any length: Spark would pad them to the declared one, or refuse longer ones.
    char_settings = {} if session.kind == "postgresql" else {_ANY_LENGTH: "true"}
    with with_settings(session.spark, char_settings):
        return session.spark.read.format("jdbc").options(**options).load()


def kind_of(spark: SparkSession) -> str:
    """Return the kind of the database that the properties of the application name."""
    return spark.conf.get(CONF + "kind", None) or "jdbc"


def _options(spark: SparkSession, source: JdbcSource) -> dict[str, str]:
    names = ("url", "user", "password", "driver")
    connection = {name: value for name in names if (value := spark.conf.get(CONF + name, None))}
    if "url" not in connection:
        raise InputError(
            "Spark was not told where the database is.",
            kept=NO_ROW_WRITTEN,
            do="give the same version of airflow-provider-scope to the worker and to Spark",
        )
    fixed = {"preferTimestampNTZ": "true", "numPartitions": "1"}
    users_options = {name: str(value) for name, value in (source.options or {}).items()}
    if kind_of(spark) == "postgresql":
        users = users_options.get("sessionInitStatement")
        fixed["sessionInitStatement"] = f"{users}; {_ALL_DIGITS}" if users else _ALL_DIGITS
    return {"fetchsize": FETCH_SIZE, **users_options, **fixed, **connection}
