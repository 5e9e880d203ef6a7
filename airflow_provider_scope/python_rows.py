"""Python rows as a DataFrame, by a schema: each value arrives as it is, or is refused.

PySpark takes a naive time for one of the process's zone, drops keys that it does not know, reads a ``Row`` by
position, and makes text of whatever stands in a column of strings.
"""

from __future__ import annotations

import functools
import math
import reprlib
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import index
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.session import short_cause
from airflow_provider_scope.spark.structs import is_nested, map_leaves, type_text, without_length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = "everything; nothing was written"
_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_SCHEMA = "give schema, as Spark's DDL: schema='id bigint, name string'"
_ROWS = (
    "give dictionaries, Rows, dataclasses, tuples or lists, one for each row; or a DataFrame of Spark "
    "(spark.createDataFrame makes one of pandas or Arrow)"
)


class _UnfitError(Exception):
    """A value that a type does not hold.

    :param reason: What is wrong with it, after its place.
    :param do: What to do about it.
    :param path: Its place in the row.
    """

    def __init__(self, reason: str, do: str = "", path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.do = do
        self.path = path


def to_dataframe(spark: SparkSession, data: Iterable[Any], schema: str | T.StructType | None) -> DataFrame:
    """Make a DataFrame of rows.

    :param schema: The columns, as Spark's DDL; None is what PySpark finds in the rows.
    :raises InputError: A row or a value does not fit, or there are no columns.
    """
    if isinstance(data, (str, bytes, Mapping)) or hasattr(data, "columns") or not isinstance(data, Iterable):
        raise InputError(f"data is a {type(data).__name__}, and not a list of rows.", kept=KEPT, do=_ROWS)
    rows = list(data)
    columns = _columns(spark, rows, schema)
    # No DataFrame of rows has char or varchar.
    stored = cast("T.StructType", map_leaves(columns, without_length, keeps_not_null=True))
    return spark.createDataFrame(converted(rows, columns), stored, verifySchema=False)


def converted(rows: Iterable[Any], columns: T.StructType) -> list[tuple[Any, ...]]:
    """Convert rows to tuples whose values PySpark does not change.

    :raises InputError: A row or a value does not fit; the message has its place.
    """
    _check_types(columns)
    tuples = []
    for number, row in enumerate(rows):
        try:
            tuples.append(_struct(columns, row))
        except _UnfitError as err:
            place = f"data[{number}]{err.path}"
            raise InputError(
                f"{place} {err.reason}.",
                kept=KEPT,
                do=err.do or (_ROWS if not err.path else "correct the value"),
            ) from None
    return tuples


def _columns(spark: SparkSession, rows: list[Any], schema: str | T.StructType | None) -> T.StructType:
    if not rows and schema is None:
        raise InputError("There are no rows, and no schema.", kept=KEPT, do=_SCHEMA)
    try:
        given = spark.createDataFrame(rows).schema if schema is None else schema
        columns = T.StructType.fromDDL(given) if isinstance(given, str) else given
    except (
        PySparkException,
        TypeError,
        ValueError,
        AttributeError,
        AssertionError,
        OverflowError,
        RecursionError,
    ) as err:
        raise InputError(
            f"The columns of data are not known: {short_cause(err)}", kept=KEPT, do=_SCHEMA
        ) from err
    if isinstance(columns, T.StructType) and columns.fields:
        return columns
    subject = "The rows of data do" if schema is None else f"schema={schema!r} does"
    raise InputError(f"{subject} not name columns.", kept=KEPT, do=_SCHEMA)


def _check_types(kind: T.DataType) -> None:
    """Refuse a type whose values rows of Python do not hold, or Delta does not."""
    if isinstance(kind, T.StructType):
        for field in kind:
            _check_types(field.dataType)
    elif isinstance(kind, T.ArrayType):
        _check_types(kind.elementType)
    elif isinstance(kind, T.MapType):
        if is_nested(kind.keyType):
            raise InputError(
                f"Rows cannot have maps whose keys are of the type {kind.keyType.simpleString()}.",
                kept=KEPT,
                do="declare another type of keys; or give a DataFrame",
            )
        _check_types(kind.keyType)
        _check_types(kind.valueType)
    elif type(kind) not in _CONVERTERS:
        raise InputError(
            f"Rows cannot have the type {kind.simpleString()}.",
            kept=KEPT,
            do="declare another type in schema, such as string; or give a DataFrame",
        )


def _part(place: Callable[[Any], str], part: Any, kind: T.DataType, value: Any, *, is_nullable: bool) -> Any:
    """Convert a part of a value, and name the part in errors."""
    if value is None and is_nullable:
        return None
    if value is None:
        raise _UnfitError("is None, and NULL is not allowed there", path=place(part))
    try:
        return _CONVERTERS[type(kind)](kind, value)
    except _UnfitError as err:
        err.path = place(part) + err.path
        raise


# ---- what holds other values ----------------------------------------------------------------------------


def _struct(kind: T.StructType, value: Any) -> tuple[Any, ...]:
    names, named = {*kind.names}, _named(value)
    if named is None:
        if not isinstance(value, (tuple, list)):
            raise _unfit(value, kind)
        if len(value) != len(kind):
            raise _UnfitError(f"has {len(value)} values for the columns {', '.join(kind.names)}")
        named = dict(zip(kind.names, value, strict=True))
    elif unknown := [name for name in named if name not in names]:
        raise _UnfitError(
            f"has the key {unknown[0]!r}, which is not a column: {', '.join(kind.names)}",
            "name it in schema, or leave it out of the rows",
        )
    return tuple(
        _part(".{}".format, field.name, field.dataType, named.get(field.name), is_nullable=field.nullable)
        for field in kind
    )


def _named(value: Any) -> Mapping[Any, Any] | None:
    """Return values with their names; None for those that have none."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    # What a Row and a namedtuple call their names.
    names = getattr(value, "__fields__", None) or getattr(value, "_fields", None)
    if not isinstance(value, tuple) or names is None:
        return None
    named = dict(zip(names, value, strict=False))
    if not len(named) == len(names) == len(value):
        raise _UnfitError(f"has the names {', '.join(names)} for {len(value)} values")
    return named


def _array(kind: T.ArrayType, value: Any) -> list[Any]:
    value = value.tolist() if isinstance(value, array) else _plain(value)
    if not isinstance(value, (list, tuple)):
        raise _unfit(value, kind)
    return [
        _part("[{}]".format, number, kind.elementType, element, is_nullable=kind.containsNull)
        for number, element in enumerate(value)
    ]


def _map(kind: T.MapType, value: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _unfit(value, kind)
    converted = {}
    for key, item in value.items():
        new = _part(lambda key: f", key {_text(key)}", key, kind.keyType, key, is_nullable=False)
        # Python tells NaN from NaN; Spark does not.
        new = math.nan if isinstance(new, float) and math.isnan(new) else new
        if new in converted:
            raise _UnfitError(f"has two keys that are {_text(new)} as {kind.keyType.simpleString()}")
        converted[new] = _part(
            lambda key: f"[{_text(key)}]", key, kind.valueType, item, is_nullable=kind.valueContainsNull
        )
    return converted


# ---- single values ---------------------------------------------------------------------------------------


def _integer(kind: T.DataType, value: Any) -> int:
    value = _plain(value)
    limit = 1 << _BITS[type(kind)] - 1
    if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
        raise _unfit(value, kind)
    return index(value)


def _floating(kind: T.DataType, value: Any) -> float:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unfit(value, kind)
    try:
        number = float(value)
        stored = struct.unpack("f", struct.pack("f", number))[0] if isinstance(kind, T.FloatType) else number
    except OverflowError:
        raise _unfit(value, kind) from None
    if stored != value and not math.isnan(number):
        raise _unfit(value, kind, f"it would become {stored!r}")
    return number


def _decimal(kind: T.DecimalType, value: Any) -> Decimal:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _unfit(value, kind)
    number = Decimal(value)
    try:
        if number.is_finite():
            return number.quantize(Decimal((0, (1,), -kind.scale)), context=_exact(kind.precision))
    except (Inexact, InvalidOperation):
        pass
    raise _unfit(value, kind)


@functools.cache
def _exact(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


def _boolean(kind: T.DataType, value: Any) -> bool:
    value = _plain(value)
    if isinstance(value, bool):
        return value
    raise _unfit(value, kind)


def _string(kind: T.DataType, value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(value, kind)
    text = str.__str__(value)  # an enum of texts says its own name otherwise
    if isinstance(kind, (T.CharType, T.VarcharType)) and len(text) > kind.length:
        raise _unfit(value, kind, f"it has {len(text)} characters")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _unfit(value, kind, "it holds half of a surrogate pair") from None
    return text


def _binary(kind: T.DataType, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _unfit(value, kind)


def _date(kind: T.DataType, value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    raise _unfit(value, kind)


def _moment(kind: T.DataType, value: Any) -> datetime:
    """Convert to Python's own class; pandas and pendulum have others."""
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124 - NaT is none
        raise _unfit(value, kind)
    if getattr(value, "nanosecond", 0):
        raise _unfit(value, kind, "Spark's times have microseconds")
    if type(value) is datetime:
        return value
    day = (value.year, value.month, value.day)
    time = (value.hour, value.minute, value.second, value.microsecond)
    return datetime(*day, *time, tzinfo=value.tzinfo, fold=value.fold)


def _instant(kind: T.DataType, value: Any) -> datetime:
    moment = _moment(kind, value)
    if moment.utcoffset() is None:
        raise _unfit(
            value,
            kind,
            "a time without a time zone does not name an instant",
            "give aware datetimes; or declare the column as timestamp_ntz in schema",
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise _unfit(value, kind, "it is not in the years 1 to 9999 of UTC") from None


def _wall_clock(kind: T.DataType, value: Any) -> datetime:
    moment = _moment(kind, value)
    if moment.tzinfo is None:
        return moment
    raise _unfit(
        value,
        kind,
        "its time zone would be lost",
        "give naive datetimes; or declare the column as timestamp in schema",
    )


_CONVERTERS: dict[type[T.DataType], Callable[[Any, Any], Any]] = {
    T.StructType: _struct,
    T.ArrayType: _array,
    T.MapType: _map,
    T.DecimalType: _decimal,
    **dict.fromkeys(_BITS, _integer),
    T.FloatType: _floating,
    T.DoubleType: _floating,
    T.BooleanType: _boolean,
    T.StringType: _string,
    T.CharType: _string,
    T.VarcharType: _string,
    T.BinaryType: _binary,
    T.DateType: _date,
    T.TimestampType: _instant,
    T.TimestampNTZType: _wall_clock,
}
"""Type -> the conversion of a value that is not None to one that PySpark takes without changing it."""


_OWN = frozenset((int, float, bool, Decimal, list, tuple))


def _plain(value: Any) -> Any:
    """Convert a number, a truth value or an array of them to Python's own, if it is numpy's."""
    if type(value) in _OWN or type(value).__module__ != "numpy":
        return value
    return value.tolist() if value.dtype.kind in ("b", "i", "u", "f") else value


def _unfit(value: Any, kind: T.DataType, why: str = "", do: str = "") -> _UnfitError:
    shown = f"is {_text(value)} ({type(value).__name__}), which is no value of {type_text(kind)}"
    do = do or "correct the value (None is NULL); or declare another type in schema"
    return _UnfitError(f"{shown}: {why}" if why else shown, do)


def _text(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an int of thousands of digits
        return "a number"
