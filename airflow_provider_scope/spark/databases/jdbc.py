"""A connection to a database, its columns, and their rows as Spark's own reader gives them."""

from __future__ import annotations

import re
from contextlib import closing
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

    from airflow_provider_scope.spark.plan import CursorPlan, DatabasePlan
    from airflow_provider_scope.values import CursorSlice


DIGITS = 38
"""Of a decimal, at the most."""


class Column(NamedTuple):
    """A column of a result, as the driver names it."""

    name: str
    kind: str
    precision: int
    scale: int
    may_be_null: bool
    is_array: bool
    is_decimal: bool


def check_decimals(columns: Sequence[Column], custom: Mapping[str, T.DataType]) -> None:
    """Refuse numbers that do not fit a decimal: Spark rounds them to what it takes, without a word.

    :param custom: Column -> the type that the user names.
    :raises CursorError: It names them all.
    """
    unfit, given = [], {name.lower(): kind for name, kind in custom.items()}
    for one in columns:
        kind = given.get(one.name.lower())
        told = f"{one.kind} of {one.precision} digits, {one.scale} of them after the decimal point"
        if kind is None and one.is_decimal and not 0 < one.precision <= DIGITS:
            unfit.append(f"{one.name!r} ({told if one.precision else f'{one.kind} without a precision'})")
        elif isinstance(kind, T.DecimalType) and one.is_decimal:
            whole = kind.precision - kind.scale
            if kind.scale < one.scale or whole < one.precision - one.scale or not one.precision:
                unfit.append(f"{one.name!r} ({told}, read as {kind.simpleString()})")
    if unfit:
        raise no_type_for(unfit, "a DECIMAL(p,s) that has all its digits")


def no_type_for(unfit: Sequence[str], other: str) -> CursorError:
    """Give the error for columns that the table cannot hold.

    :param other: What a number may become, beside text.
    """
    return CursorError(
        f"The table has no type for {', '.join(unfit)}: values could change on the way.",
        kept=NO_ROW_WRITTEN,
        do="set their types with options={'customSchema': '<column> <type>, …'}: STRING for any type, or "
        f"{other}; or leave them out with `query`. The next run loads the batch with it",
    )


FETCH_SIZE = "10000"
_ARRAY, _DECIMALS = 2003, (2, 3)
"""As ``java.sql.Types`` has them."""
_LATE = (
    "rows that a transaction commits later with a smaller value of {column!r} are lost: for this database "
    "it is not known which transactions are still running. Set cursor.lag (for numbers, dates and "
    "timestamps): each load then looks again at the rows that lie that far back"
)
_ALL_DIGITS = "SET extra_float_digits = 1"
"""A role or a database of PostgreSQL may have 0: then it rounds floats where it writes them as text."""
_ANY_LENGTH = "spark.sql.legacy.charVarcharAsString"
_NUMBER = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|double")


class Session:
    """One connection of the driver's process, for questions; the rows come by Spark's own."""

    def __init__(self, spark: SparkSession, database: DatabasePlan) -> None:
        self.spark = spark
        self.database = database
        self.options = _options(spark, database)
        self.stays_open = False
        """Whether its transaction gave a snapshot away: then it ends when the rows were read."""
        jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to its drivers
        package = jvm.org.apache.spark.sql
        given = jvm.PythonUtils.toScalaMap({**self.options, "dbtable": "t"})
        options = package.execution.datasources.jdbc.JDBCOptions(given)
        factory = package.jdbc.JdbcDialects.get(self.options["url"]).createConnectionFactory(options)
        self.connection: Any = factory.apply(-1)
        if self.database.kind == "postgresql":
            self.tell(_ALL_DIGITS)

    def close(self) -> None:
        """Let go of the connection, and of the snapshot of its transaction."""
        self.connection.close()

    @property
    def rows_of(self) -> str:
        """What stands behind FROM."""
        return rows_of(self.database.table, self.database.query)

    def ask(self, sql: str) -> list[str | None]:
        """Give the values of the first row, as text; none if there is no row."""
        with closing(self.connection.createStatement()) as statement:
            result = statement.executeQuery(sql)
            count = result.getMetaData().getColumnCount()
            return [result.getString(at + 1) for at in range(count)] if result.next() else []

    def tell(self, sql: str) -> None:
        """Run a statement that gives no rows."""
        with closing(self.connection.createStatement()) as statement:
            statement.execute(sql)

    def custom(self) -> dict[str, T.DataType]:
        """Give the types that the user names for columns."""
        text = self.options.get("customSchema")
        fields: list[T.StructField] = getattr(T.StructType.fromDDL(text), "fields", []) if text else []
        return {field.name: field.dataType for field in fields}

    def columns(self) -> list[Column]:
        """Give the columns of what is read."""
        sql = f"SELECT * FROM {self.rows_of} WHERE 1 = 0"  # noqa: S608 - the user's own SQL
        with closing(self.connection.createStatement()) as statement:
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


def rows(session: Session, source: CursorPlan, found: CursorSlice, seq: int) -> DataFrame:
    """Give the rows of a database of which nothing more is known than that it has a driver."""
    check_decimals(session.columns(), session.custom())
    warn_of_late_rows(source, found, seq)
    return narrowed(partial(reader, session, session.rows_of), source, found, seq)


def warn_of_late_rows(source: CursorPlan, found: CursorSlice, seq: int) -> None:
    """Tell that late rows may be lost, unless a lag says how late they come."""
    if source.lag is None and found.end is None:
        emit(event="notice", seq=seq, told=_LATE.format(column=found.column))


def narrowed(
    read: Callable[..., DataFrame],
    source: CursorPlan,
    found: CursorSlice,
    seq: int,
    *,
    are_times_text: bool = False,
) -> DataFrame:
    """Let Spark ask for no other rows than those from where the cursor begins, if it compares as we do.

    :param read: Gives the rows; with ``pushes`` Spark may let the database compare.
    """
    rule, data = source.rule(found.column), read(pushes=True)
    field = next((field for field in data.schema if field.name.lower() == found.column.lower()), None)
    kind = field.dataType.simpleString() if field else ""
    # Text: databases compare it by other rules than Spark. Times of SQLite are text as well, and it takes no
    # infinite number in a condition.
    is_asked = source.pre_filter_sql is None and (
        (_NUMBER.fullmatch(kind) and not (are_times_text and kind in ("float", "double")))
        or (kind in ("date", "timestamp", "timestamp_ntz") and not are_times_text)
    )
    if field is None or not is_asked:
        return read()
    start = cursor_state.start_of_slice(rule, found, kind, f"batch {seq}")
    if start is None:
        return data
    value = data[quoted(field.name)]
    limit = f"CAST('{start}' AS {kind})"
    beyond = value >= F.expr(limit) if rule.func == "max" else value <= F.expr(limit)
    return data.where(beyond if rule.missing == "exclude" else beyond | value.isNull())


def reader(session: Session, table: str, types: str | None = None, *, pushes: bool = False) -> DataFrame:
    """Give what stands behind FROM, read over one connection.

    :param types: The types that Spark is told (``customSchema``); None are the user's.
    :param pushes: Whether Spark may hand conditions down.
    """
    options = {**session.options, "dbtable": table, "pushDownPredicate": str(pushes).lower()}
    if types:
        options["customSchema"] = types
    # Texts may be of any length: Spark would fill them up to the declared one, or refuse.
    lengths = {} if session.database.kind == "postgresql" else {_ANY_LENGTH: "true"}
    with with_settings(session.spark, lengths):
        return session.spark.read.format("jdbc").options(**options).load()


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
