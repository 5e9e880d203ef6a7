"""C# expressions over the columns of a row: read once, with their types, and made into functions of a row.

Nulls mean what they mean in C#: ``null == null``, and no order with a null is true. What is not known here,
or has a result that depends on the culture, is refused; an overflow, which wraps around in C#, fails the job.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from math import fmod
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_scope.emulator.parse import TokenReader
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import KEYWORDS, ScopeType, Token, parse_type, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Of = Callable[[Mapping[str, Any]], Any]
    """An expression, for a row."""

_SMALL = ("sbyte", "byte", "short", "ushort")
_INTEGRAL = (*_SMALL, "int", "uint", "long")
_FLOATING = ("float", "double")
_NUMERIC = (*_INTEGRAL, "ulong", *_FLOATING, "decimal")
_CASTABLE = {"sbyte": 7, "short": 15, "int": 31, "long": 63, "double": 0, "decimal": 0}
"""What numbers can be cast to -> the bits of its largest whole number."""
_CAST_WORDS = (*_NUMERIC, "bool", "string", "DateTime")


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


def _constant(kind: str, value: Any) -> Value:
    literal = value if kind in ("string", "char") else None
    return Value(kind, nullable=value is None, of=lambda _: value, literal=literal)


# ---- reading ----

_SIGNS = (
    "=",
    "OR",
    "AND",
    "(NOT)",
    "?",
    "??",
    "||",
    "&&",
    "== !=",
    "< > <= >= IS",
    "+ -",
    "* / %",
    "(unary)",
)
"""Operators, from those that bind most loosely to those that bind most tightly; those in brackets stand
before their operand. A single ``=`` is there to be refused."""
_LEVELS = {sign: level for level, signs in enumerate(_SIGNS) for sign in signs.split()}


class ExpressionReader(TokenReader):
    """Reads the expressions of a query over one rowset."""

    def __init__(self, query_tokens: Sequence[Token], columns: Mapping[str, str]) -> None:
        super().__init__(query_tokens)
        self.columns = columns
        """Name -> SCOPE type."""

    def expression(self, loosest: int = 0) -> Value:
        """Read an expression.

        :param loosest: The level of the loosest operator that may stand in it without brackets.
        :raises ScriptError: It is not supported, or its types do not go together.
        """
        value = self._prefixed(loosest)
        while (level := _LEVELS.get(self.token.text, -1)) >= loosest:
            value = self._combined(value, self.advance(), level)
        return value

    def _prefixed(self, loosest: int) -> Value:
        token = self.token
        if loosest <= _LEVELS["(NOT)"] and self.accept("NOT"):
            operand = self.expression(_LEVELS["(NOT)"])
            _refuse_bare_conditionals(token, operand)
            return _negation(token, operand)
        if self.accept("!"):
            return _negation(token, self.expression(_LEVELS["(unary)"]))
        if self.accept("-"):
            return _negative(token, self.expression(_LEVELS["(unary)"]))
        if target := self._cast_type():
            return _cast(token, target, self.expression(_LEVELS["(unary)"]))
        return self._postfix(self._primary())

    def _combined(self, left: Value, token: Token, level: int) -> Value:
        """Read the right side of an operator."""
        match token.text:
            case "=":
                refuse(token, "single-equals", "a single = compares nothing in C#", "write ==")
            case "?":
                condition(token, left)
                yes = self.expression(level)
                self.expect(":")
                return _conditional(token, left, yes, self.expression(level))
            case "??":
                return _coalesced(left, token, self.expression(level))
            case "IS":
                is_not = self.accept("NOT")
                self.expect("NULL")
                return Value("bool", nullable=False, of=lambda row: (left.of(row) is None) != is_not)
        right = self.expression(level + 1)
        match token.text:
            case "OR" | "AND":
                _refuse_bare_conditionals(token, left, right)
                return _logical(left, token, right)
            case "||" | "&&":
                return _logical(left, token, right)
            case "==" | "!=":
                return _equality(left, token, right)
            case "<" | ">" | "<=" | ">=":
                return _relation(left, token, right)
        return _arithmetic(left, token, right)

    def _cast_type(self) -> ScopeType | None:
        """Read ``(T)`` or ``(T?)`` if it is a cast; None otherwise."""
        word = self.peek(1)
        if not self.is_next("(") or not word.is_keyword(*_CAST_WORDS) or word.text in self.columns:
            return None
        has_mark = self.peek(2).is_symbol("?") and word.text != "string"
        if not self.peek(2 + has_mark).is_symbol(")"):
            return None
        self.position += 3 + has_mark
        return parse_type(word.text + "?" * has_mark)

    def _primary(self) -> Value:
        token = self.advance()
        if token.is_symbol("("):
            inner = self.expression()
            self.expect(")")
            return replace(inner, is_bare_conditional=False)
        if token.kind in ("string", "char"):
            return _constant(token.kind, token.value)
        if token.kind == "number":
            return _number(token)
        if token.kind not in ("name", "quoted") or token.is_keyword(*KEYWORDS):
            actual = repr(token.text) if token.text else "the end"
            problem = f"{actual} is not a supported expression"
            refuse(token, "not-supported", problem, "use columns and literals")
        if token.is_keyword("null"):
            return _constant("null", None)
        if token.is_keyword("true", "false"):
            return _constant("bool", token.text == "true")
        if token.is_keyword("DateTime") and token.text not in self.columns and self.accept("."):
            return self._date_constant()
        return self.column(token)

    def _date_constant(self) -> Value:
        token = self.advance()
        constants = {"UtcNow": datetime.now(UTC), "MinValue": datetime.min.replace(tzinfo=UTC)}
        if token.text not in constants:
            problem = f"DateTime.{token.text} is not supported"
            refuse(token, "not-supported", problem, "use DateTime.UtcNow or MinValue")
        return _constant("DateTime", constants[token.text])

    def column(self, token: Token) -> Value:
        kind = self.columns.get(token.value) if token.kind in ("name", "quoted") else None
        if kind is None:
            refuse(
                token,
                "unknown-column",
                f"{token.text} is not a column",
                "use one of " + ", ".join(self.columns) + "; upper and lower case differ",
            )
        column_type, name = parse_type(kind), token.value
        return Value(column_type.name, column_type.nullable, lambda row: row[name], column=name)

    def _postfix(self, value: Value) -> Value:
        while True:
            if self.accept("."):
                value = self._member(value, self.advance())
            elif self.is_next("["):
                token, index = self.advance(), self.advance()
                self.expect("]")
                value = _element(value, token, index.text)
            elif self.is_next("("):
                problem = "calls of this kind are not supported"
                refuse(self.token, "not-supported", problem, "use columns and literals")
            else:
                return value

    def _member(self, value: Value, token: Token) -> Value:
        arguments: list[Value] = []
        is_call = self.accept("(")
        if is_call and not self.accept(")"):
            arguments = self.listed(self.expression)
            self.expect(")")
        kinds = [argument.kind for argument in arguments]
        if is_call and (token.text, value.kind, kinds) == ("Split", "string", ["char"]):
            return _split(value, arguments[0].literal or "")
        if is_call and (token.text, value.kind, kinds) == ("ToString", "DateTime", ["string"]):
            return _date_text(value, token, arguments[0].literal)
        if not is_call or token.text != "ToString" or kinds or value.kind not in (*_INTEGRAL, "bool"):
            problem = f".{token.text} on a {value.type} is not supported"
            do = "use Split('c')[n], ToString() of whole numbers or booleans, or DateTime.ToString(…)"
            refuse(token, "not-supported", problem, do)
        return _as_text(token, value)


def _number(token: Token) -> Value:
    match = re.fullmatch(r"(\d+)([lL]?)|(\d*\.\d+|\d+)[dD]?", token.text)
    if match is None:
        refuse(token, "number", f"the number {token.text} is not supported", "write 1, 1L or 1.5")
    if match[1] is None:
        return _constant("double", float(match[3]))
    number, kind = int(match[1]), "long" if match[2] else "int"
    if number >= 2**63:
        refuse(token, "number", f"{token.text} is larger than a long", "use a smaller number")
    if kind == "int" and number >= 2**31:
        refuse(token, "number", f"{token.text} is larger than an int", "write an L after it")
    return _constant(kind, number)


# ---- conditions ----


def condition(token: Token, value: Value) -> Of:
    """Return the test of a condition; refuse a value that is none."""
    if value.kind != "bool" or value.nullable:
        problem = f"a condition is of type bool, not {value.type}"
        refuse(token, "not-a-condition", problem, "compare it with something, for example x == true")
    return value.of


def _refuse_bare_conditionals(token: Token, *values: Value) -> None:
    """Refuse a bare ``?:`` or ``??`` beside AND, OR and NOT: how they bind is not documented."""
    if any(value.is_bare_conditional for value in values):
        problem = f"{token.text} next to ?: or ?? can be read in two ways"
        refuse(token, "unclear-precedence", problem, "put brackets around the ?: or ??")


def _negation(token: Token, value: Value) -> Value:
    of = condition(token, value)
    return Value("bool", nullable=False, of=lambda row: not of(row))


def _logical(left: Value, token: Token, right: Value) -> Value:
    first, second = condition(token, left), condition(token, right)
    if token.text in ("&&", "AND"):
        return Value("bool", nullable=False, of=lambda row: first(row) and second(row))
    return Value("bool", nullable=False, of=lambda row: first(row) or second(row))


def _equality(left: Value, token: Token, right: Value) -> Value:
    kind = ""
    if "null" not in (left.kind, right.kind):
        kind = left.kind if left.kind == right.kind else _promoted(token, left, right)
        if kind not in (*_NUMERIC, "string", "bool", "DateTime"):
            problem = f"{left.type} values cannot be compared here"
            refuse(token, "not-comparable", problem, "compare numbers, strings, booleans and DateTime values")
    compare = operator.eq if token.text == "==" else operator.ne
    first, second = _of_kind(kind, left), _of_kind(kind, right)
    return Value("bool", nullable=False, of=lambda row: compare(first(row), second(row)))


_ORDERS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def _relation(left: Value, token: Token, right: Value) -> Value:
    kind = left.kind if left.kind == right.kind else _promoted(token, left, right)
    if kind not in (*_NUMERIC, "DateTime"):
        problem = f"C# has no {token.text} for {kind}"
        refuse(token, "not-ordered", problem, "compare numbers or DateTime values")
    compare = _ORDERS[token.text]
    first, second = _of_kind(kind, left), _of_kind(kind, right)

    def of(row: Mapping[str, Any]) -> bool:
        low, high = first(row), second(row)
        return low is not None and high is not None and compare(low, high)

    return Value("bool", nullable=False, of=of)


def _conditional(token: Token, test: Value, yes: Value, no: Value) -> Value:
    return Value(
        _common(token, yes, no),
        yes.nullable or no.nullable,
        lambda row: yes.of(row) if test.of(row) else no.of(row),
        is_bare_conditional=True,
    )


def _coalesced(left: Value, token: Token, right: Value) -> Value:
    if not left.nullable or left.kind == "null":
        do = "leave out the ?? and its right side"
        refuse(token, "never-null", "the left side of ?? cannot be null", do)

    def of(row: Mapping[str, Any]) -> Any:
        value = left.of(row)
        return right.of(row) if value is None else value

    return Value(_common(token, left, right), right.nullable, of, is_bare_conditional=True)


def _common(token: Token, left: Value, right: Value) -> str:
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


# ---- numbers ----


def _arithmetic(left: Value, token: Token, right: Value) -> Value:
    if token.text == "+" and "string" in (left.kind, right.kind):
        head, tail = (_as_text(token, side).of for side in (left, right))
        return Value("string", nullable=False, of=lambda row: head(row) + tail(row))
    kind = _promoted(token, left, right)
    kinds = {left.kind, right.kind}
    # Beside a byte or a constant, a uint stays one in C#, and 0 - 1 wraps around.
    if kind not in ("int", "long", "double") or ("uint" in kinds and kind not in kinds):
        problem = f"{left.type} {token.text} {right.type} has no exact result here"
        refuse(token, "arithmetic", problem, "cast both sides to int, long or double first")
    calculate = (_DOUBLE if kind == "double" else _WHOLE)[token.text]
    convert = float if kind == "double" else int

    def of(row: Mapping[str, Any]) -> Any:
        number, operand = left.of(row), right.of(row)
        if number is None or operand is None:
            return None
        try:
            return _in_range(kind, calculate(convert(number), convert(operand)))
        except (ArithmeticError, ValueError) as err:
            raise InputError(f"{number} {token.text} {operand}: {err}") from err

    return Value(kind, left.nullable or right.nullable, of)


def _of_kind(kind: str, value: Value) -> Of:
    """Return how a value is read that is compared as this type: C# rounds a long beside a double to one."""
    if kind != "double" or value.kind == kind:
        return value.of

    def of(row: Mapping[str, Any]) -> float | None:
        number = value.of(row)
        return None if number is None else float(number)

    return of


def _negative(token: Token, value: Value) -> Value:
    if value.kind not in (*_SMALL, "int", "long", "double"):
        problem = f"-({value.type}) is not supported"
        refuse(token, "arithmetic", problem, "cast it to int, long or double")
    zero = _constant("double", -0.0) if value.kind == "double" else _constant("int", 0)
    return _arithmetic(zero, token, value)


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
    if not kinds <= set(_NUMERIC):
        _mismatch(token, left, right)
    if len(kinds) == 1 and not kinds & set(_SMALL):
        return left.kind
    mixes = ("decimal" in kinds and kinds & set(_FLOATING)) or "ulong" in kinds
    if mixes or ("float" in kinds and "double" not in kinds):
        _mismatch(token, left, right)
    for kind in ("decimal", "double", "long"):
        if kind in kinds:
            return kind
    return "long" if "uint" in kinds else "int"


def _mismatch(token: Token, left: Value, right: Value) -> NoReturn:
    problem = f"{left.type} and {right.type} do not go together in {token.text!r}"
    refuse(token, "type-mismatch", problem, "cast one side, for example (long)x")


def _cast(token: Token, target: ScopeType, value: Value) -> Value:
    """Read ``(T)value``: a null is cast to a type with null alone."""
    name = target.name
    if value.kind == "null":
        if not target.nullable:
            refuse(token, "null-cast", f"null is not a {target.text}", f"write ({target.text}?)null")
        return Value(name, nullable=True, of=value.of)
    is_exact = value.kind in _NUMERIC and not (name == "decimal" and value.kind in _FLOATING)
    if value.kind != name and not (is_exact and name in _CASTABLE):
        problem = f"a cast from {value.type} to {target.text} is not supported"
        refuse(token, "cast", problem, "cast between numbers, to one of " + ", ".join(_CASTABLE))
    convert: Callable[[Any], Any] = {"double": float, "decimal": Decimal}.get(name, int)

    def of(row: Mapping[str, Any]) -> Any:
        number = value.of(row)
        if number is None and not target.nullable:
            raise InputError(f"a null was cast to {target.text}")
        if number is None or value.kind == name:
            return number
        try:
            return _in_range(name, convert(number))
        except (ArithmeticError, ValueError) as err:
            raise InputError(f"{number} cannot be cast to {target.text}: {err}") from err

    return Value(name, target.nullable and (value.nullable or name != "string"), of)


# ---- text ----


def _as_text(token: Token, value: Value) -> Value:
    """Convert a value to text inside a string expression: a null is empty."""
    if value.kind not in (*_INTEGRAL, "bool", "string", "char", "null"):
        problem = f"the text of a {value.type} depends on the culture"
        do = 'use whole numbers, strings and booleans, or DateTime.ToString("yyyy-MM-dd")'
        refuse(token, "text-form", problem, do)

    def of(row: Mapping[str, Any]) -> str:
        part = value.of(row)
        return "" if part is None else str(part)

    return Value("string", nullable=False, of=of)


def _split(value: Value, separator: str) -> Value:
    def of(row: Mapping[str, Any]) -> list[str]:
        text = value.of(row)
        if text is None:
            raise InputError("Split was called on a null string.")
        return str(text).split(separator)

    return Value("strings", nullable=False, of=of)


def _element(value: Value, token: Token, index: str) -> Value:
    if value.kind != "strings" or not re.fullmatch(r"\d{1,9}", index):
        refuse(token, "not-supported", "only x.Split('c')[0] has an index here", "use a number from 0 on")
    number = int(index)

    def of(row: Mapping[str, Any]) -> str:
        parts: list[str] = value.of(row)
        if number >= len(parts):
            raise InputError(f"[{number}] is outside of the {len(parts)} parts of Split.")
        return parts[number]

    return Value("string", nullable=False, of=of)


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


def _date_text(value: Value, token: Token, net: str | None) -> Value:
    write = None if net is None else date_format(net)
    if write is None or value.nullable:
        refuse(
            token,
            "date-format",
            f"{value.type}.ToString({net!r}) depends on the culture or is not supported",
            'use a constant such as "yyyy-MM-dd HH:mm:ss", and x ?? DateTime.MinValue if x can be null',
        )
    return Value("string", nullable=False, of=lambda row: write(value.of(row)))
