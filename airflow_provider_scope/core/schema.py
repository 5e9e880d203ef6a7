"""Fit the SELECT's columns to the table's, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

Column = tuple[str, str]
"""Name and Spark type, as ``simpleString`` gives it."""

_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""Conversions that keep every value exactly."""
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}

_WIDENS = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""What Delta makes of a column of a type without rewriting its files, besides decimals."""
_DECIMAL_FROM = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
"""Digits that a decimal needs before its point for Delta to make it of a column of integers."""
_MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Fit:
    """How one column of the table gets its value."""

    target: str
    source: str
    cast_to: str | None
    """The table's type if the SELECT's differs, else None."""


def fit(select: Sequence[Column], table: Sequence[Column], location: str) -> tuple[Fit, ...]:
    """Match the columns of a SELECT to those of the table, by name, whatever the case.

    :return: One entry for each column of the table, in its order.
    :raises SchemaMismatchError: Names all columns that are extra, missing, named twice, or whose
        values could be changed by the conversion.
    """
    problems: list[str] = []
    by_name: dict[str, Column] = {}
    for name, kind in select:
        if name.lower() in by_name:
            problems.append(f"{name} is selected twice")
        by_name[name.lower()] = (name, kind)
    wanted = {name.lower() for name, _ in table}
    extra = [
        f"{name} {kind} is not a column of the table" for name, kind in select if name.lower() not in wanted
    ]
    problems += extra
    could_widen = False
    fits = []
    for name, kind in table:
        found = by_name.get(name.lower())
        if found is None:
            problems.append(f"{name} {kind} is missing in the SELECT")
        elif not keeps_values(found[1], kind):
            could_widen = could_widen or wider(kind, found[1]) is not None
            problems.append(f"{name} is {found[1]} in the SELECT and {kind} in the table")
        else:
            fits.append(Fit(name, found[0], None if found[1] == kind else kind))
    if problems:
        raise SchemaMismatchError(
            f"The SELECT does not fit the table {location}: " + "; ".join(problems) + ".",
            kept=NO_ROW_WRITTEN,
            do=way_on(add=bool(extra), widen=could_widen),
        )
    return tuple(fits)


def way_on(*, add: bool = False, widen: bool = False) -> str:
    """Say what to do about columns that do not fit.

    :param add: Whether the table could take the columns that it lacks.
    :param widen: Whether it could take the types that are wider.
    """
    mode = "widen" if widen else "add"
    what = " and ".join([*(["new columns"] if add else []), *(["wider types"] if widen else [])])
    return (
        "change the SELECT (name each column; CAST where a conversion is meant), or the table"
        + (f'; or let the table take {what} with TableSpec(schema_evolution="{mode}")' if what else "")
        + "; the next run loads the batch with the correction"
    )


def keeps_values(source: str, target: str) -> bool:
    """Tell whether every value of a Spark type can be kept in another one."""
    if source in {target, "void"}:
        return True
    if target in _WIDER.get(source, ()):
        return True
    decimal = _decimal(target)
    if decimal is None:
        return False
    precision, scale = decimal
    if source in _DIGITS:
        return precision - scale >= _DIGITS[source]
    other = _decimal(source)
    return other is not None and scale >= other[1] and precision - scale >= other[0] - other[1]


def _decimal(kind: str) -> tuple[int, int] | None:
    if not kind.startswith("decimal("):
        return None
    precision, _, scale = kind[len("decimal(") : -1].partition(",")
    return int(precision), int(scale or 0)


def wider(table: str, select: str) -> str | None:
    """Give the narrowest type that Delta can widen a column to, and that holds the SELECT's values."""
    for kind in _WIDENS.get(table, ()):
        if keeps_values(select, kind):
            return kind
    return _wider_decimal(table, select)


def _wider_decimal(table: str, select: str) -> str | None:
    ours, theirs = _decimal(table), _decimal(select)
    if ours is None and theirs is None:
        return None
    sizes = []
    for decimal, whole in ((ours, _DECIMAL_FROM.get(table)), (theirs, _DIGITS.get(select))):
        if decimal is not None:
            sizes.append((decimal[0] - decimal[1], decimal[1]))
        elif whole is not None:
            sizes.append((whole, 0))
        else:
            return None
    before, after = (max(parts) for parts in zip(*sizes, strict=True))
    return f"decimal({before + after},{after})" if before + after <= _MAX_DIGITS else None
