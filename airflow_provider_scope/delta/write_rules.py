"""The rules of row-level writes, as users write them, and the columns and SQL conditions made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.delta.commit import loosened
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# ---- Merge ----

Strategy = Literal["delete-insert", "upsert", "insert-only"]

RANGED = re.compile(r"tinyint|smallint|int|bigint|date|timestamp|string|decimal\(\d+,\d+\)")
"""Types of keys by whose range files of a table can be skipped. Not floats: they have NaN and two zeros."""
KEYS = re.compile(rf"{RANGED.pattern}|float|double|boolean|binary|timestamp_ntz")
"""Types whose values Spark and Delta compare alike. Not collated text: different texts may count as equal."""
SEQUENCES = re.compile(r"tinyint|smallint|int|bigint|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)")
"""Types by which rows can be ordered. Not text, which orders 10 before 9, and not floats, which have NaN."""
TOMBSTONE_RETENTION_DAYS = 30
"""How long a delete keeps older rows of its key away, unless the user says so."""
_LONGEST = 100
"""Most characters of a text that becomes a literal in a condition."""
_PLAIN_YEAR = re.compile(r"[0-9]{4}-")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """What happens to rows whose key is in the table; see ``specs.Merge``."""

    strategy: Strategy
    primary_key: tuple[str, ...] = ()
    merge_key: tuple[str, ...] = ()
    dedup_sort: tuple[str, str] | None = None
    hard_delete: str | None = None
    sequence_by: str | None = None
    tombstone_retention_days: int = TOMBSTONE_RETENTION_DAYS

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> MergeRule:
        sort = value.get("dedup_sort")
        return cls(
            strategy=value["strategy"],
            primary_key=tuple(value.get("primary_key") or ()),
            merge_key=tuple(value.get("merge_key") or ()),
            dedup_sort=(sort[0], sort[1]) if sort else None,
            hard_delete=value.get("hard_delete"),
            sequence_by=value.get("sequence_by"),
            tombstone_retention_days=value.get("tombstone_retention_days") or TOMBSTONE_RETENTION_DAYS,
        )

    @property
    def has_keys(self) -> bool:
        """Whether rows of the table can be replaced at all."""
        return bool(self.primary_key or self.merge_key)

    @property
    def needs_winner(self) -> bool:
        """Whether two rows with one key are an error, because nothing says which of them counts."""
        return self.strategy != "delete-insert" and self.dedup_sort is None and self.sequence_by is None


def place(argument: str, name: str, columns: Sequence[str], table: str) -> int:
    """Find the position of a column that an argument names, whatever its letter case.

    :raises InputError: There is no such column.
    """
    for position, column in enumerate(columns):
        if column.lower() == name.lower():
            return position
    raise InputError(
        f"{argument} names {name!r}, which is not a column of the rows for {table}: {', '.join(columns)}.",
        kept=NO_ROW_WRITTEN,
        do=f"select a column of that name, or correct {argument}",
    )


def check_key(argument: str, name: str, kind: str, table: str) -> None:
    """Refuse a key of a type whose values cannot be compared exactly, and a sequence without a sure order.

    :raises InputError: The type is such a one.
    """
    if argument == "sequence_by":
        if not SEQUENCES.fullmatch(kind):
            raise InputError(
                f"sequence_by names {name!r}, which is {kind}: rows for {table} cannot be ordered by it.",
                kept=NO_ROW_WRITTEN,
                do="make a date, a timestamp, a whole number or a decimal of it in `sql`, such as "
                f"SELECT * EXCEPT ({quoted(name)}), CAST({quoted(name)} AS timestamp) AS {quoted(name)}",
            )
        return
    if not KEYS.fullmatch(kind):
        raise InputError(
            f"{argument} names {name!r}, which is {kind}: values of this type cannot be keys in {table}.",
            kept=NO_ROW_WRITTEN,
            do="use columns of numbers, text without a collation, dates, timestamps, booleans or bytes; if "
            "the key has to be this value, select it as text",
        )


def equal(pairs: Iterable[tuple[str, str]], *, with_null: bool = False) -> str:
    """Write the condition that columns of the table (``t``) are equal to those of the batch (``s``).

    :param pairs: Names of a column of the table and of the column of the batch.
    :param with_null: Whether NULL is equal to NULL: the table may have such rows.
    """
    sign = "<=>" if with_null else "="
    return " AND ".join(f"t.{quoted(column)} {sign} s.{quoted(source)}" for column, source in pairs)


def within(column: str, kind: str, low: str | None, high: str | None) -> str | None:
    """Write the condition that a column of the table is in a range, with literals, so that Delta skips files.

    :param low: The smallest value as Spark writes it as text; timestamps with their offset.
    :return: None if there is no range, or none that is sure to mean the same for Delta.
    """
    if low is None or high is None:
        return None
    least, most = as_literal(kind, loosened(kind, low, -1)), as_literal(kind, loosened(kind, high, 1))
    if least is None or most is None:
        return None
    return f"t.{quoted(column)} BETWEEN {least} AND {most}"


def one_of(
    columns: Sequence[tuple[str, str]], values: Sequence[Sequence[str]], *, of: str = ""
) -> str | None:
    """Write the condition that several columns together have one of several combinations of values.

    :param columns: Name and type of each column.
    :param values: Each combination: one value for each column.
    :param of: The prefix of each name, where it could mean a column of another table.
    :return: None if there are no values, or one that has no literal.
    """
    conditions = []
    for row in values:
        literals = [as_literal(kind, value) for (_, kind), value in zip(columns, row, strict=True)]
        if None in literals:
            return None
        pairs = zip(columns, literals, strict=True)
        conditions.append(" AND ".join(f"{of}{quoted(name)} = {text}" for (name, _), text in pairs))
    return " OR ".join(f"({condition})" for condition in conditions) or None


def as_literal(kind: str, value: str | None) -> str | None:
    """Write a value as a literal of its type; None if the literal could mean another value."""
    if value is None or not RANGED.fullmatch(kind):
        return None
    if kind == "string":
        return literal(value) if len(value) <= _LONGEST else None
    if kind in {"date", "timestamp"}:
        return f"{kind.upper()} {literal(value)}" if _PLAIN_YEAR.match(value) else None
    if kind.startswith("decimal"):
        return f"CAST({literal(value)} AS {kind})"
    return value


# ---- Scd2 ----

COMMIT, COMMIT_TIME = "commit", "_committed_at"
"""The ``sequence_by`` of a change data feed, and the column that it means: a table with a name of the feed's
own columns could have no feed."""
VALID_FROM, VALID_TO, ROW_HASH = "_valid_from", "_valid_to", "_row_hash"
FAR = "2200-01-01T00:00:00+00:00"
"""No version ends at or after this time; where one does, somebody marks the active version in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scd2Rule:
    """Which version of a row is active, and when it is retired; see ``specs.Scd2``."""

    merge_key: tuple[str, ...] = ()
    validity: tuple[str, str] = (VALID_FROM, VALID_TO)
    active_record_timestamp: str | None = None
    boundary_timestamp: str | None = None
    row_version: str | None = None
    on_empty_extract: Literal["ignore", "retire"] = "ignore"
    sequence_by: str | None = None
    is_by_commit: bool = False
    """Whether the sequence is the time of the source's commits, which come in their order."""
    track_history_columns: tuple[str, ...] = ()
    dedup_sort: tuple[str, str] | None = None
    hard_delete: str | None = None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Scd2Rule:
        first, second = value.get("validity_column_names") or (VALID_FROM, VALID_TO)
        sequence, sort = value.get("sequence_by"), value.get("dedup_sort")
        return cls(
            merge_key=tuple(value.get("merge_key") or ()),
            validity=(first, second),
            active_record_timestamp=value.get("active_record_timestamp"),
            boundary_timestamp=value.get("boundary_timestamp") or value.get("now"),
            row_version=value.get("row_version_column_name"),
            on_empty_extract=value.get("on_empty_extract") or "ignore",
            sequence_by=COMMIT_TIME if sequence == COMMIT else sequence,
            is_by_commit=sequence == COMMIT,
            track_history_columns=tuple(value.get("track_history_columns") or ()),
            dedup_sort=(sort[0], sort[1]) if sort else None,
            hard_delete=value.get("hard_delete"),
        )

    @property
    def events(self) -> MergeRule:
        """How one row of a batch is chosen for each key and sequence."""
        return MergeRule(
            strategy="upsert",
            primary_key=(*self.merge_key, self.sequence_by or ""),
            dedup_sort=self.dedup_sort,
            hard_delete=self.hard_delete,
            sequence_by=self.sequence_by,
        )

    def tracks(self, column: str) -> bool:
        """Whether another value in a column makes a version, with ``sequence_by``."""
        if self.track_history_columns:
            return column.lower() in {name.lower() for name in self.track_history_columns}
        others = (*self.merge_key, self.sequence_by or "", self.hard_delete or "")
        return column.lower() not in {name.lower() for name in others}

    @property
    def version(self) -> str:
        """The column whose value tells whether two versions are the same."""
        return self.row_version or ROW_HASH

    @property
    def is_active(self) -> str:
        """The condition that a version of the table is active."""
        column = f"t.{quoted(self.validity[1])}"
        if self.active_record_timestamp is None:
            return f"{column} IS NULL"
        return f"{column} = TIMESTAMP '{self.active_record_timestamp}'"

    def own_columns(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Choose the columns that the write adds to those of the rows: name -> type.

        :param columns: Those of the rows, with their types.
        :raises InputError: The rows have a column of such a name.
        """
        existing = {name.lower(): name for name in columns}
        time = existing.get((self.sequence_by or "").lower())
        for name in self.validity:
            if name.lower() in existing:
                raise _name_conflict(
                    existing[name.lower()], "rename it in `sql`, or set other validity_column_names"
                )
        own = dict.fromkeys(self.validity, "timestamp" if time is None else columns[time])
        if self.version.lower() not in existing:
            own[self.version] = "string"
        elif self.row_version is None:
            raise _name_conflict(
                existing[ROW_HASH],
                f"rename it in `sql`; or set row_version_column_name={ROW_HASH!r} if it is what identifies "
                "the versions of a row",
            )
        return own


def _name_conflict(name: str, do: str) -> InputError:
    return InputError(
        f"The SELECT has a column {name!r}, which Scd2 writes itself.",
        kept="everything; nothing was written",
        do=do,
    )


def refuse_without_versions(lacking: Iterable[str], table: str) -> None:
    """Refuse rows of another kind of write for a table of versions: they would have no time of validity.

    :param lacking: Columns of the table that the rows do not have.
    :raises InputError: The rows lack all columns that ``Scd2`` adds. A table in which these have other names
        is not recognized.
    """
    own = [VALID_FROM, VALID_TO, ROW_HASH]
    if {*own} <= {*lacking}:
        raise InputError(
            f"The table {table} keeps versions of rows, but the rows to write have no {', '.join(own)}.",
            kept=NO_ROW_WRITTEN,
            do="use write=Scd2(…), as when the table was written; or write to another table",
        )


def without_versions(table: str, missing: Iterable[str]) -> InputError:
    """Make the error for a table whose rows lack the columns of versions, so that none could be retired."""
    return InputError(
        f"The table {table} has rows, but lacks the columns for their versions: {', '.join(missing)}.",
        kept=NO_ROW_WRITTEN,
        do="run once with full_refresh=True, which starts the history with the rows that it loads; or "
        "write to another table",
    )


def instant(value: str | date) -> str:
    """Write an instant as text with its offset; a time without zone is in UTC, a date is its first instant.

    :raises TypeError: The value is of another type.
    :raises ValueError: The text is neither a date nor a time.
    """
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, date):
        raise TypeError(type(moment).__name__)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()
