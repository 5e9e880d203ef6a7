"""The SQL for PostgreSQL: values as they are, the rows of a cursor, and rows that are not committed yet."""

# ruff: noqa: S608 - names are quoted and values are literals; tables and queries are the user's own SQL

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor import values as cursor_values
from airflow_provider_scope.sources.cursor.bounds import Bound, check_times
from airflow_provider_scope.sources.cursor.databases import MARK, OF_NUMBERS, named, postgres_literal
from airflow_provider_scope.spark.databases import jdbc, postgres_parts
from airflow_provider_scope.spark.databases.jdbc import DIGITS, no_type_for
from airflow_provider_scope.sql import quoted
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from airflow_provider_scope.sources.cursor.spec import Cursor
    from airflow_provider_scope.sources.cursor.state import CursorState
    from airflow_provider_scope.spark.databases.jdbc import Column, Session


_KINDS = {
    "int2": "smallint",
    "smallserial": "smallint",
    "int4": "int",
    "serial": "int",
    "int8": "bigint",
    "bigserial": "bigint",
    "float4": "float",
    "float8": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_SQL_TYPES = {
    "string": "text",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "float": "float4",
    "double": "float8",
}
"""Spark's type of a cursor -> PostgreSQL's; others are numeric, as with a lag a limit may exceed its type."""
_UNCHANGED = {*_KINDS, "bool", "bytea", "text", "varchar", "bpchar", "name"}
_ARRAYS = {"_int2", "_int4", "_int8", "_float4", "_float8", "_bool", "_text", "_varchar", "_bpchar"}
_TEXTS = ("text", "varchar", "bpchar")
_TIMES = ("date", "timestamp", "timestamptz")
_NEGATIVE = 1024
"""From here on, a scale in 11 bits is a negative one."""


def _value_of(column: Column, custom: T.DataType | None) -> str:
    """Write the SQL for a column's value.

    Types that Spark does not have become text; at a value that Spark would change, the database fails.

    :param custom: The type that the user names.
    """
    name, kind = named(column.name), column.kind
    if isinstance(custom, T.StringType):
        return f"{name}::text"
    if isinstance(custom, T.DecimalType):
        whole_digits = custom.precision - custom.scale
        fits = f"{name} = trunc({name}, {custom.scale}) AND abs({name}) < 1e{whole_digits}"
        return _checked(column, fits, f"numeric({custom.precision},{custom.scale})")
    if kind == "numeric":
        return _checked(column, f"{name} <> 'NaN'", f"numeric({column.precision},{column.scale})")
    if kind in _TIMES:
        year_1 = f"'0001-01-01{' 00:00:00+00' if kind == 'timestamptz' else ''}'"
        fits = f"isfinite({name}) AND {name} >= {year_1} AND {name} < '10000-01-01'"
        if kind == "date":
            return _checked(column, fits, "integer", f"{name} - DATE '1970-01-01'")
        return _checked(column, fits, "bigint", f"extract(epoch FROM {name}) * 1000000")
    if kind in _UNCHANGED or kind in _ARRAYS:
        return name
    return f"{name}::text{'[]' if column.is_array else ''}"


def _checked(column: Column, condition: str, kind: str, value: str = "") -> str:
    """Write the SQL for a value that meets a condition; at another one, the database fails and names it.

    Only so is each value checked, and read once.

    :param kind: PostgreSQL's type of the result.
    :param value: SQL of the value; empty is the column itself.
    """
    name = named(column.name)
    message = f"{MARK}column {column.name} has the value ".replace("'", "''")
    return (
        f"CASE WHEN {name} IS NULL OR ({condition}) THEN ({value or name})::{kind} "
        f"ELSE ('{message}' || {name}::text)::{kind} END"
    )


def _as_decimal(column: Column) -> Column:
    """Find the digits that a decimal needs for the values of a number.

    PostgreSQL has numbers that end before the decimal point, and others that begin after it: numeric(5,-2) is
    decimal(7,0), numeric(2,5) is decimal(5,5). The driver gives the scale without its sign, in 11 bits.
    """
    if column.kind != "numeric" or not column.precision:
        return column
    scale = column.scale - (2048 if column.scale >= _NEGATIVE else 0)
    precision = max(column.precision - min(scale, 0), scale)
    return column._replace(precision=precision, scale=max(scale, 0))


def _check(columns: Sequence[Column], custom_types: Mapping[str, T.DataType]) -> None:
    """Refuse columns that no type of the table holds as they are.

    :param custom_types: Column, in lower case -> the type that the user names.
    :raises CursorError: Names all such columns.
    """
    reasons = {column.name: _unfit(column, custom_types.get(column.name.lower())) for column in columns}
    unfit = {name: reason for name, reason in reasons.items() if reason}
    if unfit:
        raise no_type_for(
            unfit, "DECIMAL(p,s) with at most 38 digits for numeric (what would be cut is refused)"
        )


def _unfit(column: Column, custom: T.DataType | None) -> str:
    """Say why no type of the table holds a column as it is; empty if one does."""
    is_number = column.kind == "numeric"
    if custom is not None:
        fits = isinstance(custom, T.StringType) or (isinstance(custom, T.DecimalType) and is_number)
        return "" if fits else f"{column.kind}, read as {custom.simpleString()}"
    if is_number and not column.precision:
        return "numeric without a precision"
    if is_number and column.precision > DIGITS:
        return f"numeric of {column.precision} digits"
    return ""


_OTHER_SESSIONS = "datname = current_database() AND pid <> pg_backend_pid()"
_RUNNING = f"""
SELECT count(*) FILTER (WHERE query = '<insufficient privilege>'),
  count(xact_start) FILTER (WHERE backend_type <> 'autovacuum worker'),
  min(xact_start) FILTER (WHERE backend_type <> 'autovacuum worker')::text,
  pg_is_in_recovery()
FROM pg_stat_activity WHERE {_OTHER_SESSIONS}"""
_BEGAN_BEFORE = f"""
SELECT count(*) FROM pg_stat_activity
WHERE {_OTHER_SESSIONS} AND backend_type <> 'autovacuum worker' AND xact_start <= '{{at}}'::timestamptz"""
_OLDEST = "(SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"
_IS_YOUNG = f"""((xmin::text::bigint - {_OLDEST}) & 4294967295)
  < (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint) - {_OLDEST}"""
"""Whether the transaction that wrote a row is as young as the oldest one that still runs, or younger. A row
keeps the last 32 bits of its writer's number: that of an old row may seem to lie ahead, and its age() is
negative."""
_CHECKS = 20
"""How often the database is asked whether other transactions have ended, a tenth of a second apart."""
_HIDDEN = (
    "this database user cannot see the transactions of other sessions, so rows that they commit later with "
    "a smaller value of {column!r} are lost. GRANT pg_read_all_stats to the user, or set cursor.lag"
)
_FALLING = (
    "with a cursor whose times fall, it is not known which rows are committed late: rows that come later "
    "with a value above the smallest of {column!r} are lost. Set cursor.lag"
)
_STANDBY = (
    "the database is a standby, which does not show the transactions of its primary, so rows that they "
    "commit later with a smaller value of {column!r} are lost. Read the primary, or set cursor.lag"
)
_UNKNOWN = (
    "{column!r} is computed by pre_filter_sql, so rows that are committed late with a smaller value are "
    "lost. Name a column of the database (`query` can compute one), or set cursor.lag"
)
_NO_XMIN = (
    "transactions are running in the database, and for a query or a view it is not known which rows came "
    "after theirs: rows that they commit later with a smaller value of {column!r} are lost. Name a table, "
    "or set cursor.lag"
)


def rows(session: Session) -> DataFrame:
    """Select the rows of a batch, to be read over one connection or over several.

    :raises CursorError: A column has a type whose values could change on the way.
    :raises InputError: The rows cannot be divided by the column that the user names.
    """
    columns = [_as_decimal(column) for column in session.columns()]
    custom_types = session.custom_types()
    _check(columns, custom_types)
    values = [
        f"{_value_of(column, custom_types.get(column.name.lower()))} AS {named(column.name)}"
        for column in columns
    ]
    cursor = session.cursor_in(columns)
    cursor_type = custom_types.get(session.batch.column.lower())
    if cursor and isinstance(cursor_type, T.StringType) and cursor.kind not in _TEXTS:
        raise CursorError(
            f"The column {cursor.name!r} is the cursor, and customSchema reads {cursor.kind} as text: the "
            "database would compare other values than Spark.",
            kept=NO_ROW_WRITTEN,
            do="leave it out of customSchema; or convert it to text in `query`",
        )
    where, reads_all = "", True
    if session.computes_column:
        session.warn_of_late_rows(_UNKNOWN)
    elif cursor is not None:
        group = _group_key(session.cursor.per, columns, custom_types)
        if group is not None or session.cursor.per is None:  # Spark refuses a column that is not there
            where, reads_all = _CursorConditions(session, cursor, group).where()
    parts = postgres_parts.divided(session, columns, where, reads_all=reads_all)
    if parts:
        values.append(f"{parts.divider.value} AS {named(parts.divider.name)}")
    table = (
        f"(SELECT {', '.join(values)}\nFROM {session.rows_of}"
        + (f"\nWHERE {where}" if where else "")
        + "\n) AS q"
    )
    types = ", ".join(f"{quoted(name)} {kind.simpleString()}" for name, kind in custom_types.items())
    read = (
        postgres_parts.reader(session, table, types, parts) if parts else jdbc.reader(session, table, types)
    )
    return read.selectExpr(*_typed(columns, custom_types))


def _group_key(
    per: str | None, columns: Sequence[Column], custom_types: Mapping[str, T.DataType]
) -> str | None:
    """Write the SQL of the key of a row's group, as ``spark.cursor_columns`` makes it of the value it reads.

    :param per: The column whose values are groups.
    :return: None if there is no such column.
    """
    column = next((column for column in columns if column.name.lower() == (per or "").lower()), None)
    if column is None:
        return None
    custom, name = custom_types.get(column.name.lower()), named(column.name)
    # Times are numbers until Spark has read them; the driver sees to it that their text is ISO's.
    text = f"{name if column.kind in _TIMES else _value_of(column, custom)}::text"
    if column.kind == "bpchar" and custom is None:  # whose text has no blanks at its end
        text += f" || repeat(' ', octet_length({name}) - octet_length({name}::text))"
    # By code point: a collation may take other letters for the same.
    return f"""(COALESCE('=' || {text}, '') COLLATE "C")"""


def _typed(columns: Sequence[Column], custom_types: Mapping[str, T.DataType]) -> list[str]:
    """Write Spark's SQL of the columns: dates and times come as days and microseconds since 1970."""
    return [
        f"{OF_NUMBERS[_KINDS[column.kind]] % quoted(column.name)} AS {quoted(column.name)}"
        if column.kind in _TIMES and column.name.lower() not in custom_types
        else quoted(column.name)
        for column in columns
    ]


@dataclass(frozen=True)
class _CursorConditions:
    """The conditions in SQL for the rows that one column's cursor may take."""

    session: Session
    column: Column
    group: str | None
    """SQL of the key of a row's group; None without ``per``: then all rows are one, whose key is empty."""

    @property
    def cursor(self) -> Cursor:
        return self.session.cursor

    def where(self) -> tuple[str, bool]:
        """Write the condition for the rows that the cursor may take; it may be empty.

        :return: And whether it leaves no rows out but those of the newest transactions.
        """
        session, max_rows = self.session, self.session.max_rows
        if self.kind == "string" and session.ask("SHOW server_encoding") != ["UTF8"]:
            session.warn_of_late_rows(
                "text is not compared in this database, whose encoding is not UTF-8; set cursor.lag"
            )
            return "", True
        conditions: list[str] = []
        # It compares numbers whatever their type: those of a state that had another one, too.
        start = cursor_state.start_of_slice(self.cursor, session.batch, self.kind, f"batch {session.seq}")
        if start is not None:
            conditions.append(f"{self.value} {self.op('>=')} {self.literal(start)}")
        if session.batch.end:
            end = Bound.decode(session.batch.end)
            if self.kind == "string" and end.kind == "instant":
                (largest,) = session.ask(f"SELECT max({self.value}) FROM {session.rows_of}")
                check_times(self.column.name, largest)
            limit = self.literal(cursor_values.value_of("end_value", end, self.kind))
            conditions.append(f"{self.value} {self.op('<=' if end.side == 'closed' else '<')} {limit}")
            return self._or_missing(conditions), False
        before = cursor_state.decode(session.batch.before, f"batch {session.seq}")
        if self.group and before and before.groups:
            first = Bound.decode(session.batch.first) if session.batch.first else None
            starts = cursor_state.starts_of(self.cursor, before, self.kind, first)
            conditions.append(self._limited(">=", starts, of_others="TRUE"))
        reads_all = not conditions and max_rows is None
        conditions += self.committed(conditions)
        if max_rows is not None:
            conditions += self.enough(conditions, before, max_rows)
        return self._or_missing(conditions), reads_all

    def _or_missing(self, conditions: Sequence[str]) -> str:
        """Join conditions, and take the rows without a value, too, unless they are left out."""
        if not conditions:
            leaves_out = self.cursor.excludes_missing and self.is_no_number
            return f"NOT {self.is_no_number}" if leaves_out else ""
        within = " AND ".join(conditions)
        name = named(self.column.name)
        alternatives = []
        if not self.cursor.excludes_missing:
            if self.column.may_be_null:
                alternatives.append(f"{name} IS NULL")
            if self.is_no_number:
                alternatives.append(self.is_no_number)
        elif self.is_no_number:
            within += f" AND NOT {self.is_no_number}"
        return " OR ".join([f"({within})", *alternatives])

    @property
    def kind(self) -> str:
        """Spark's type of the column."""
        if self.column.kind == "numeric":
            digits = f"decimal({self.column.precision},{self.column.scale})"
            custom = self.session.custom_types().get(self.column.name.lower())
            return custom.simpleString() if custom else digits
        return _KINDS.get(self.column.kind, "string")

    @property
    def is_no_number(self) -> str:
        """SQL of whether a value has no place in the order of numbers; empty if the type has none such."""
        name, infinite = named(self.column.name), "('NaN', 'Infinity', '-Infinity')"
        if self.column.kind == "numeric":
            # Without a precision, it may be infinite from PostgreSQL 14 on; before, that is no number's text.
            return f"({name} IN ('NaN'))" if self.column.precision else f"({name}::text IN {infinite})"
        return f"({name} IN {infinite})" if self.kind in ("float", "double") else ""

    @property
    def value(self) -> str:
        """SQL of the column's value, which the database compares as Spark does."""
        name = named(self.column.name)
        if self.kind != "string":
            return name
        is_text = self.column.kind in _TEXTS
        return f'{name if is_text else f"({name})::text"} COLLATE "C"'

    def op(self, sign: str) -> str:
        """Turn the sign of a comparison round if the cursor's values fall."""
        return sign if self.cursor.is_rising else sign.translate(str.maketrans("<>", "><"))

    def literal(self, text: str) -> str:
        return postgres_literal(self.kind, text)

    def _limited(self, sign: str, values: Mapping[str, str], *, of_others: str) -> str:
        """Write the comparison of the column with the value for the row's group.

        :param values: The key of a group -> the value, as text.
        :param of_others: SQL of the result for a group that is not among them.
        """
        if self.group is None:
            return f"{self.value} {self.op(sign)} {self.literal(values[''])}"
        # Not escaped: a database of another encoding does not take that.
        texts = postgres_literal("string", json.dumps(values, ensure_ascii=False))
        limit = f"({texts}::jsonb ->> {self.group})::{_SQL_TYPES.get(self.kind, 'numeric')}"
        return f"COALESCE({self.value} {self.op(sign)} {limit}, {of_others})"

    def _furthest(self, func: str, source: str, also: str = "") -> tuple[dict[str, str], list[str | None]]:
        """Ask for the largest or the smallest value of each group.

        :param source: The SQL after FROM.
        :param also: SQL of further values to ask for.
        :return: The key of a group -> the value, as text; and the further values.
        :raises CursorError: There are more groups than a state holds.
        """
        value = f"{func}({self.value})"
        text = f"{value}::text"
        if self.group:
            # One more than a state holds shows that they are too many.
            of_groups = (
                f"SELECT {self.group} AS k, {value}::text AS v FROM {source} "
                f"GROUP BY 1 HAVING {value} IS NOT NULL LIMIT {cursor_state.MOST_GROUPS + 1}"
            )
            text, source = "json_object_agg(k, v)::text", f"({of_groups}) AS g"
        furthest, *answers = self.session.ask(f"SELECT {text}{also} FROM {source}")
        if furthest is None:
            return {}, answers
        values = json.loads(furthest) if self.group else {"": furthest}
        cursor_state.check_groups(str(self.cursor.per), values)
        return values, answers

    # ---- what is not committed yet ---------------------------------------------------------------

    def committed(self, conditions: Sequence[str]) -> list[str]:
        """Find the condition that holds back rows after which others with smaller values may be committed.

        It is computed before the rows are read: by then, all rows within it are committed.

        :param conditions: Those that hold anyway.
        """
        if self.kind in ("date", "timestamp", "timestamp_ntz"):
            return self._before_oldest()
        return self._before_young(conditions)

    def _before_oldest(self) -> list[str]:
        """Find the condition for times: a row gets the time when its transaction began, or a later one."""
        (now,) = self.session.ask("SELECT clock_timestamp()::text")
        hidden, _, oldest, standby = self._running()
        if not self.cursor.is_rising or hidden or standby:
            warning = _STANDBY if standby else _HIDDEN
            self.session.warn_of_late_rows(warning if self.cursor.is_rising else _FALLING)
            return []
        zone_name = self.session.source.time_zone
        # NULL counts for nothing in least().
        began = f"nullif('{oldest or ''}', '')::timestamptz"
        since = f"least('{now}'::timestamptz, {began})"
        if self.kind != "timestamp":
            zone = zone_name.replace("'", "''")
            since = f"({since} AT TIME ZONE '{zone}')::{'date' if self.kind == 'date' else 'timestamp'}"
        # A transaction that began since has larger values, and holds nothing back.
        bound, holds_back = self.session.ask(f"SELECT {since}::text, {began} <= '{now}'::timestamptz")
        kind = {"date": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}[self.kind]
        # Rows at the bound itself are included: rows at the last value are read again.
        within = f"{self.value} <= {kind} '{bound}'"
        later_rows = f"SELECT 1 FROM {self.session.rows_of} WHERE NOT ({within})"
        if self.session.ask(f"SELECT EXISTS ({later_rows})") == ["t"]:
            why = "they lie in the future"
            if holds_back == "t":
                why = f"a transaction has been running since {oldest}, and may still commit rows"
            elif self.kind != "timestamp":
                why = (
                    f"this is the current time in {zone_name}; if the column holds the time of another "
                    "zone, set time_zone"
                )
            self.session.notify(f"rows whose {{column!r}} is after {bound} wait for a later load: {why}")
        return [within]

    def _before_young(self, conditions: Sequence[str]) -> list[str]:
        """Find the condition for other values, such as of a sequence.

        A transaction that still runs may have taken a value below those that are committed.
        """
        largest = "max" if self.cursor.is_rising else "min"
        within = [*conditions] if self.group else []  # only the groups of which rows may be new
        if self.is_no_number:
            within.append(f"NOT {self.is_no_number}")
        source = self.session.rows_of + (f" WHERE {' AND '.join(within)}" if within else "")
        lasts, (asked_at,) = self._furthest(largest, source, ", clock_timestamp()::text")
        if not lasts:
            return ["FALSE"]  # what comes now may come before what is not committed yet
        hidden, running, _, standby = self._running()
        upper = [self._limited("<=", lasts, of_others="FALSE")]
        if not hidden and not standby and (not running or self._have_ended(str(asked_at))):
            return upper
        if self.session.source.table is None:
            self.session.warn_of_late_rows(_NO_XMIN)
            return []
        return upper + self._below_young(conditions)

    def _below_young(self, conditions: Sequence[str]) -> list[str]:
        """Find the condition for rows below all that a transaction wrote while another one still ran."""
        smallest = "min" if self.cursor.is_rising else "max"
        where = " AND ".join([*conditions, _IS_YOUNG])
        try:
            young, _ = self._furthest(smallest, f"{self.session.rows_of} WHERE {where}")
        except Exception as err:
            if "xmin" not in str(err):
                raise
            self.session.warn_of_late_rows(_NO_XMIN)  # a view
            return []
        if not young:
            return []
        more = "more" if self.cursor.is_rising else "less"
        key, value = min(young.items())
        waiting = f"whose {{column!r}} is {value} or {more}"
        if self.group:
            groups, group = counted(len(young), "group"), key[1:] if key else None
            waiting = f"of {groups} of {self.cursor.per}, such as those {waiting} in the group {group!r},"
        self.session.notify(
            f"rows {waiting} wait for a later load: a transaction is still running, and may have taken a "
            "number before theirs"
        )
        return [self._limited("<", young, of_others="TRUE")]

    def _have_ended(self, at: str) -> bool:
        """Wait up to two seconds for the transactions that ran at a time; later ones take larger values."""
        for _ in range(_CHECKS):
            if self.session.ask(_BEGAN_BEFORE.format(at=at)) == ["0"]:
                return True
            self.session.ask("SELECT pg_sleep(0.1)")
        return False

    def _running(self) -> tuple[bool, bool, str | None, bool]:
        """Ask for other transactions: if some are hidden, if one runs, since when; and if it is a standby."""
        # A transaction takes its time a moment before others see that it runs.
        self.session.ask("SELECT pg_sleep(0.1)")
        hidden, running, oldest, standby = self.session.ask(_RUNNING)
        return hidden != "0", running != "0", oldest, standby == "t"

    # ---- batches -----------------------------------------------------------------------------------

    def enough(self, conditions: Sequence[str], before: CursorState | None, max_rows: int) -> list[str]:
        """Find the condition that leaves out the rows that are too many for one batch.

        It keeps the first ``max_rows`` new rows, and those up to the value of the next one: so the load sees
        that there are more.

        :param conditions: Those that hold anyway.
        :param before: The state before the batch.
        """
        fresh = [*conditions, f"{named(self.column.name)} IS NOT NULL"]
        if before and before.reached:
            lasts = {key: group.last for key, group in before.reached.items()}
            fresh.append(self._limited(">", lasts, of_others="TRUE"))
        if self.is_no_number:
            fresh.append(f"NOT {self.is_no_number}")
        where = f" WHERE {' AND '.join(fresh)}"
        order = "" if self.cursor.is_rising else " DESC"
        values = f"SELECT {self.value} AS v FROM {self.session.rows_of}{where}"
        # A bare name would be that of the text, and numbers would be ordered as such.
        row = self.session.ask(
            f"SELECT v::text FROM ({values}) AS s ORDER BY s.v{order} LIMIT 1 OFFSET {max_rows}"
        )
        if not row or row[0] is None:
            return []
        # The connection's zone is UTC, and the text says so.
        limit = f"TIMESTAMPTZ '{row[0]}'" if self.kind == "timestamp" else self.literal(row[0])
        return [f"{self.value} {self.op('<=')} {limit}"]
