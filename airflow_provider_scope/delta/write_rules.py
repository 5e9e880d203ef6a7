"""The writes as users write them, and the columns and SQL conditions made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeVar

from airflow_provider_scope import validation
from airflow_provider_scope.delta.commit import loosened
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.sql import literal, quoted

_T = TypeVar("_T")


def of_plan(spec: type[_T], how: Mapping[str, Any]) -> _T:
    """Make the spec again of what a plan says of a write, beside its kind and the instant of the batch."""
    fields = {name: value for name, value in how.items() if name not in ("kind", "now")}
    return validation.from_dict(spec, "write", fields)


# ---- Replace, Merge ----

Strategy = Literal["delete-insert", "upsert", "insert-only"]

RANGED = re.compile(r"tinyint|smallint|int|bigint|date|timestamp|string|decimal\(\d+,\d+\)")
"""Types of keys by whose range files of a table can be skipped. Not floats: they have NaN and two zeros."""
KEYS = re.compile(rf"{RANGED.pattern}|float|double|boolean|binary|timestamp_ntz")
"""Types whose values Spark and Delta compare alike. Not collated text: different texts may count as equal."""
SEQUENCES = re.compile(r"tinyint|smallint|int|bigint|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)")
"""Types by which rows can be ordered. Not text, which orders 10 before 9, and not floats, which have NaN."""
TOMBSTONES = "_tombstones"
"""In the table's folder: VACUUM spares it, and it goes with the table."""
TOMBSTONE_RETENTION_DAYS = 30
"""How long a delete keeps older rows of its key away, unless the user says so."""
_LONGEST = 100
"""Most characters of a text that becomes a literal in a condition."""
_PLAIN_YEAR = re.compile(r"[0-9]{4}-")


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Every run reads all files of the source and replaces the table, or a part of it.

    :param where: SQL predicate over the table's columns: the rows it holds for are replaced, and a row
        of the SELECT for which it does not hold is an error. None replaces the whole table.
    """

    where: str | None = None


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Rows replace those of the table that have the same keys; one batch is one commit.

    :param strategy: "delete-insert": stored rows with a key of the batch are deleted, and its rows inserted.
        "upsert": a stored row with the primary key is updated, else the row is inserted. "insert-only": a
        row is inserted if no stored row has its primary key.
    :param primary_key: Columns of the SELECT that identify a row. No value may be NULL.
    :param merge_key: Columns whose value stands for a group of rows, such as a day: all stored rows of the
        group are deleted. Only with "delete-insert".
    :param dedup_sort: Column and "asc" or "desc": of several rows of a batch with one primary key, the one
        that comes first in this order counts; NULL comes last. None: "delete-insert" takes any, always the
        same; the others refuse the batch.
    :param hard_delete: Column that marks a row to be deleted: true, or not NULL if it is not a boolean. Such
        a row is not stored.
    :param sequence_by: Column that orders the rows of a primary key in the source, such as the time of the
        last change: whatever the order of the loads, an older row never replaces a newer one. A number, a
        date or a timestamp, and never NULL. Of two rows with one value, ``dedup_sort`` decides which counts;
        None: if they differ, the batch is refused. A delete counts before a row with the same value.
    :param tombstone_retention_days: With ``sequence_by`` and ``hard_delete``: how long after its load a
        delete keeps older rows of its key away. None is 30.
    :raises InputError: A value is not valid.
    """

    strategy: Strategy = "delete-insert"
    primary_key: Sequence[str] = ()
    merge_key: Sequence[str] = ()
    dedup_sort: Sequence[str] | None = None
    hard_delete: str | None = None
    sequence_by: str | None = None
    tombstone_retention_days: validation.Count | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        if _check_sort(self.dedup_sort) and not self.primary_key:
            expected = "None without primary_key, which identifies rows"
            raise validation.bad("dedup_sort", self.dedup_sort, expected)
        self._check_sequence()
        if self.strategy in {"upsert", "insert-only"}:
            if not self.primary_key:
                raise validation.bad(
                    "primary_key", (), f"at least one column with strategy={self.strategy!r}"
                )
            if self.merge_key:
                raise validation.bad(
                    "merge_key",
                    self.merge_key,
                    f"none with strategy={self.strategy!r}",
                    "leave it out; or use strategy='delete-insert', which deletes by it",
                )

    def _check_sequence(self) -> None:
        sequence, days = self.sequence_by, self.tombstone_retention_days
        has_days = days is not None and not validation.is_deferred(days)
        for argument in ("sequence_by", "hard_delete") if has_days else ():
            if getattr(self, argument) is None:
                do = f"leave it out; or set {argument}: without both no delete is kept"
                raise validation.bad("tombstone_retention_days", days, f"None without {argument}", do)
        if sequence is None or validation.is_deferred(sequence):
            return
        if not self.primary_key:
            raise validation.bad("sequence_by", sequence, "None without primary_key, which identifies rows")
        if self.merge_key:
            raise validation.bad(
                "sequence_by", sequence, "None with merge_key", "leave one of them out: a group has no order"
            )
        if self.strategy == "insert-only":
            raise validation.bad(
                "sequence_by",
                sequence,
                "None with strategy='insert-only'",
                "use another strategy, or leave it out: the row that is loaded first stays",
            )

    @property
    def has_keys(self) -> bool:
        """Whether rows of the table can be replaced at all."""
        return bool(self.primary_key or self.merge_key)

    @property
    def needs_winner(self) -> bool:
        """Whether two rows with one key are an error, because nothing says which of them counts."""
        return self.strategy != "delete-insert" and self.dedup_sort is None and self.sequence_by is None


def _check_sort(sort: Any) -> bool:
    """Check a ``dedup_sort``; tell whether there is one, and it is known."""
    if sort is None or validation.is_deferred(sort):
        return False
    if len(sort) != 2:  # noqa: PLR2004
        raise validation.bad("dedup_sort", sort, "one column and 'asc' or 'desc': ('changed_at', 'desc')")
    validation.one_of("dedup_sort", sort[1], ("asc", "desc"))
    return True


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


def _instant(argument: str, value: Any) -> str:
    try:
        return instant(value)
    except (OverflowError, TypeError, ValueError) as err:
        raise validation.bad(argument, value, "a date or a timestamp in ISO form, or None") from err


_Instant = Annotated[str | date, _instant]


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Scd2:
    """Every version of a row stays in the table, with the time in which it was the active one.

    Each batch is an extract of the source: versions that are not in it are retired, those that are not
    active in the table are inserted, and others are left alone.

    :param merge_key: Columns of the SELECT: only versions with a key that is in the batch are retired. The
        key of a row, for batches of changed rows; a partition, for extracts of some. None is the whole table.
        No value may be NULL.
    :param validity_column_names: The columns for the first instant of a version, and for the first one after
        it.
    :param active_record_timestamp: What the second one is for an active version: a timestamp, or None for
        NULL. Without zone it is UTC. It stays the same for the life of a table.
    :param boundary_timestamp: The instant of the change, for all versions of a batch; None is when the
        batch is committed.
    :param row_version_column_name: The column that distinguishes versions. One of the SELECT: it is compared
        in place of the other values. Else the name of the column for the hash of all values; None is
        ``_row_hash``.
    :param on_empty_extract: What a batch without rows does: "ignore" changes nothing, "retire" retires all
        versions (without ``merge_key``).
    :param sequence_by: Column that orders the versions of a key in the source, such as the time of the last
        change: they are valid by it, and not by the time of their load. With a ``CdfSource``: "commit", the
        time of the source's commit. A number, a date or a timestamp, and never NULL.
    :param track_history_columns: With ``sequence_by``: the columns whose change makes a version; others are
        updated in place. None are all, but for the key, ``sequence_by`` and ``hard_delete``.
    :param dedup_sort: With ``sequence_by``: column and "asc" or "desc": of several rows with one key and one
        sequence, the one that comes first in this order counts; NULL comes last. None: they are refused if
        they differ.
    :param hard_delete: With ``sequence_by``: column that marks a row to be a delete of its key, which ends
        the version before it: true, or not NULL if it is not a boolean.
    :raises InputError: A value is not valid.
    """

    merge_key: Sequence[str] = ()
    validity_column_names: Sequence[str] = (VALID_FROM, VALID_TO)
    active_record_timestamp: _Instant | None = None
    boundary_timestamp: _Instant | None = None
    row_version_column_name: str | None = None
    on_empty_extract: Literal["ignore", "retire"] = "ignore"
    sequence_by: str | None = None
    track_history_columns: Sequence[str] = ()
    dedup_sort: Sequence[str] | None = None
    hard_delete: str | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        self._check_sequence()
        names = self.validity_column_names
        if not validation.is_deferred(names) and len(names) != 2:  # noqa: PLR2004
            raise validation.bad("validity_column_names", names, "two names that differ")
        self._check_names(names)
        if self.on_empty_extract == "retire" and self.merge_key:
            raise validation.bad(
                "on_empty_extract",
                "retire",
                "'ignore' with merge_key",
                "leave it out: an empty extract has no key, so it retires nothing",
            )

    def _check_sequence(self) -> None:
        """Refuse what goes with the time of a load alone, and what goes with the source's time alone."""
        _check_sort(self.dedup_sort)
        if self.sequence_by is None:
            for argument in ("track_history_columns", "dedup_sort", "hard_delete"):
                value = getattr(self, argument)
                if value and not validation.is_deferred(value):
                    raise validation.bad(argument, value, "nothing without sequence_by")
            return
        if not self.merge_key and not validation.is_deferred(self.sequence_by):
            raise validation.bad("merge_key", (), "the columns of a key with sequence_by")
        for argument in ("active_record_timestamp", "boundary_timestamp", "row_version_column_name"):
            if value := getattr(self, argument):
                do = "leave it out: versions are valid by the time of the source, and the last one ends never"
                raise validation.bad(argument, value, "None with sequence_by", do)

    def _check_names(self, validity: Any) -> None:
        """Refuse columns of the write that have the same name, whatever its letter case."""
        version = self.row_version_column_name
        if validation.is_deferred(validity) or any(map(validation.is_deferred, (*validity, version))):
            return
        first, second = (name.lower() for name in validity)
        if first == second:
            raise validation.bad("validity_column_names", validity, "two names that differ")
        if version is not None and version.lower() in (first, second):
            expected = "a name that is none of validity_column_names"
            raise validation.bad("row_version_column_name", version, expected)
        if version is None and ROW_HASH in (first, second):
            raise validation.bad(
                "validity_column_names",
                validity,
                f"names other than {ROW_HASH!r}, which is the column of the hash",
                "use other names; or name the hash's column with row_version_column_name",
            )

    @property
    def sequence(self) -> str | None:
        """The column that orders versions."""
        return COMMIT_TIME if self.sequence_by == COMMIT else self.sequence_by

    @property
    def events(self) -> Merge:
        """How one row of a batch is chosen for each key and sequence."""
        return Merge(
            strategy="upsert",
            primary_key=(*self.merge_key, self.sequence or ""),
            dedup_sort=self.dedup_sort,
            hard_delete=self.hard_delete,
            sequence_by=self.sequence,
        )

    def tracks(self, column: str) -> bool:
        """Whether another value in a column makes a version, with ``sequence_by``."""
        if self.track_history_columns:
            return column.lower() in {name.lower() for name in self.track_history_columns}
        untracked = (*self.merge_key, self.sequence or "", self.hard_delete or "")
        return column.lower() not in {name.lower() for name in untracked}

    @property
    def version(self) -> str:
        """The column whose value tells whether two versions are the same."""
        return self.row_version_column_name or ROW_HASH

    @property
    def is_active(self) -> str:
        """The condition that a version of the table is active."""
        column = f"t.{quoted(self.validity_column_names[1])}"
        if self.active_record_timestamp is None:
            return f"{column} IS NULL"
        return f"{column} = TIMESTAMP '{self.active_record_timestamp}'"

    def own_columns(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Choose the columns that the write adds to those of the rows: name -> type.

        :param columns: Those of the rows, with their types.
        :raises InputError: The rows have a column of such a name.
        """
        existing = {name.lower(): name for name in columns}
        time = existing.get((self.sequence or "").lower())
        for name in self.validity_column_names:
            if name.lower() in existing:
                raise _name_conflict(
                    existing[name.lower()], "rename it in `sql`, or set other validity_column_names"
                )
        types = dict.fromkeys(self.validity_column_names, "timestamp" if time is None else columns[time])
        if self.version.lower() not in existing:
            types[self.version] = "string"
        elif self.row_version_column_name is None:
            raise _name_conflict(
                existing[ROW_HASH],
                f"rename it in `sql`; or set row_version_column_name={ROW_HASH!r} if it is what identifies "
                "the versions of a row",
            )
        return types


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
    added = [VALID_FROM, VALID_TO, ROW_HASH]
    if {*added} <= {*lacking}:
        raise InputError(
            f"The table {table} keeps versions of rows, but the rows to write have no {', '.join(added)}.",
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
