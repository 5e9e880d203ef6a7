"""C#'s operators and conversions on typed values: each checks its operands' types, and gives an expression.

Nulls mean what they mean in C#: ``null == null``, and no order with a null is true. What is not known here,
or has a result that depends on the culture, is refused; an overflow, which wraps around in C#, fails the job.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from decimal import Decimal
from math import fmod
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import ScopeType, Token, parse_type, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    Of = Callable[[Mapping[str, Any]], Any]
    """An expression, for a row."""

SMALL = ("sbyte", "byte", "short", "ushort")
INTEGRAL = (*SMALL, "int", "uint", "long")
_FLOATING = ("float", "double")
NUMERIC = (*INTEGRAL, "ulong", *_FLOATING, "decimal")
_CASTABLE = {"sbyte": 7, "short": 15, "int": 31, "long": 63, "double": 0, "decimal": 0}
"""What numbers can be cast to -> the bits of its largest whole number."""
_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a SCOPE type."""
    return _arrow(parse_type(kind).spark)


def _arrow(spark: str) -> pa.DataType:
    kind, _, inner = spark.removesuffix(">").partition("<")
    if kind == "array":
        return pa.list_(_arrow(inner))
    if kind == "map":
        # A key has no comma, unless it is a decimal.
        key, value = re.split(r",(?![^(]*\))", inner, maxsplit=1)
        return pa.map_(_arrow(key), _arrow(value))
    return _ARROW[spark]


@dataclass(frozen=True, slots=True)
class Value:
    """An expression with its C# type."""

    kind: str
    """The type without its ``?``; ``null`` for the literal, ``char`` for a character, ``strings`` for the
    result of Split."""
    nullable: bool
    of: Of
    column: str | None = None
    """The name of the column if it is nothing but a column."""
    literal: str | None = None
    """The characters of a string or character literal."""
    is_bare_conditional: bool = False
    """Whether it is a ``?:`` or ``??`` without brackets."""

    @property
    def type(self) -> str:
        is_reference = self.kind in ("string", "byte[]") or self.kind.startswith("SQL.")
        return self.kind + ("?" if self.nullable and not is_reference else "")


def condition(token: Token, value: Value) -> Value:
    """Return the value if it is a condition; refuse it otherwise."""
    if value.kind != "bool" or value.nullable:
        problem = f"a condition is of type bool, not {value.type}"
        refuse(token, "not-a-condition", problem, "compare it with something, for example x == true")
    return value


def boolean(left: Value, token: Token, right: Value) -> Value:
    for side in (left, right):
        condition(token, side)
    first, second = left.of, right.of
    if token.text in ("&&", "AND"):
        return Value("bool", nullable=False, of=lambda row: first(row) and second(row))
    return Value("bool", nullable=False, of=lambda row: first(row) or second(row))


def equality(left: Value, token: Token, right: Value) -> Value:
    if "null" not in (left.kind, right.kind):
        kind = left.kind if left.kind == right.kind else _promoted(token, left, right)
        if kind not in (*NUMERIC, "string", "bool", "DateTime"):
            problem = f"{left.type} values cannot be compared here"
            refuse(token, "not-comparable", problem, "compare numbers, strings, booleans and DateTime values")
    first, second = left.of, right.of
    compare = operator.eq if token.text == "==" else operator.ne
    return Value("bool", nullable=False, of=lambda row: compare(first(row), second(row)))


ORDERS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def relational(left: Value, token: Token, right: Value) -> Value:
    kind = left.kind if left.kind == right.kind else _promoted(token, left, right)
    if kind not in (*NUMERIC, "DateTime"):
        problem = f"C# has no {token.text} for {kind}"
        refuse(token, "not-ordered", problem, "compare numbers or DateTime values")
    compare, first, second = ORDERS[token.text], left.of, right.of

    def of(row: Mapping[str, Any]) -> bool:
        low, high = first(row), second(row)
        return low is not None and high is not None and compare(low, high)

    return Value("bool", nullable=False, of=of)


def arithmetic(left: Value, token: Token, right: Value) -> Value:
    if token.text == "+" and "string" in (left.kind, right.kind):
        head, tail = (as_text(token, side).of for side in (left, right))
        return Value("string", nullable=False, of=lambda row: head(row) + tail(row))
    kind = _promoted(token, left, right)
    if kind not in ("int", "long", "double"):
        refuse(
            token,
            "arithmetic",
            f"{left.type} {token.text} {right.type} has no exact result here",
            "cast both sides to int, long or double first",
        )
    calculate = (_DOUBLE if kind == "double" else _WHOLE)[token.text]
    convert, first, second = float if kind == "double" else int, left.of, right.of

    def of(row: Mapping[str, Any]) -> Any:
        number, operand = first(row), second(row)
        if number is None or operand is None:
            return None
        try:
            return _in_range(kind, calculate(convert(number), convert(operand)))
        except (ArithmeticError, ValueError) as err:
            raise InputError(f"{number} {token.text} {operand}: {err}") from err

    return Value(kind, left.nullable or right.nullable, of)


def _quotient(number: int, divisor: int) -> int:
    """Divide as C# does: towards zero."""
    quotient = abs(number) // abs(divisor)
    return quotient if (number < 0) == (divisor < 0) else -quotient


_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda number, divisor: number - divisor * _quotient(number, divisor),
}
_DOUBLE = {**_WHOLE, "/": operator.truediv, "%": fmod}


def _in_range(kind: str, value: Any) -> Any:
    bits = _CASTABLE[kind]
    if bits and not -(2**bits) <= value < 2**bits:
        raise InputError(f"{value} does not fit into a {kind}.")
    return value


def _promoted(token: Token, left: Value, right: Value) -> str:
    """Return the type in which C# calculates with two numbers, or compares them."""
    kinds = {left.kind, right.kind}
    if not kinds <= set(NUMERIC):
        _mismatch(token, left, right)
    if len(kinds) == 1 and not kinds & set(SMALL):
        return left.kind
    mixes = ("decimal" in kinds and kinds & set(_FLOATING)) or "ulong" in kinds
    if mixes or ("float" in kinds and "double" not in kinds):
        _mismatch(token, left, right)
    for kind in ("decimal", "double", "long"):
        if kind in kinds:
            return kind
    return "long" if "uint" in kinds else "int"


def common(token: Token, left: Value, right: Value) -> str:
    """Return the type of ``c ? left : right`` and ``left ?? right``."""
    if "char" in (left.kind, right.kind) or left.kind == right.kind == "null":
        _mismatch(token, left, right)
    if "null" in (left.kind, right.kind):
        value = right if left.kind == "null" else left
        if not value.nullable:
            problem = f"null has no common type with {value.type}"
            refuse(token, "no-common-type", problem, f"write ({value.kind}?) in front of the null")
        return value.kind
    if left.kind == right.kind:
        return left.kind
    kind = _promoted(token, left, right)
    if kind not in (left.kind, right.kind):
        _mismatch(token, left, right)
    return kind


def _mismatch(token: Token, left: Value, right: Value) -> NoReturn:
    problem = f"{left.type} and {right.type} do not go together in {token.text!r}"
    refuse(token, "type-mismatch", problem, "cast one side, for example (long)x")


def as_text(token: Token, value: Value) -> Value:
    """Convert a value to text inside a string expression: a null is empty."""
    if value.kind not in (*INTEGRAL, "bool", "string", "char", "null"):
        refuse(
            token,
            "text-form",
            f"the text of a {value.type} depends on the culture",
            'use whole numbers, strings and booleans, or DateTime.ToString("yyyy-MM-dd")',
        )
    of = value.of

    def text(row: Mapping[str, Any]) -> str:
        part = of(row)
        return "" if part is None else str(part)

    return Value("string", nullable=False, of=text)


def cast_to(token: Token, target: ScopeType, value: Value) -> Value:
    """Read ``(T)value``: a null is cast to a type with null alone."""
    of, name = value.of, target.name
    if value.kind == "null":
        if not target.nullable:
            refuse(token, "null-cast", f"null is not a {target.text}", f"write ({target.text}?)null")
        return Value(name, nullable=True, of=of)
    is_exact = value.kind in NUMERIC and not (name == "decimal" and value.kind in _FLOATING)
    if value.kind != name and not (is_exact and name in _CASTABLE):
        refuse(
            token,
            "cast",
            f"a cast from {value.type} to {target.text} is not supported",
            "cast between numbers, to one of " + ", ".join(_CASTABLE),
        )
    convert: Callable[[Any], Any] = {"double": float, "decimal": Decimal}.get(name, int)

    def cast(row: Mapping[str, Any]) -> Any:
        number = of(row)
        if number is None and not target.nullable:
            raise InputError(f"a null was cast to {target.text}")
        if number is None or value.kind == name:
            return number
        try:
            return _in_range(name, convert(number))
        except (ArithmeticError, ValueError) as err:
            raise InputError(f"{number} cannot be cast to {target.text}: {err}") from err

    return Value(name, target.nullable and (value.nullable or name != "string"), cast)


_DATE_PARTS: dict[str, Callable[[datetime], str]] = {
    "yyyy": lambda time: f"{time.year:04}",
    "yy": lambda time: f"{time.year % 100:02}",
    "MM": lambda time: f"{time.month:02}",
    "dd": lambda time: f"{time.day:02}",
    "HH": lambda time: f"{time.hour:02}",
    "mm": lambda time: f"{time.minute:02}",
    "ss": lambda time: f"{time.second:02}",
    "fff": lambda time: f"{time.microsecond // 1000:03}",
    "ffffff": lambda time: f"{time.microsecond:06}",
}
"""Runs of letters in a .NET date format. Names of months and days depend on the culture."""
_NET_LETTERS = "dfFgGhHKmMstyYz"


def date_format(net: str) -> Callable[[datetime], str] | None:
    """Return what writes a time by a .NET custom date format; None if a part of it is not known.

    A format of one character is one of .NET's standard formats, which depend on the culture.
    """
    if len(net) <= 1 or any(char in net for char in "'\"\\%"):
        return None
    runs = [match.group() for match in re.finditer(r"([A-Za-z])\1*|[^A-Za-z]+", net)]
    if any(run[0] in _NET_LETTERS and run not in _DATE_PARTS for run in runs):
        return None
    return lambda time: "".join(_DATE_PARTS[run](time) if run in _DATE_PARTS else run for run in runs)


def split(value: Value, separator: str) -> Value:
    def of(row: Mapping[str, Any]) -> list[str]:
        text = value.of(row)
        if text is None:
            raise InputError("Split was called on a null string.")
        return str(text).split(separator)

    return Value("strings", nullable=False, of=of)


def date_text(value: Value, token: Token, net: str | None) -> Value:
    write = None if net is None else date_format(net)
    if write is None or value.nullable:
        refuse(
            token,
            "date-format",
            f"{value.type}.ToString({net!r}) depends on the culture or is not supported",
            'use a constant such as "yyyy-MM-dd HH:mm:ss", and x ?? DateTime.MinValue if x can be null',
        )
    return Value("string", nullable=False, of=lambda row: write(value.of(row)))
