"""Rows of a table or a database as a source, by a column whose values only grow (or only fall)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.spec import SourceSpec, is_name
from airflow_provider_scope.validation import Amount, Count

LastValue = Literal["max", "min"]
Missing = Literal["raise", "include", "exclude"]
RangeEnd = Literal["open", "closed"]


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Which rows are new: those beyond the last value of a column.

    :param column: The column, or the path of a field in a struct: ``"meta.changed_at"``. Integers, decimals,
        doubles, dates, timestamps with and without zone, and text (compared by code point).
    :param per: A column of text, whole numbers, dates or booleans, or such a path. The rows with one of its
        values are a group, and each group has a last value of its own; rows with NULL are a group, too. At
        most 10,000 groups. None is one last value for all rows.
    :param initial_value: Rows from this value on are loaded; None is all. A number, a date, a datetime (with
        time zone for a column of instants, without for ``timestamp_ntz``), or text of one.
    :param end_value: Rows before this value are loaded, not those at it. The state is then neither read nor
        changed, and what was loaded is not compared. Needs ``initial_value``.
    :param range_start: ``"closed"``: rows at the value at which a load begins are read, which is the last
        value or ``initial_value``. ``"open"``: only those beyond it; nothing is compared then, and rows at
        the last value that come later are not loaded.
    :param range_end: ``"closed"``: rows at ``end_value`` are loaded, too. Needs ``end_value``.
    :param last_value_func: ``"max"``: rows above the largest value are new. ``"min"``: those below the
        smallest.
    :param lag: For rows that come late: each load looks again at the rows up to this far before the last
        value, and takes those that it has not loaded. Seconds for timestamps, days for dates, units for
        numbers.
    :param on_cursor_value_missing: Rows without a value (NULL, NaN, infinite): ``"raise"`` fails the load,
        ``"exclude"`` leaves them out, ``"include"`` takes them in every load, with its last batch.
    :param dedup_key: Rows at the last value are read again, and those that were loaded are left out. None
        compares all columns: a row that changed is loaded. Names of columns compare these alone, for rows
        whose other columns differ each time they are read. ``()`` compares nothing: such rows are loaded
        again.
    :raises InputError: A value is not valid.
    """

    column: str
    per: str | None = None
    initial_value: Any = None
    end_value: Any = None
    range_start: RangeEnd = "closed"
    range_end: RangeEnd = "open"
    last_value_func: LastValue = "max"
    lag: Amount | None = None
    on_cursor_value_missing: Missing = "raise"
    dedup_key: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        first, end = self.bounds
        if self.end_value is not None and self.initial_value is None:
            raise validation.bad(
                "end_value", self.end_value, "initial_value to be set as well", "give both ends of the range"
            )
        if self.range_end == "closed" and self.end_value is None:
            raise validation.bad("range_end", "closed", "end_value to be set as well", "leave range_end out")
        for name, value in (("lag", self.lag), ("dedup_key", self.dedup_key)):
            if self.range_start == "open" and value:
                raise validation.bad(
                    name, value, 'None with range_start="open"', "leave it out: no loaded row is read again"
                )
        if self.per is not None and self.end_value is not None:
            raise validation.bad(
                "per", self.per, "None with end_value", "leave it out: a range has no last values"
            )
        if isinstance(self.per, str) and self.per.lower() == str(self.column).lower():
            raise validation.bad("per", self.per, "another column than the cursor's")
        if first and end and first.kind == end.kind and first.beyond(end, self.last_value_func):
            raise validation.bad(
                "end_value", self.end_value, f"a value after initial_value={self.initial_value!r}"
            )

    @property
    def bounds(self) -> tuple[Bound | None, Bound | None]:
        """The initial value and the end value; None for one that is not set, or still a template."""
        first, end = bound_of("initial_value", self.initial_value), bound_of("end_value", self.end_value)
        return (
            first._replace(side="open") if first and self.range_start == "open" else first,
            end._replace(side="closed") if end and self.range_end == "closed" else end,
        )

    @property
    def compares(self) -> bool:
        """Whether rows at the last value are read again, and compared with those that were loaded."""
        return self.dedup_key != () and self.range_start == "closed"

    @property
    def is_rising(self) -> bool:
        """Whether larger values are new, and not smaller ones."""
        return self.last_value_func == "max"

    @property
    def excludes_missing(self) -> bool:
        """Whether rows without a value are left out."""
        return self.on_cursor_value_missing == "exclude"


def bound_of(argument: str, value: Any) -> Bound | None:
    """Return a value that a user wrote as a bound of the rows; None for none, or for a template.

    :raises InputError: It is of a type that no cursor has.
    """
    if value is None or validation.is_deferred(value):
        return None
    if isinstance(value, datetime):
        try:
            # By its text: pandas.NaT is a datetime, and one with a zone may have no offset.
            moment = datetime.fromisoformat(value.isoformat())
            moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        except (OverflowError, ValueError) as err:
            raise validation.bad(argument, value, "a time of the years 1 to 9999 in UTC") from err
        return Bound("timestamp" if moment.tzinfo else "timestamp_ntz", value.isoformat())
    if isinstance(value, date):
        return Bound("date", value.isoformat())
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise validation.bad(argument, value, "a number, a date, a datetime, or text")
    if isinstance(value, str):
        return Bound("text", value)
    if not Decimal(value).is_finite():
        raise validation.bad(argument, value, "a number that is neither infinite nor NaN")
    return Bound("number", str(value))


class _ByCursor(SourceSpec):
    """What the sources with a cursor share."""

    __slots__ = ()
    cursor: Cursor

    @property
    def begins_ms(self) -> int | None:
        first, end = self.cursor.bounds
        oldest = first if self.cursor.is_rising else end
        return oldest.milliseconds() if oldest else None

    @property
    def begins_by(self) -> str:
        return "cursor.initial_value" if self.cursor.is_rising else ""


def _cursor(argument: str, value: Any) -> Cursor:
    return validation.from_dict(Cursor, argument, value)


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(_ByCursor):
    """A Delta table: its rows by a cursor column.

    :param table: The table's folder (absolute path or URI), or its name in the catalog of Spark.
    :param cursor: Which rows are new.
    :param pre_filter_sql: A SELECT over ``@data``, the table's rows, before the cursor looks at them: it may
        compute the cursor's column, or leave rows out.
    :param max_rows_per_batch: About how many rows one batch has at the most; rows with one value of the
        cursor stay together. None is all that are new.
    :raises InputError: A value is not valid.
    """

    table: str
    cursor: Annotated[Cursor, _cursor]
    pre_filter_sql: str | None = None
    max_rows_per_batch: Count | None = None

    @property
    def rows_of(self) -> str:
        """Name what is read, for people."""
        return self.table

    @property
    def is_named(self) -> bool:
        """Whether ``table`` is a name in a catalog, and not a folder."""
        return is_name(self.table)

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.table_folder,) if self.table_folder else ()

    @property
    def table_folder(self) -> str | None:
        return None if validation.is_deferred(self.table) or self.is_named else self.table

    def at(self, root: Callable[[str], str], table: Callable[[str], str]) -> Self:  # noqa: ARG002 - of others
        return self if self.is_named else replace(self, table=table(self.table))


# ---- databases ----

OPTIONS = ("customSchema", "fetchsize", "queryTimeout", "sessionInitStatement")
"""Options of Spark's reader that change no row, or are checked."""


def _options(argument: str, options: Any) -> dict[str, Any]:
    validation.mapping(argument, options)
    spellings = {name.lower(): name for name in OPTIONS}
    for name in options:
        if name.lower() not in spellings:
            raise InputError(
                f"options[{name!r}] is refused: it may be one of {', '.join(OPTIONS)}.",
                kept="everything; nothing was read or written",
                do="leave it out: the connection says where the database is and who reads it, and the "
                "cursor says which rows are read",
            )
    canonical = {spellings[name.lower()]: value for name, value in options.items()}
    if "fetchsize" in canonical:
        validation.number("fetchsize", canonical["fetchsize"], at_least=1)
    return canonical


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource(_ByCursor):
    """A table of a database, or the rows of a query in it, by a cursor column.

    :param conn_id: The Airflow connection: of type ``postgres``, ``mysql``, ``sqlite``, or ``jdbc`` with the
        URL as its host.
    :param table: The table, as SQL of the database names it: ``"sales.orders"``.
    :param query: A SELECT in the database's SQL, instead of ``table``.
    :param cursor: Which rows are new. The database is asked for these alone.
    :param pre_filter_sql: A SELECT over ``@data``, in Spark's SQL, before the cursor looks at the rows. The
        database is then asked for all rows each time: ``query`` does the same in the database.
    :param max_rows_per_batch: About how many rows one batch has at the most; rows with one value of the
        cursor stay together. None is all that are new.
    :param num_partitions: The number of parts in which PostgreSQL is read, in parallel and in one snapshot,
        by as many connections as Spark has cores for. None is one connection; but a table of more than 128
        MiB of which all is new is read in up to four parts.
    :param partition_column: A column of integers, numbers, dates or timestamps, whose values are divided into
        ranges. The cursor's column may be it. None divides a table by where its rows lie on the disk. Needs
        ``num_partitions``.
    :param time_zone: The zone in which the database's clients write dates and times without zone. Only the
        bound for transactions that still run depends on it.
    :param options: Options of Spark's reader: ``customSchema``, ``fetchsize`` (rows per round trip, 10,000),
        ``queryTimeout`` (seconds), ``sessionInitStatement``.
    :raises InputError: A value is not valid.
    """

    conn_id: str
    cursor: Annotated[Cursor, _cursor]
    table: str | None = None
    query: str | None = None
    pre_filter_sql: str | None = None
    max_rows_per_batch: Count | None = None
    num_partitions: Count | None = None
    partition_column: str | None = None
    time_zone: str = "UTC"
    options: Annotated[Mapping[str, Any], _options] | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        if (self.table is None) == (self.query is None):
            raise validation.bad("table", self.table, "either table or query")
        count = self.num_partitions
        if self.partition_column is not None and count is None:
            raise validation.bad("num_partitions", None, "a number, as partition_column is set")
        if self.partition_column is None and self.query and isinstance(count, int) and count > 1:
            raise validation.bad("partition_column", None, "a column of the query, as num_partitions is set")

    @property
    def rows_of(self) -> str:
        """Name what is read, for people."""
        return self.table or "a query"

    @property
    def database(self) -> str:
        return self.conn_id

    @property
    def connections(self) -> int:
        return self.num_partitions or 1
