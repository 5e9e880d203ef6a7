"""Columns as users declare them: their order is that of the files, and of the table that is made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError

Columns = Mapping[str, str] | Sequence[Any] | str
"""Name -> type; or a list of (name, type) or {"name": …, "type": …}; or ``id bigint, name string``."""

INFER = "infer"
"""In place of columns: the files tell them, and they are kept."""

_EXPECTED = (
    "a mapping of name to type, a list of [name, type] pairs, or text such as 'id bigint, name string'"
)
_COLUMN = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_IN_BRACKETS = re.compile(r"<.*>|\(.*\)", re.DOTALL)
_CONSTRAINT = re.compile(r"\s(not\s+null|comment|default|generated)\b", re.IGNORECASE)
_CLOSES = {">": "<", ")": "("}


def columns_from(argument: str, value: Any) -> Any:
    """Turn any form of declared columns into a mapping of name to type, in their order.

    :return: None for None. A template or an XComArg, known only when the task runs, is returned as it is.
    :raises InputError: It is none of the forms, or a column has no name or no type, or is declared twice.
    """
    if value is None or validation.is_deferred(value):
        return value
    if isinstance(value, Mapping):
        validation.mapping(argument, value)
        pairs = list(value.items())
    elif isinstance(value, str):
        try:
            pairs = split_columns(value)
        except ValueError as err:
            raise validation.bad(argument, value, f"{_EXPECTED} ({err})") from None
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        pairs = [_pair(argument, item) for item in value]
        if any(validation.is_deferred(name) for name, _ in pairs):
            return list(value)
    else:
        raise validation.bad(argument, value, _EXPECTED)
    return _distinct(argument, pairs)


def declared(columns: Columns | None) -> dict[str, str] | None:
    """Read the declared columns of a rendered spec; None if there are none, or if they are inferred."""
    return dict(cast("Mapping[str, str]", columns)) if columns and columns != INFER else None


def with_hints(columns: Mapping[str, str], hints: Mapping[str, str] | None) -> dict[str, str]:
    """Give columns the types of ``schema_hints``; those that no file has yet come last.

    :raises InputError: A hint and a column differ in letter case alone.
    """
    spelled = {name.lower(): name for name in columns}
    for name in hints or {}:
        if spelled.get(name.lower(), name) != name:
            raise InputError(
                f"schema_hints names {name!r}, and the files have {spelled[name.lower()]!r}.",
                kept="the table; no row was written, and the batch stays logged",
                do="write it as the files do",
            )
    return {**columns, **(hints or {})}


def change_text(before: str | None, after: str | None) -> str:
    """Tell what became of columns: all of them if there were none before.

    :param before: Columns as text, as ``split_columns`` reads it; None if none were inferred.
    """
    if not before or not after:
        return after or "no longer inferred"
    old, new = dict(split_columns(before)), dict(split_columns(after))
    changes = [f"+ {name} {kind}" for name, kind in new.items() if name not in old]
    changes += [f"{name} {old[name]} -> {kind}" for name, kind in new.items() if old.get(name, kind) != kind]
    return ", ".join([*changes, *(f"- {name}" for name in old if name not in new)])


def split_columns(text: str) -> list[tuple[str, str]]:
    """Cut ``id bigint, s struct<a: int, b: string>`` into names and types.

    A name may be followed by a colon, and is in backquotes if it is more than letters, digits and ``_``.

    :raises ValueError: The text is no list of columns; it says why.
    """
    return [_column(part) for part in _parts(text)]


def is_late(value: Any) -> bool:
    """Check whether the columns in an argument, as the user wrote it, are known only when the task runs."""
    return validation.is_deferred(value) or (
        isinstance(value, Mapping) and validation.is_deferred(value.get("columns"))
    )


def check_order(argument: str, value: Any) -> None:
    """Refuse a mapping of columns that comes from a template or an XComArg: its order may be lost.

    :param value: The argument as it is when the task runs.
    :raises InputError: The columns in it are a mapping.
    """
    columns = value.get("columns") if isinstance(value, Mapping) else getattr(value, "columns", None)
    if isinstance(columns, Mapping):
        raise validation.bad(
            f"{argument}.columns",
            dict(columns),
            "text or a list where the columns come from an XComArg or a template",
            "return text such as 'id bigint, name string', or a list of [name, type] pairs. (PostgreSQL "
            "sorts the keys of XComs and of dag_run.conf, so the order of the columns is not known)",
        )


def _pair(argument: str, item: Any) -> tuple[Any, Any]:
    if validation.is_deferred(item):
        return item, None
    if isinstance(item, Mapping):
        if {*item} == {"name", "type"}:
            return item["name"], item["type"]
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2:  # noqa: PLR2004
        return item[0], item[1]
    raise validation.bad(argument, item, "columns as [name, type] or {'name': …, 'type': …}")


def _distinct(argument: str, pairs: Sequence[tuple[Any, Any]]) -> dict[str, str]:
    columns: dict[str, str] = {}
    lower_names: set[str] = set()
    for name, kind in pairs:
        if not isinstance(name, str) or not name:
            raise validation.bad(argument, name, "names that are text")
        validation.text(f"{argument}[{name!r}]", kind)
        # Spark and Delta do not tell names apart by case.
        if name.lower() in lower_names:
            raise validation.bad(argument, name, "each column once, whatever the case")
        lower_names.add(name.lower())
        columns[name] = kind
    return columns


def _parts(text: str) -> list[str]:
    """Cut a text at its commas, but not inside of brackets and quotes."""
    masked = _QUOTED.sub(lambda match: " " * len(match[0]), text)
    if {*"`'\""} & {*masked}:
        msg = "a quote is not closed"
        raise ValueError(msg)
    parts, start, open_brackets = [], 0, []
    for place, sign in enumerate(masked):
        if sign in "<(":
            open_brackets.append(sign)
        elif sign in _CLOSES:
            if not open_brackets or open_brackets.pop() != _CLOSES[sign]:
                msg = f"a {sign!r} is not opened"
                raise ValueError(msg)
        elif sign == "," and not open_brackets:
            parts.append(text[start:place])
            start = place + 1
    if open_brackets:
        msg = f"a {open_brackets[-1]!r} is not closed"
        raise ValueError(msg)
    return [*parts, text[start:]]


def _column(part: str) -> tuple[str, str]:
    match = _COLUMN.fullmatch(part.strip())
    if not match:
        msg = f"{part.strip()!r} is not a name and a type; put names with blanks or special characters in `…`"
        raise ValueError(msg)
    quoted, plain, kind = match.groups()
    constraint = _CONSTRAINT.search(_IN_BRACKETS.sub("", _QUOTED.sub("", kind)))
    if constraint:
        msg = f"{part.strip()!r} has {constraint[1].upper()}, which cannot be declared here"
        raise ValueError(msg)
    return plain or quoted.replace("``", "`"), kind
