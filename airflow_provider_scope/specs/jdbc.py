"""Rows of a database as a source, by a column whose values only grow (or only fall)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import validation
from airflow_provider_scope.specs.cursor import Cursor, check_reading

OPTIONS = ("customSchema", "fetchsize", "queryTimeout", "sessionInitStatement")
"""Options of Spark's reader that change no row, or are checked."""


@validation.with_known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource:
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
    cursor: Cursor
    table: str | None = None
    query: str | None = None
    pre_filter_sql: str | None = None
    max_rows_per_batch: int | None = None
    num_partitions: int | None = None
    partition_column: str | None = None
    time_zone: str = "UTC"
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Validate; values that are templates are let through."""
        validation.text("conn_id", self.conn_id)
        validation.text("time_zone", self.time_zone)
        for name in ("table", "query"):
            if getattr(self, name) is not None:
                validation.text(name, getattr(self, name))
        if (self.table is None) == (self.query is None):
            raise validation.bad("table", self.table, "either table or query")
        check_reading(self)
        self._check_partitions()
        if self.options is not None and not validation.is_deferred(self.options):
            validation.set_field(self, "options", _options(self.options))

    def _check_partitions(self) -> None:
        if self.partition_column is not None:
            validation.text("partition_column", self.partition_column)
        count = validation.number("num_partitions", self.num_partitions, at_least=1)
        validation.set_field(self, "num_partitions", count)
        if self.partition_column is not None and count is None:
            raise validation.bad("num_partitions", None, "a number, as partition_column is set")
        if self.partition_column is None and self.query and isinstance(count, int) and count > 1:
            raise validation.bad("partition_column", None, "a column of the query, as num_partitions is set")

    @property
    def rows_of(self) -> str:
        """Name what is read, for people."""
        return self.table or "a query"


def _options(options: Any) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise validation.bad("options", options, "a dict of options")
    known = {name.lower(): name for name in OPTIONS}
    for name in options:
        if name.lower() not in known:
            raise InputError(
                f"options[{name!r}] is refused: it may be one of {', '.join(OPTIONS)}.",
                kept="everything; nothing was read or written",
                do="leave it out: the connection says where the database is and who reads it, and the "
                "cursor says which rows are read",
            )
    found = {known[name.lower()]: value for name, value in options.items()}
    if "fetchsize" in found:
        validation.number("fetchsize", found["fetchsize"], at_least=1)
    return found
