"""Fit the SELECT's columns to the table's, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

Column = tuple[str, str]
"""Name and Spark type, as ``simpleString`` gives it."""

_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
"""Conversions that keep every value exactly."""
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


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
    problems += [
        f"{name} {kind} is not a column of the table" for name, kind in select if name.lower() not in wanted
    ]
    fits = []
    for name, kind in table:
        found = by_name.get(name.lower())
        if found is None:
            problems.append(f"{name} {kind} is missing in the SELECT")
        elif not keeps_values(found[1], kind):
            problems.append(f"{name} is {found[1]} in the SELECT and {kind} in the table")
        else:
            fits.append(Fit(name, found[0], None if found[1] == kind else kind))
    if problems:
        raise SchemaMismatchError(
            f"The SELECT does not fit the table {location}: " + "; ".join(problems) + ".",
            kept="the table; no row of this batch was written, and the batch stays logged",
            do="change the SELECT (name each column; CAST where a conversion is meant), or the table; the "
            "next run takes the batch with the mended SQL",
        )
    return tuple(fits)


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
