"""What a table holds after a row-level write: a plain model of ``Merge`` and ``Scd2``, on lists of rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

Row = dict[str, Any]
Pick = Callable[[Sequence[Row | None]], Row | None]
"""Takes the rows of which any may count, and says which one did; None is that no row came."""


class RefusedError(Exception):
    """Such a load is refused, and the table stays as it is."""


def same(value: Any) -> Any:
    """Return what is equal for equal values, and for no others."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0  # of the two zeros, one
    if isinstance(value, dict):
        # A field that is absent is NULL; a struct that is NULL is none with NULLs in it.
        return frozenset((name.lower(), same(part)) for name, part in value.items() if part is not None)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return frozenset((same(key), same(part)) for key, part in value)
    if isinstance(value, list):
        return tuple(same(part) for part in value)
    return value


def content(row: Row, without: Sequence[str] = ()) -> frozenset[Any]:
    """Return the values of a row; what is absent is NULL."""
    return same({name: value for name, value in row.items() if name not in without})


def key_of(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(same(row[name]) for name in columns)


def refuse_nulls(rows: list[Row], columns: Sequence[str]) -> None:
    if any(row[name] is None for row in rows for name in columns):
        raise RefusedError("a key is NULL")


# ---- merge ---------------------------------------------------------------------------------------------


def merge(stored: list[Row] | None, rows: list[Row], how: dict[str, Any], pick: Pick) -> list[Row]:
    """Return the table after a load.

    :param stored: None if all rows of the table are replaced, or there is none yet.
    :param how: The arguments of ``Merge``.
    """
    strategy, primary, merge_key = how["strategy"], how["primary_key"], how["merge_key"]
    refuse_nulls(rows, [*primary, *merge_key])
    counting = _one_for_each_key(rows, how) if primary else [[row] for row in rows]
    new = [[None if _is_flagged(row, how["hard_delete"]) else row for row in group] for group in counting]
    if stored is None:
        return _come(new, pick)
    if not (primary or merge_key):
        return stored + _come(new, pick)
    if strategy == "delete-insert":
        keys = {key_of(row, primary) for row in rows} if primary else set()
        groups = {key_of(row, merge_key) for row in rows} if merge_key else set()
        kept = [r for r in stored if key_of(r, primary) not in keys and key_of(r, merge_key) not in groups]
        return kept + _come(new, pick)
    there = {key_of(row, primary) for row in stored}
    by_key = {key_of(group[0], primary): options for group, options in zip(counting, new, strict=True)}
    others = _come([options for key, options in by_key.items() if key not in there], pick)
    if strategy == "insert-only":
        return stored + others
    after = []
    for row in stored:
        key = key_of(row, primary)
        after += _come([by_key[key]], pick) if key in by_key else [row]
    return after + others


def _one_for_each_key(rows: list[Row], how: dict[str, Any]) -> list[list[Row]]:
    """Return the rows of which one counts, for each key: several if nothing tells them apart."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key_of(row, how["primary_key"])].append(row)
    sort = how["dedup_sort"]
    if sort is None:
        if how["strategy"] != "delete-insert" and any(len(group) > 1 for group in groups.values()):
            raise RefusedError("several rows have one key")
        return [*groups.values()]
    column, direction = sort
    counting = []
    for group in groups.values():
        found = [order_of(row[column]) for row in group if row[column] is not None]
        if found:
            best = min(found) if direction == "asc" else max(found)
            counting.append([r for r in group if r[column] is not None and order_of(r[column]) == best])
        else:
            counting.append(group)
    return counting


def order_of(value: Any) -> Any:
    """Return a value as Spark orders it: texts by their bytes, NaN behind all numbers."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def _is_flagged(row: Row, column: str | None) -> bool:
    if column is None:
        return False
    value = row[column]
    return value if isinstance(value, bool) else value is not None


def _come(new: list[list[Row | None]], pick: Pick) -> list[Row]:
    picked = [options[0] if len(options) == 1 else pick(options) for options in new]
    return [row for row in picked if row is not None]


# ---- scd2 ----------------------------------------------------------------------------------------------


def scd2(stored: list[Row] | None, rows: list[Row], how: dict[str, Any], boundary: datetime) -> list[Row]:
    """Return the table after an extract; the column of the hash is left out.

    :param stored: None if all rows of the table are replaced, or there is none yet.
    :param how: The arguments of ``Scd2``; ``row_version_column_name`` is a column of the rows, or None.
    """
    begins, ends = how["validity_column_names"]
    active = how["active_record_timestamp"]
    key, version_column = how["merge_key"], how["row_version_column_name"]
    refuse_nulls(rows, [*key, *([version_column] if version_column else [])])

    def version(row: Row) -> Any:
        found = same(row[version_column]) if version_column else content(row, (begins, ends))
        return found, key_of(row, key)

    new: dict[Any, Row] = {}
    for row in rows:
        first = new.setdefault(version(row), row)
        if content(first) != content(row):
            raise RefusedError("rows with one version differ")
    added = [{**row, begins: boundary, ends: active} for row in new.values()]
    if stored is None:
        return added
    if not rows and how["on_empty_extract"] == "ignore":
        return stored
    keys = {key_of(row, key) for row in rows}
    there = {version(row) for row in stored if row[ends] == active}
    after = []
    for row in stored:
        is_due = row[ends] == active and version(row) not in new and (not key or key_of(row, key) in keys)
        after.append({**row, ends: boundary} if is_due else row)
    return after + [row for row in added if version(row) not in there]
