"""How rows get into the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Annotated, Any, Literal, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.exceptions import InputError

STRATEGIES = ("delete-insert", "upsert", "insert-only")


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

    strategy: Literal["delete-insert", "upsert", "insert-only"] = "delete-insert"
    primary_key: Sequence[str] = ()
    merge_key: Sequence[str] = ()
    dedup_sort: Sequence[str] | None = None
    hard_delete: str | None = None
    sequence_by: str | None = None
    tombstone_retention_days: validation.Count | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        self._check_sort()
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

    def _check_sort(self) -> None:
        sort = self.dedup_sort
        if _check_sort(sort) and not self.primary_key:
            raise validation.bad("dedup_sort", sort, "None without primary_key, which identifies rows")

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


def _check_sort(sort: Any) -> bool:
    """Check a ``dedup_sort``; tell whether there is one, and it is known."""
    if sort is None or validation.is_deferred(sort):
        return False
    if len(sort) != 2:  # noqa: PLR2004
        raise validation.bad("dedup_sort", sort, "one column and 'asc' or 'desc': ('changed_at', 'desc')")
    validation.one_of("dedup_sort", sort[1], ("asc", "desc"))
    return True


def _instant(argument: str, value: Any) -> str:
    try:
        return write_rules.instant(value)
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
    validity_column_names: Sequence[str] = (write_rules.VALID_FROM, write_rules.VALID_TO)
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
        if version is None and write_rules.ROW_HASH in (first, second):
            raise validation.bad(
                "validity_column_names",
                validity,
                f"names other than {write_rules.ROW_HASH!r}, which is the column of the hash",
                "use other names; or name the hash's column with row_version_column_name",
            )


WriteSpec = Replace | Merge | Scd2
Write = Literal["append"] | WriteSpec
_KINDS: dict[str, type[WriteSpec]] = {cls.__name__.lower(): cls for cls in get_args(WriteSpec)}
"""What ``kind`` says in a dict."""


def write_from(value: Any) -> Write:
    """Make the write out of what the user wrote: a word, a spec, or its dict with ``kind``.

    :raises InputError: It is none of these.
    """
    if value == "append":
        return "append"
    if value == "replace":
        return Replace()
    if isinstance(value, WriteSpec):
        return value
    if isinstance(value, Mapping):
        arguments = dict(value)
        kind = arguments.pop("kind", None)
        if isinstance(kind, str) and kind in _KINDS:
            return validation.from_dict(_KINDS[kind], "write", arguments)
        do = f"write {{'kind': 'merge', 'strategy': {kind!r}, …}}" if kind in STRATEGIES else ""
        raise validation.bad("kind", kind, f"one of {', '.join(map(repr, _KINDS))}", do)
    raise validation.bad("write", value, "'append', 'replace', Replace(where=…), Merge(…) or Scd2(…)")


def warning_of(write: Write) -> str:
    """Say what of a write is probably not meant; empty if nothing is."""
    if isinstance(write, Merge) and not (write.primary_key or write.merge_key):
        return "Merge has neither primary_key nor merge_key: rows are added, as with append"
    return ""


def write_to_dict(write: WriteSpec) -> dict[str, Any]:
    """Make the dict of which ``write_from`` makes the write."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(write, cls))
    return {"kind": kind, **validation.to_dict(write)}


def with_own_columns(columns: dict[str, str] | None, write: Write) -> dict[str, str] | None:
    """Return the declared columns of a table with those that a write adds.

    :raises InputError: A declared column has the name of one of them.
    """
    if not columns or not isinstance(write, Scd2) or validation.is_deferred(write.validity_column_names):
        return columns
    return {**columns, **write_rules.Scd2Rule.of(asdict(write)).own_columns(columns)}


def check_columns(write: Write, columns: Iterable[str]) -> None:
    """Refuse a write that needs a column which the rows do not have.

    :param columns: All columns of the rows.
    :raises InputError: With the argument, the name, and the columns that there are.
    """
    names = [*columns]
    existing = {name.lower() for name in names}
    for argument, name in _named(write):
        if not validation.is_deferred(name) and name.lower() not in existing:
            raise InputError(
                f"{argument} names {name!r}, which is not a column of the rows: {', '.join(names)}.",
                kept="everything; nothing was read or written",
                do=f"correct {argument}, or declare and select such a column",
            )


def _named(write: Write) -> Iterator[tuple[str, str]]:
    """Return each column that a write needs, with the argument that names it."""
    for argument in ("primary_key", "merge_key", "track_history_columns"):
        names = getattr(write, argument, ())
        for name in () if validation.is_deferred(names) else names:
            yield argument, name
    if isinstance(write, Merge | Scd2):
        if write.dedup_sort is not None and not validation.is_deferred(write.dedup_sort):
            yield "dedup_sort", write.dedup_sort[0]
        for argument in ("hard_delete", "sequence_by"):
            if (name := getattr(write, argument)) not in (None, write_rules.COMMIT):
                yield argument, name


def for_plan(write: Write) -> dict[str, Any]:
    """Return what a plan says of a write; what a batch replaces stands in its entry."""
    if write == "append" or isinstance(write, Replace):
        return {}
    return {"kind": write_to_dict(write)["kind"], **asdict(write)}
