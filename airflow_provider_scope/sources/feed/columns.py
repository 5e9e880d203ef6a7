"""What a feed can be read with when the columns of its table change, and what a target cannot follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.delta.schema import Array, Kind, Map, Struct, text
from airflow_provider_scope.exceptions import ChangeFeedError
from airflow_provider_scope.sources.feed.state import KEPT, START_OVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.sources.feed.state import Metadata, SourceCommit


def cut(
    table: str,
    commits: Sequence[SourceCommit],
    before: Metadata | None,
    *,
    max_commits: int | None,
    max_bytes: int | None,
    is_first: bool = False,
) -> int:
    """Return how many of some versions make a batch: at least one.

    :param commits: All that are new.
    :param before: The metadata before them; None if it is not known.
    :param is_first: Whether nothing is loaded yet.
    :raises ChangeFeedError: A version changes columns so that those before it cannot be read any more.
    """
    ends = [_schema_end(table, commits, before, is_first=is_first)]
    if max_commits is not None:
        ends.append(max_commits)
    if max_bytes is not None:
        total = 0
        for count, commit in enumerate(commits):
            total += commit.size_bytes
            if total > max_bytes:
                ends.append(max(1, count))
                break
    return min(ends)


def _schema_end(
    table: str, commits: Sequence[SourceCommit], before: Metadata | None, *, is_first: bool
) -> int:
    """Return how many versions can be read with one schema.

    Spark reads a feed with the schema of the last version of the range if columns are mapped, else with the
    newest schema of all.
    """
    first_end = len(commits)
    previous = before
    for count, commit in enumerate(commits):
        now = commit.metadata
        if now is None:
            continue
        difference = None if previous is None else _narrowed(previous.schema, now.schema)
        if difference:
            if not now.is_mapped:
                raise _not_read_across(table, commit.version, difference, is_first=is_first)
            if count:
                first_end = min(first_end, count)
        previous = now
    return first_end


def check_names(table: str, before: Metadata | None, commit: SourceCommit) -> None:
    """Refuse a version that drops a column or gives it another name: rows that are loaded still have it.

    :param before: The metadata before it; None if it is not known.
    :raises ChangeFeedError: A column is dropped or renamed.
    """
    if before is None or commit.metadata is None:
        return
    now = dict(_names(commit.metadata.schema))
    for number, old in _names(before.schema):
        new = now.get(number)
        if new is None:
            raise ChangeFeedError(
                f"Version {commit.version} of {table} drops the column {old!r}: rows that are already "
                "loaded would keep their values in it.",
                kept=KEPT,
                do=f"name the columns to load in `sql`; or {START_OVER}",
            )
        if new.lower() != old.lower():
            raise ChangeFeedError(
                f"Version {commit.version} of {table} renames the column {old!r} to {new!r}: rows that are "
                "already loaded would keep their values in the old column, and have NULL in the new one.",
                kept=KEPT,
                do=f"keep the old name, with a `sql` that names all columns; or {START_OVER}",
            )


def check_reused(table: str, before: Metadata | None, newest: Metadata) -> None:
    """Refuse a source in which a name stands for another column than it did, whatever the user selects.

    :param before: The metadata before what is loaded now; None if it is not known.
    :raises ChangeFeedError: A name stands for another column now.
    """
    if before is None:
        return
    now = {name.lower(): number for number, name in _names(newest.schema)}
    for number, name in _names(before.schema):
        if now.get(name.lower(), number) != number:
            raise ChangeFeedError(
                f"The name {name!r} now stands for another column of {table} than when rows were loaded: "
                "rows that do not change would keep the values of the old column.",
                kept=KEPT,
                do=START_OVER,
            )


def other_columns(
    table: str, commits: Sequence[SourceCommit], before: Metadata | None, newest: Metadata
) -> ChangeFeedError | None:
    """Return the error for the first column that some versions drop, rename or replace by another one."""
    try:
        for commit in commits:
            check_reused(table, before, newest)
            check_names(table, before, commit)
            before = commit.metadata or before
    except ChangeFeedError as err:
        return err
    return None


def _names(kind: Kind, path: str = "") -> Iterator[tuple[int, str]]:
    """List the number and the name of each field of a type in a table whose columns are mapped."""
    match kind:
        case Struct():
            for field in kind.fields:
                if field.number:
                    yield field.number, f"{path}{field.name}"
                yield from _names(field.kind, f"{path}{field.name}.")
        case Array():
            yield from _names(kind.element, path)
        case Map():
            yield from _names(kind.key, path)
            yield from _names(kind.value, path)


def _not_read_across(table: str, version: int, difference: str, *, is_first: bool) -> ChangeFeedError:
    advice = START_OVER
    if is_first:
        advice = f"set full_load=True, which loads the rows as they are; or start_version={version}"
    return ChangeFeedError(
        f"Version {version} of {table} {difference}: the feed cannot be read across this version, as the "
        "table has no column mapping (delta.columnMapping.mode = name).",
        kept=KEPT,
        do=advice,
    )


def _narrowed(old: Kind, new: Kind, path: str = "") -> str | None:
    """Say in which column a type lacks what another one has; None if it has all of it."""
    match old, new:
        case Struct(), Struct():
            new_fields = new.by_name()
            for field in old.fields:
                name = f"{path}.{field.name}" if path else field.name
                if field.name.lower() not in new_fields:
                    return f"drops or renames the column {name!r}"
                if difference := _narrowed(field.kind, new_fields[field.name.lower()].kind, name):
                    return difference
            return None
        case Array(), Array():
            return _narrowed(old.element, new.element, path)
        case Map(), Map():
            return _narrowed(old.key, new.key, path) or _narrowed(old.value, new.value, path)
    return None if old == new else f"changes the type of {path!r} from {text(old)} to {text(new)}"
