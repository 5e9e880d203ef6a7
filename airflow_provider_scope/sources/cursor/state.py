"""The state of a cursor between two loads, and the value at which the next one begins."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CheckpointCorruptError, CursorError
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.cursor.values import (
    NUMBER,
    WHOLE,
    is_beyond,
    order_of,
    ordered,
    shifted,
    value_of,
)
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_provider_scope.sources.cursor.spec import Cursor
    from airflow_provider_scope.values import CursorSlice


MOST_BOUNDARY_ROWS = 100
"""Rows whose hashes are in the state itself: it is part of a commit and of a record."""

_KINDS = re.compile(NUMBER.pattern + r"|date|timestamp|timestamp_ntz|string")
_WHOLE_GROUPS = re.compile(WHOLE.pattern + r"|decimal\(\d+,0\)")
_GROUPS = re.compile(_WHOLE_GROUPS.pattern + r"|boolean|date|string")
"""Types whose values have one text each, in Spark as in a database: not those of floats and of times."""
MOST_GROUPS = 10_000
"""Groups of ``per``: all of them are in the state, which is part of a commit and of a record."""
LONGEST_GROUP = 200
"""Characters of a group's value."""
HASH_LENGTH = 32
"""Hexadecimal digits of the hash of a row."""


class Group(NamedTuple):
    """What a cursor has reached in the rows with one value of ``per``; without ``per``, in all rows."""

    key: str
    """``=`` and the value of ``per`` as text; empty for NULL, and without ``per``."""
    last: str
    """The last value of the cursor's column, as text."""
    since: str | None = None
    """The value from which on ``CursorState.boundary_rows`` has all rows that are loaded; None if none are
    compared."""


def group_of(row: str) -> str:
    """Return the key of the group that a row of ``CursorState.boundary_rows`` belongs to."""
    return row[HASH_LENGTH:]


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorState:
    """The state after a batch, which is committed with the batch's rows."""

    column: str
    func: str | None = None
    """``last_value_func``; None if no load has said it yet."""
    kind: str | None = None
    """The type of the column; None if no row was read yet."""
    last: str | None = None
    """The last value, as text; None if no row had one, or if ``groups`` have one each."""
    boundary_rows: tuple[tuple[str, str, int], ...] = ()
    """Of the rows that the next load reads again: cursor value, hash, how many. With ``per``, the key of the
    row's group follows the hash."""
    boundary_folder: str | None = None
    """The folder with those, where they are many."""
    since: str | None = None
    """As ``Group.since``."""
    dedup: str | None = None
    """What these are compared by, as ``compared_by`` says it; None if no load has said it yet."""
    columns: tuple[str, ...] = ()
    """The columns by whose values these are compared, if that is all columns."""
    source: str | None = None
    """The id of the Delta table that was read."""
    version: int | None = None
    """Its version."""
    more: bool = False
    """Whether rows of that version are left, because a batch takes only so many."""
    per: str | None = None
    """The column by whose values the rows are grouped; None if all rows are one group."""
    per_kind: str | None = None
    """The type of that column; None if no row was read yet."""
    groups: tuple[Group, ...] = ()
    """With ``per``: the groups that have a last value, in the order of their keys."""

    @property
    def reached(self) -> dict[str, Group]:
        """The groups that have a last value, by their keys; without ``per`` that is one, or none."""
        groups = self.groups if self.last is None else (Group("", self.last, self.since),)
        return {group.key: group for group in groups}

    @property
    def lasts(self) -> dict[str, str]:
        """The last value of each group, by its key."""
        return {key: group.last for key, group in self.reached.items()}

    def encode(self) -> str:
        """Write it as JSON, without fields that have no value."""
        fields = {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value is not False and value != ()
        }
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def decode(text: str | None, where: str, checkpoint: str | None = None) -> CursorState | None:
    """Read a state; None if there is none.

    :param where: What errors name as its place.
    :param checkpoint: Where the folder of its rows is now: it may have been moved. None: where it was.
    :raises CheckpointCorruptError: It is no state of a cursor.
    """
    if text is None:
        return None
    try:
        value = dict(json.loads(text))
        rows = value.get("boundary_rows", ())
        value["boundary_rows"] = tuple((str(at), str(row), int(n)) for at, row, n in rows)
        value["columns"] = tuple(map(str, value.get("columns", ())))
        if checkpoint and (folder := value.get("boundary_folder")):
            value["boundary_folder"] = f"{checkpoint}/boundary/{folder.rpartition('/')[2]}"
        value["groups"] = tuple(
            Group(str(key), str(last), None if since is None else str(since))
            for key, last, since in value.get("groups", ())
        )
        return CursorState(**value)
    except (TypeError, ValueError, KeyError) as err:
        raise CheckpointCorruptError(
            f"The state of the cursor in {where} cannot be read: {err}.",
            kept="the table and all records; nothing was written",
            do="restore the record from a copy; or run the task once with full_refresh=True",
        ) from err


def check_column(state: CursorState | None, cursor: Cursor, where: str) -> None:
    """Refuse a state of another column, or of the other ``last_value_func``: it says nothing about this one.

    :raises CursorError: The state is such a one.
    """
    if state is None:
        return
    if state.column.lower() != cursor.column.lower():
        raise _other_setting(
            f"The last value in {where} belongs to the column {state.column!r}, and cursor.column is now "
            f"{cursor.column!r}: it is not known which of its values are loaded.",
            f"cursor.column={state.column!r} (pre_filter_sql or `query` can give a renamed column that name)",
        )
    if state.func and state.func != cursor.last_value_func:
        raise _other_setting(
            f"The last value in {where} was found with last_value_func={state.func!r}, and it is now "
            f"{cursor.last_value_func!r}: it is not known which values are loaded on that side.",
            f"last_value_func={state.func!r}",
        )
    if (state.per or "").lower() != (cursor.per or "").lower():
        raise _other_setting(
            f"The last values in {where} are known with cursor.per={state.per!r}, and it is now "
            f"{cursor.per!r}: it is not known which rows of a group are loaded.",
            f"cursor.per={state.per!r}",
        )


def _other_setting(message: str, before: str) -> CursorError:
    """Make the error for a cursor that is not the one of the state.

    :param before: The setting of the state.
    """
    return CursorError(
        message,
        kept="the table and all records; nothing was written",
        do=f"go back to {before}; or run the task once with full_refresh=True",
    )


def compared_by(cursor: Cursor) -> str:
    """Say what rows at the last value are compared by, as text: ``*`` is all columns, ``[]`` is nothing."""
    if not cursor.compares:
        return "[]"
    return "*" if cursor.dedup_key is None else json.dumps(sorted(name.lower() for name in cursor.dedup_key))


def recreated(table: str, present: str | None, source: str | None) -> CursorError:
    """Return the error for a batch of another table, or of one that was dropped and created again.

    :param present: The id of the table that is there now.
    :param source: The id of the batch's table; None if it was read by its name in a catalog.
    """
    logged = source or "one that a catalog names"
    return CursorError(
        f"The table {table} is not the one of the batch: its id is {present}, and the batch is of {logged}.",
        kept=NO_ROW_WRITTEN,
        do="name the table of before in the source, or bring it back if it was dropped and recreated; or "
        "abandon the batch with `airflow scope abandon`, and run the task once with full_refresh=True; of an "
        "interval, clear its run",
    )


def unreadable(seq: int, version: int, table: str, why: str) -> CursorError:
    """Return the error for a batch of a version that can no longer be read."""
    return CursorError(
        f"Batch {seq} is of version {version} of {table}, which can no longer be read: {why}.",
        kept=NO_ROW_WRITTEN,
        do=f"abandon it: `airflow scope abandon {seq}`. The next run reads the newest version from the same "
        "state",
    )


def check_dedup(state: CursorState | None, cursor: Cursor, where: str) -> None:
    """Refuse to compare rows by other columns than those by which the state knows them.

    :raises CursorError: ``dedup_key`` has changed.
    """
    if state is None or state.dedup in (None, compared_by(cursor)) or not cursor.compares:
        return
    settings = {"*": "dedup_key=None", "[]": 'dedup_key=() or range_start="open"'}
    before = settings.get(state.dedup, f"dedup_key=({state.dedup[1:-1]},)")
    raise _other_setting(
        f"The rows at the last value in {where} are known with {before}, and cursor.dedup_key is "
        f"now {cursor.dedup_key!r}: it is not known which of them are loaded.",
        before,
    )


def check_kind(column: str, kind: str, state: CursorState | None) -> None:
    """Refuse a column that cannot be a cursor, and one whose type is not that of the state.

    :raises CursorError: The column has such a type.
    """
    if not _KINDS.fullmatch(kind):
        raise CursorError(
            f"The column {column!r} has the type {kind}, which has no order that a cursor can follow.",
            kept=NO_ROW_WRITTEN,
            do="use a column of numbers, dates, timestamps or text; pre_filter_sql can compute one",
        )
    if state and state.kind and order_of(state.kind) != order_of(kind):
        raise type_error(column, kind, state.kind)


def type_error(column: str, kind: str, before: str | None) -> CursorError:
    """Make the error for a column whose type does not hold the values that a state has of it."""
    return CursorError(
        f"The column {column!r} has the type {kind}, and its last value is of the type {before}.",
        kept=NO_ROW_WRITTEN,
        do="give the column its type back (CAST in pre_filter_sql); or run once with full_refresh=True",
    )


def values_in(state: CursorState) -> list[str]:
    """List the values of the column that a state has as text."""
    ends = {end for group in state.reached.values() for end in (group.last, group.since) if end is not None}
    return sorted(ends | {at for at, _, _ in state.boundary_rows})


def with_values(state: CursorState, texts: Mapping[str, str | None], kind: str) -> CursorState:
    """Write each value of a state as another text.

    :param kind: The type whose texts these are.
    :raises CursorError: The type does not hold one of the values.
    """
    if None in texts.values():
        raise type_error(state.column, kind, state.kind)
    now: dict[Any, Any] = {None: None, **texts}
    return replace(
        state,
        last=now[state.last],
        since=now[state.since],
        groups=tuple(Group(key, now[last], now[since]) for key, last, since in state.groups),
        boundary_rows=tuple((now[at], row, n) for at, row, n in state.boundary_rows),
    )


def remembered(
    state: CursorState, marks: Sequence[tuple[bool, str, str]], cursor: Cursor, kind: str, *, loads: bool
) -> CursorState | None:
    """Note the rows of a load that the next one reads again, in the state itself.

    :param marks: Of each row that was read whether it may have been loaded before, its value, and its hash.
    :param loads: Whether the load has rows that are new.
    :return: None if a row that may have been loaded was not, or if they are more than a state holds.
    """
    old = {(at, row): n for at, row, n in state.boundary_rows}
    for mark, n in Counter((at, row) for is_again, at, row in marks if is_again).items():
        if mark not in old or (not cursor.dedup_key and n > old[mark]):
            return None
    kept, read = [*state.boundary_rows], [(at, row, 1) for is_again, at, row in marks if not is_again]
    if not cursor.dedup_key and loads:
        read = [(at, row, 1) for _, at, row in marks]
        values = {(at, group_of(row)) for at, row, _ in read}
        kept = [(at, row, n) for at, row, n in kept if (at, group_of(row)) not in values]
    counts: Counter[tuple[str, str]] = Counter()
    reached = state.reached
    for at, row, n in (*kept, *read):
        start = reached[group_of(row)].since
        if start is None or not is_beyond(start, at, kind, cursor.last_value_func):
            counts[at, row] += n
    rows = tuple(sorted((at, row, n) for (at, row), n in counts.items()))
    return replace(state, boundary_rows=rows) if len(rows) <= MOST_BOUNDARY_ROWS else None


def check_group_kind(column: str, kind: str, state: CursorState) -> None:
    """Refuse a column that cannot tell groups, and one by whose type the groups of the state are others.

    :param column: That of ``per``.
    :raises CursorError: The column has such a type.
    """
    if not _GROUPS.fullmatch(kind):
        raise CursorError(
            f"cursor.per={column!r} has the type {kind}, whose values are not told apart as groups.",
            kept=NO_ROW_WRITTEN,
            do="use a column of text, whole numbers, dates or booleans; or CAST it, in pre_filter_sql or in "
            "the `query` of a database",
        )
    before = state.per_kind
    if before and before != kind and not (_WHOLE_GROUPS.fullmatch(before) and _WHOLE_GROUPS.fullmatch(kind)):
        raise CursorError(
            f"cursor.per={column!r} has the type {kind}, and the groups of the last load are of the type "
            f"{before}.",
            kept=NO_ROW_WRITTEN,
            do="give the column its type back (CAST in pre_filter_sql); or run once with full_refresh=True",
        )


def start_of_slice(cursor: Cursor, batch: CursorSlice, kind: str, where: str) -> str | None:
    """Return the value from which on the rows of a slice may be new; None is all of them.

    :param where: What errors name as the place of the slice.
    """
    before = None if batch.end else decode(batch.before, where)
    return earliest_start(cursor, before, kind, Bound.decode(batch.first) if batch.first else None)


def earliest_start(cursor: Cursor, state: CursorState | None, kind: str, initial: Bound | None) -> str | None:
    """Return the value from which on a row of any group may be new; None is all rows.

    :raises CursorError: As ``start_of``.
    """
    starts = [*starts_of(cursor, state, kind, initial).values()]
    if cursor.per or not starts:  # a group may come that the state does not have
        of_others = start_of(cursor, None, kind, initial)
        if of_others is None:
            return None
        starts.append(of_others)
    return (min if cursor.is_rising else max)(starts, key=lambda start: ordered(start, kind))


def starts_of(cursor: Cursor, state: CursorState | None, kind: str, initial: Bound | None) -> dict[str, str]:
    """Return the key of each group that the state has -> the first value that is read of it.

    :raises CursorError: As ``start_of``.
    """
    reached = state.reached if state else {}
    starts = {key: start_of(cursor, group, kind, initial) for key, group in reached.items()}
    return {key: start for key, start in starts.items() if start is not None}


def start_of(
    cursor: Cursor, reached: Group | CursorState | None, kind: str, initial: Bound | None
) -> str | None:
    """Return the first value that is read of one group, as text; None is all.

    :param reached: Of a group that the state does not have, None.
    :raises CursorError: A bound does not fit the column, or the type knows no lag.
    """
    if reached is not None and reached.last is not None and not cursor.lag:
        return reached.last
    first = None if initial is None else value_of("initial_value", initial, kind)
    if reached is None or reached.last is None:
        return first
    start, func = shifted(reached.last, kind, cursor), cursor.last_value_func
    since = None if cursor.dedup_key == () else reached.since
    if since is not None and is_beyond(since, start, kind, func):
        # The lag was shorter before: of rows before that nobody knows which are loaded.
        start = since
    if first is None or is_beyond(start, first, kind, func):
        return start
    return reached.last if is_beyond(first, reached.last, kind, func) else first  # it was raised since


def moved(
    cursor: Cursor, state: CursorState, newest: Mapping[str, str], kind: str, initial: Bound | None
) -> CursorState:
    """Return a state with the last values that it has after a batch, and without the boundary's rows.

    :param newest: The key of each group that the batch has rows of -> the last value of these.
    :raises CursorError: There are more groups than a state holds, or the value of one is too long.
    """
    reached = dict(state.reached)
    for key, last in newest.items():
        before = reached.get(key)
        if before is None or is_beyond(last, before.last, kind, cursor.last_value_func):
            reached[key] = Group(key, last, before.since if before else None)
    for key, group in reached.items():
        since = start_of(cursor, group, kind, initial) if cursor.compares else None
        reached[key] = group._replace(since=since)
    if cursor.per:
        check_groups(cursor.per, reached)
        return replace(state, groups=tuple(group for _, group in sorted(reached.items())))
    of_all = reached.get("")
    return replace(state, last=of_all.last, since=of_all.since) if of_all else state


def check_groups(per: str, keys: Collection[str]) -> None:
    """Refuse more groups, or longer values of them, than a state holds.

    :raises CursorError: There are such.
    """
    if len(keys) > MOST_GROUPS:
        raise CursorError(
            f"cursor.per={per!r} has more than {MOST_GROUPS:,} values; a state holds at most so many groups.",
            kept=NO_ROW_WRITTEN,
            do="divide the groups among several tasks, by `query` or pre_filter_sql; or load the change data "
            "feed of a Delta table (CdfSource); or leave per out, and set lag for rows that come late",
        )
    if long := next((key for key in keys if len(key) > LONGEST_GROUP + 1), None):
        raise CursorError(
            f"cursor.per={per!r} has the value {long[1:61]!r}…, of {len(long) - 1:,} characters; a group has "
            f"at most {LONGEST_GROUP}.",
            kept=NO_ROW_WRITTEN,
            do="use a column with shorter values; pre_filter_sql can compute one, such as their md5",
        )


def reached_text(state: CursorState) -> str | None:
    """Say up to which value the rows are loaded, in one line for people; None if none had a value.

    With groups: how many these are, and the smallest and the largest of their last values.
    """
    if not state.groups:
        return state.last
    lasts = sorted((group.last for group in state.groups), key=lambda last: ordered(last, state.kind or ""))
    ends = lasts[0] if lasts[0] == lasts[-1] else f"values from {lasts[0]} to {lasts[-1]}"
    return f"{ends} in {counted(len(lasts), 'group')} of {state.per}"
