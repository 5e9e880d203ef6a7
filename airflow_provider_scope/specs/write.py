"""How rows get into the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.delta.write_rules import COMMIT, Merge, Replace, Scd2, Strategy
from airflow_provider_scope.exceptions import InputError

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
        do = f"write {{'kind': 'merge', 'strategy': {kind!r}, …}}" if kind in get_args(Strategy) else ""
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
    return {**columns, **write.own_columns(columns)}


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
            if (name := getattr(write, argument)) not in (None, COMMIT):
                yield argument, name


def for_plan(write: Write) -> dict[str, Any]:
    """Return what a plan says of a write; what a batch replaces stands in its entry."""
    if write == "append" or isinstance(write, Replace):
        return {}
    return {"kind": write_to_dict(write)["kind"], **asdict(write)}
