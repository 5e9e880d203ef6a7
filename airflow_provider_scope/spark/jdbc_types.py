"""The columns of a database's rows, and the types that the user names for some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIGITS = 38
"""Of a decimal, at the most."""


class Column(NamedTuple):
    """A column of a result, as the driver names it."""

    name: str
    kind: str
    precision: int
    scale: int
    may_be_null: bool
    is_array: bool
    is_decimal: bool


def custom(text: str | None) -> dict[str, T.DataType]:
    """Read ``customSchema``: column -> its type."""
    if not text:
        return {}
    fields: list[T.StructField] = getattr(T.StructType.fromDDL(text), "fields", [])
    return {one.name: one.dataType for one in fields}


def check_decimals(columns: Sequence[Column], given: Mapping[str, T.DataType]) -> None:
    """Refuse numbers that do not fit a decimal: Spark rounds them to what it takes, without a word.

    :param given: Column in small letters -> the type that the user names.
    :raises CursorError: It names them all.
    """
    unfit = []
    for one in columns:
        kind = given.get(one.name.lower())
        told = f"{one.kind} of {one.precision} digits, {one.scale} of them after the decimal point"
        if kind is None and one.is_decimal and not 0 < one.precision <= DIGITS:
            unfit.append(f"{one.name!r} ({told if one.precision else f'{one.kind} without a precision'})")
        elif isinstance(kind, T.DecimalType) and one.is_decimal:
            whole = kind.precision - kind.scale
            if kind.scale < one.scale or whole < one.precision - one.scale or not one.precision:
                unfit.append(f"{one.name!r} ({told}, read as {kind.simpleString()})")
    if unfit:
        raise no_type_for(unfit, "a DECIMAL(p,s) that has all its digits")


def no_type_for(unfit: Sequence[str], other: str) -> CursorError:
    """Give the error for columns that the table cannot hold.

    :param other: What a number may become, beside text.
    """
    return CursorError(
        f"The table has no type for {', '.join(unfit)}: values could change on the way.",
        kept=NO_ROW_WRITTEN,
        do="set their types with options={'customSchema': '<column> <type>, …'}: STRING for any type, or "
        f"{other}; or leave them out with `query`. The next run loads the batch with it",
    )
