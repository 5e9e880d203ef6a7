"""What PostgreSQL is asked: values as they are, the rows of a cursor, and what is not committed yet."""

# ruff: noqa: S608 - names are quoted and values are literals; tables and queries are the user's own SQL

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import cursor as cursors
from airflow_provider_scope.core.bounds import Bound
from airflow_provider_scope.core.databases import OF_NUMBERS, named
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.spark import postgres_parts
from airflow_provider_scope.spark import postgres_types as types
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.jdbc_types import custom
from airflow_provider_scope.spark.postgres_types import KINDS, TEXTS, TIMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.cursor import CursorRule
    from airflow_provider_scope.core.plan import CursorPlan
    from airflow_provider_scope.core.slices import CursorSlice
    from airflow_provider_scope.spark.jdbc import Session
    from airflow_provider_scope.spark.jdbc_types import Column
    from airflow_provider_scope.spark.postgres_parts import Parts

_OTHERS = "datname = current_database() AND pid <> pg_backend_pid()"
_RUNNING = f"""
SELECT count(*) FILTER (WHERE query = '<insufficient privilege>'),
  count(xact_start) FILTER (WHERE backend_type <> 'autovacuum worker'),
  min(xact_start) FILTER (WHERE backend_type <> 'autovacuum worker')::text,
  pg_is_in_recovery()
FROM pg_stat_activity WHERE {_OTHERS}"""
_BEGAN_BEFORE = f"""
SELECT count(*) FROM pg_stat_activity
WHERE {_OTHERS} AND backend_type <> 'autovacuum worker' AND xact_start <= '{{at}}'::timestamptz"""
_LOOKS = 20
"""How often it is asked whether others' transactions have ended, a tenth of a second apart."""
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


class Statement(NamedTuple):
    """A SELECT, and the types of its columns that Spark is told (``customSchema``) or None."""

    sql: str
    types: str | None
    times: dict[str, str]
    """Column -> its type, of those that come as days or microseconds since 1970."""
    parts: Parts | None
    """How several connections read it; None is one."""

    def over(self, data: DataFrame) -> DataFrame:
        """Make dates and times of numbers."""
        extra = self.parts.divider.name if self.parts else None
        names = [(quoted(name), self.times.get(name)) for name in data.columns if name != extra]
        return data.selectExpr(
            *(f"{OF_NUMBERS[kind] % name} AS {name}" if kind else name for name, kind in names)
        )


def statement(session: Session, source: CursorPlan, found: CursorSlice, seq: int) -> Statement:
    """Give the SELECT for the rows of a batch.

    :raises CursorError: A column has a type whose values could change on the way.
    """
    columns = [types.as_decimal(one) for one in session.columns()]
    given = custom(session.options.get("customSchema"))
    types.check(columns, given)
    values = ", ".join(f"{types.value_of(one, given.get(one.name))} AS {named(one.name)}" for one in columns)
    schema = ", ".join(f"`{name}` {kind.simpleString()}" for name, kind in given.items())
    column = next((one for one in columns if one.name.lower() == found.column.lower()), None)
    if column and isinstance(given.get(column.name), T.StringType) and column.kind not in TEXTS:
        raise CursorError(
            f"The column {column.name!r} is the cursor, and customSchema reads {column.kind} as text: the "
            "database would compare other values than Spark.",
            kept=NO_ROW_WRITTEN,
            do="leave it out of customSchema; or convert it to text in `query`",
        )
    where, reads_all = "", True
    if column is not None and source.pre_filter_sql is None:
        asked = _Asked(session, source.rule(found.column), found, seq, column)
        asked.narrow(source.max_rows)
        where, reads_all = asked.where(), asked.reads_all
    elif found.end is None and source.lag is None and source.pre_filter_sql is not None:
        emit(event="notice", seq=seq, told=_UNKNOWN.format(column=found.column))
    times = {one.name: KINDS[one.kind] for one in columns if one.kind in TIMES and one.name not in given}
    parts = postgres_parts.divided(session, columns, where, reads_all=reads_all, seq=seq)
    if parts:
        values += f", {parts.divider.value} AS {named(parts.divider.name)}"
    sql = f"SELECT {values}\nFROM {session.rows_of}" + (f"\nWHERE {where}" if where else "")
    return Statement(sql, schema or None, times, parts)


@dataclass
class _Asked:
    """The rows of one column's cursor, as conditions in SQL."""

    session: Session
    rule: CursorRule
    found: CursorSlice
    seq: int
    column: Column
    conditions: list[str] = field(default_factory=list)
    reads_all: bool = True
    """Whether no condition but the one for rows that are not committed yet leaves rows out."""

    def tell(self, text: str) -> None:
        emit(event="notice", seq=self.seq, told=text.format(column=self.rule.column))

    def warn(self, text: str) -> None:
        """Tell that late rows may be lost, unless a lag says how late they come."""
        if self.found.end is None and self.rule.lag is None:
            self.tell(text)

    def where(self) -> str:
        """Give all conditions as one, or nothing."""
        if not self.conditions:
            return ""
        within = " AND ".join(self.conditions)
        name = named(self.column.name)
        others = []
        if self.rule.missing != "exclude":
            if self.column.may_be_null:
                others.append(f"{name} IS NULL")
            if self.kind in ("float", "double"):
                others.append(f"{name} IN ('NaN', 'Infinity', '-Infinity')")
        return " OR ".join([f"({within})", *others])

    @property
    def kind(self) -> str:
        if self.column.kind == "numeric":
            return f"decimal({self.column.precision},{self.column.scale})"
        return KINDS.get(self.column.kind, "string")

    @property
    def value(self) -> str:
        """The column, compared as Spark compares it."""
        name = named(self.column.name)
        if self.kind != "string":
            return name
        is_text = self.column.kind in TEXTS
        return f'{name if is_text else f"({name})::text"} COLLATE "C"'

    def narrow(self, max_rows: int | None) -> None:
        """Ask for no other rows than those that the cursor may take."""
        if self.kind == "string" and self.session.ask("SHOW server_encoding") != ["UTF8"]:
            self.warn("text is not compared in this database, whose encoding is not UTF-8; set cursor.lag")
            return
        where = f"batch {self.seq}"
        start = cursors.start_of_slice(self.rule, self.found, self.kind, where)
        self.reads_all = start is None and not self.found.end and max_rows is None
        if start is not None:
            self.conditions.append(f"{self.value} {self.op('>=')} {self.literal(start)}")
        if self.found.end:
            end = cursors.value_of("end_value", Bound.decode(self.found.end), self.kind)
            self.conditions.append(f"{self.value} {self.op('<')} {self.literal(end)}")
            return
        self.conditions += self.committed()
        if max_rows is not None:
            before = cursors.decode(self.found.before, where)
            self.conditions += self.enough(before.last if before else None, max_rows)

    def op(self, sign: str) -> str:
        """Give a comparison, turned round where the values fall."""
        return sign if self.rule.func == "max" else sign.translate(str.maketrans("<>", "><"))

    def literal(self, text: str) -> str:
        if self.kind == "string":
            escaped = text.replace("\\", "\\\\").replace("'", "''")  # backslash_quote may be off
            return f"E'{escaped}'"
        if self.kind == "timestamp":
            return f"TIMESTAMPTZ '{text.removesuffix('Z')}+00'"
        if self.kind == "timestamp_ntz":
            return f"TIMESTAMP '{text}'"
        if self.kind in ("date", "float", "double"):
            return f"{ {'date': 'DATE', 'float': 'REAL', 'double': 'FLOAT8'}[self.kind] } '{text}'"
        return text if not text.startswith("-") else f"({text})"

    # ---- what is not committed yet ---------------------------------------------------------------

    def committed(self) -> list[str]:
        """Give the condition that holds back rows behind which others may still be committed.

        It is asked for before the rows are read: what is within it then is all there.
        """
        if self.kind in ("date", "timestamp", "timestamp_ntz"):
            return self._before_oldest()
        return self._before_young()

    def _before_oldest(self) -> list[str]:
        """Rows get the time at which their transaction began, or a later one."""
        (now,) = self.session.ask("SELECT clock_timestamp()::text")
        hidden, _, oldest, standby = self._running()
        if self.rule.func == "min" or hidden or standby:
            told = _STANDBY if standby else _HIDDEN
            self.warn(_FALLING if self.rule.func == "min" else told)
            return []
        zone_name = self.session.database.zone
        # NULL counts for nothing in least().
        began = f"nullif('{oldest or ''}', '')::timestamptz"
        since = f"least('{now}'::timestamptz, {began})"
        if self.kind != "timestamp":
            zone = zone_name.replace("'", "''")
            since = f"({since} AT TIME ZONE '{zone}')::{'date' if self.kind == 'date' else 'timestamp'}"
        # A transaction that began since has larger values, and holds nothing back.
        bound, holds_back = self.session.ask(f"SELECT {since}::text, {began} <= '{now}'::timestamptz")
        kind = {"date": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}[self.kind]
        # Not below it alone: rows at the last value are read again.
        within = f"{self.value} <= {kind} '{bound}'"
        rows = f"SELECT 1 FROM {self.session.rows_of} WHERE NOT ({within})"
        if self.session.ask(f"SELECT EXISTS ({rows})") == ["t"]:
            why = "they lie in the future"
            if holds_back == "t":
                why = f"a transaction has been running since {oldest}, and may still commit rows"
            elif self.kind != "timestamp":
                why = (
                    f"this is the current time in {zone_name}; if the column holds the time of another "
                    "zone, set time_zone"
                )
            self.tell(f"rows whose {{column!r}} is after {bound} wait for a later load: {why}")
        return [within]

    def _before_young(self) -> list[str]:
        """Rows get a number that grows: who runs may have taken one below those that are there."""
        largest = "max" if self.rule.func == "max" else "min"
        finite = f" WHERE {self.value} NOT IN ('NaN', 'Infinity', '-Infinity')"
        there = f"{self.session.rows_of}{finite if self.kind in ('float', 'double') else ''}"
        last, at = self.session.ask(
            f"SELECT {largest}({self.value})::text, clock_timestamp()::text FROM {there}"
        )
        if last is None:
            return ["FALSE"]  # what comes now may come before what is not committed yet
        hidden, running, _, standby = self._running()
        upper = [f"{self.value} {self.op('<=')} {self.literal(last)}"]
        if not hidden and not standby and (not running or self._have_ended(str(at))):
            return upper
        if self.session.database.table is None:
            self.warn(_NO_XMIN)
            return []
        return upper + self._below_young()

    def _below_young(self) -> list[str]:
        smallest = "min" if self.rule.func == "max" else "max"
        within = " AND ".join(
            [*self.conditions, "age(xmin) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)"]
        )
        try:
            (young,) = self.session.ask(
                f"SELECT {smallest}({self.value})::text FROM {self.session.rows_of} WHERE {within}"
            )
        except Exception as err:
            if "xmin" not in str(err):
                raise
            self.warn(_NO_XMIN)  # a view
            return []
        if young is None:
            return []
        more = "more" if self.rule.func == "max" else "less"
        self.tell(
            f"rows whose {{column!r}} is {young} or {more} wait for a later load: a transaction is still "
            "running, and may have taken a number before theirs"
        )
        return [f"{self.value} {self.op('<')} {self.literal(young)}"]

    def _have_ended(self, at: str) -> bool:
        """Wait a moment for the transactions that ran at a time: later ones take larger values."""
        for _ in range(_LOOKS):
            if self.session.ask(_BEGAN_BEFORE.format(at=at)) == ["0"]:
                return True
            self.session.ask("SELECT pg_sleep(0.1)")
        return False

    def _running(self) -> tuple[bool, bool, str | None, bool]:
        # A transaction takes its time a moment before others see that it runs.
        self.session.ask("SELECT pg_sleep(0.1)")
        hidden, running, oldest, standby = self.session.ask(_RUNNING)
        return hidden != "0", running != "0", oldest, standby == "t"

    # ---- batches -----------------------------------------------------------------------------------

    def enough(self, last: str | None, max_rows: int) -> list[str]:
        """Give the condition that leaves out what is too much for one batch, but for one value more."""
        fresh = [*self.conditions, f"{named(self.column.name)} IS NOT NULL"]
        if last is not None:
            fresh.append(f"{self.value} {self.op('>')} {self.literal(last)}")
        if self.kind in ("float", "double"):
            fresh.append(f"{self.value} NOT IN ('NaN', 'Infinity', '-Infinity')")
        where = f" WHERE {' AND '.join(fresh)}"
        order = "" if self.rule.func == "max" else " DESC"
        values = f"SELECT {self.value} AS v FROM {self.session.rows_of}{where}"
        # A bare name would be that of the text, and numbers would be ordered as such.
        found = self.session.ask(
            f"SELECT v::text FROM ({values}) AS s ORDER BY s.v{order} LIMIT 1 OFFSET {max_rows}"
        )
        if not found or found[0] is None:
            return []
        # The connection's zone is UTC, and the text says so.
        last_taken = f"TIMESTAMPTZ '{found[0]}'" if self.kind == "timestamp" else self.literal(found[0])
        return [f"{self.value} {self.op('<=')} {last_taken}"]
