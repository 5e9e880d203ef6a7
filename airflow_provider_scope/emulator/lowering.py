"""Translating C# operators on typed values to Spark SQL.

Every value of type ``bool`` is true or false and never null, as in C# (``bool?`` is another type), so
NOT, AND and OR mean the same on both sides. Where C# raises (a member of a null, a cast of a null to a type
without null), Spark raises too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from airflow_provider_scope.scope.check import Token, error_at, refuse
from airflow_provider_scope.scope.statements import ScopeType, parse_type
from airflow_provider_scope.sql import literal

SMALL = ("sbyte", "byte", "short", "ushort")
INTEGRAL = (*SMALL, "int", "uint", "long")
NUMERIC = (*INTEGRAL, "ulong", "float", "double", "decimal")
_CASTABLE = ("sbyte", "short", "int", "long", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression as Spark SQL, with its SCOPE type."""

    sql: str
    kind: str
    """The type without its ``?``; ``null`` for the literal, ``char`` for a character, ``strings`` for
    the result of Split."""
    nullable: bool
    name: str | None = None
    """The name of the column if it is nothing but a column."""
    constant: str | None = None
    """The characters of a string or character literal."""
    has_aggregate: bool = False
    """Whether it contains an aggregate."""
    has_bare_column: bool = False
    """Whether it contains a column outside of any aggregate."""
    may_raise: bool = False
    """Whether it raises for some rows, so it must not be evaluated where C# would not evaluate it."""
    is_bare_conditional: bool = False
    """Whether it is a ``?:`` or ``??`` without brackets."""

    @property
    def type(self) -> str:
        """The SCOPE type."""
        is_reference = self.kind in ("string", "byte[]") or self.kind.startswith("SQL.")
        return self.kind + ("?" if self.nullable and not is_reference else "")

    def combined(self, sql: str, kind: str, *operands: Scalar, nullable: bool = False) -> Scalar:
        """Give an expression whose operands are this one and ``operands``."""
        parts = (self, *operands)
        return Scalar(
            sql,
            kind,
            nullable,
            has_aggregate=any(part.has_aggregate for part in parts),
            has_bare_column=any(part.has_bare_column for part in parts),
            may_raise=any(part.may_raise for part in parts),
        )


def refuse_bare_conditionals(token: Token, *parts: Scalar) -> None:
    """Refuse a bare ``?:`` or ``??`` beside AND, OR and NOT: how they bind is not documented."""
    if any(part.is_bare_conditional for part in parts):
        refuse(
            token,
            "unclear-precedence",
            f"{token.text} next to ?: or ?? can be read in two ways",
            "put brackets around the ?: or ??",
        )


def condition(token: Token, value: Scalar) -> Scalar:
    """Give the value if it is a condition; refuse it otherwise."""
    if value.kind != "bool" or value.nullable:
        refuse(
            token,
            "not-a-condition",
            f"a condition is of type bool, not {value.type}",
            "compare it with something, for example x == true",
        )
    return value


def boolean(left: Scalar, token: Token, right: Scalar) -> Scalar:
    """Translate ``&&`` and ``||``, which do not evaluate the right side if the left one decides."""
    condition(token, left)
    condition(token, right)
    is_and = token.text in ("&&", "AND")
    if right.may_raise:
        branches = ("THEN {} ELSE false" if is_and else "THEN true ELSE {}").format(right.sql)
        return left.combined(f"(CASE WHEN {left.sql} {branches} END)", "bool", right)
    return left.combined(f"({left.sql} {'AND' if is_and else 'OR'} {right.sql})", "bool", right)


def equality(left: Scalar, token: Token, right: Scalar) -> Scalar:
    """Translate ``==`` and ``!=``: a null equals a null and nothing else."""
    negate = token.text == "!="
    if "null" in (left.kind, right.kind):
        value = right if left.kind == "null" else left
        return left.combined(f"({value.sql} IS {'NOT ' if negate else ''}NULL)", "bool", right)
    kind = _comparable(token, left, right)
    if kind not in (*NUMERIC, "string", "bool", "DateTime", "Guid"):
        refuse(token, "not-comparable", f"{left.type} compares by identity", "compare scalars")
    left_sql, right_sql = (f"lower({side.sql})" if kind == "Guid" else side.sql for side in (left, right))
    sql = f"({left_sql} {'<=>' if left.nullable or right.nullable else '='} {right_sql})"
    if kind in ("float", "double"):
        # In C# nothing equals NaN; in Spark NaN does.
        sql = f"({sql} AND NOT isnan({left_sql if left.kind == kind else right_sql}))"
    return left.combined(f"(NOT {sql})" if negate else sql, "bool", right)


def relational(left: Scalar, token: Token, right: Scalar) -> Scalar:
    """Translate ``<``, ``>``, ``<=`` and ``>=``: false where a side is null."""
    kind = _comparable(token, left, right)
    if kind not in (*NUMERIC, "DateTime"):
        refuse(
            token,
            "not-ordered",
            f"C# has no {token.text} for {kind}",
            "compare numbers or DateTime values",
        )
    sql = f"({left.sql} {token.text} {right.sql})"
    if kind in ("float", "double"):
        # In C# every order with NaN is false; in Spark NaN is the largest number.
        floating = [side.sql for side in (left, right) if side.kind in ("float", "double")]
        sql = f"({sql}{''.join(f' AND NOT isnan({side})' for side in floating)})"
    if left.nullable or right.nullable:
        sql = f"coalesce({sql}, false)"
    return left.combined(sql, "bool", right)


def arithmetic(left: Scalar, token: Token, right: Scalar) -> Scalar:
    """Translate ``+``, ``-``, ``*``, ``/`` and ``%``."""
    if token.text == "+" and "string" in (left.kind, right.kind):
        parts = ", ".join(as_text(token, side).sql for side in (left, right))
        return left.combined(f"concat({parts})", "string", right)
    kind = _promoted(token, left, right)
    if kind not in ("int", "long", "double"):
        refuse(
            token,
            "arithmetic",
            f"{left.type} {token.text} {right.type} has no exact counterpart in Spark",
            "cast both sides to int, long or double first",
        )
    spark = parse_type(kind).spark
    left_sql, right_sql = (f"CAST({side.sql} AS {spark})" for side in (left, right))
    if token.text == "/" and kind != "double":
        # DIV gives a bigint whatever it divides.
        sql = f"CAST({left_sql} DIV {right_sql} AS {spark})"
    else:
        sql = f"({left_sql} {token.text} {right_sql})"
    result = left.combined(sql, kind, right, nullable=left.nullable or right.nullable)
    return replace(result, may_raise=result.may_raise or token.text in "/%")


def _promoted(token: Token, left: Scalar, right: Scalar) -> str:
    """Give the type in which C# calculates with two numbers, or compares them."""
    kinds = {left.kind, right.kind}
    if not kinds <= set(NUMERIC):
        _mismatch(token, left, right)
    if len(kinds) == 1 and not kinds & set(SMALL):
        return left.kind
    mixes = ("decimal" in kinds and kinds & {"float", "double"}) or "ulong" in kinds
    if mixes or ("float" in kinds and "double" not in kinds):
        _mismatch(token, left, right)
    for kind in ("decimal", "double", "long"):
        if kind in kinds:
            return kind
    return "long" if "uint" in kinds else "int"


def _comparable(token: Token, left: Scalar, right: Scalar) -> str:
    if left.kind == right.kind:
        return left.kind
    return _promoted(token, left, right)


def common(token: Token, left: Scalar, right: Scalar) -> str:
    """Give the type of ``c ? left : right`` and ``left ?? right``."""
    if "char" in (left.kind, right.kind) or left.kind == right.kind == "null":
        _mismatch(token, left, right)
    if "null" in (left.kind, right.kind):
        value = right if left.kind == "null" else left
        if not value.nullable:
            refuse(
                token,
                "no-common-type",
                f"null has no common type with {value.type}",
                f"write ({value.kind}?) in front of the null",
            )
        return value.kind
    if left.kind == right.kind:
        return left.kind
    kind = _promoted(token, left, right)
    if kind not in (left.kind, right.kind):
        _mismatch(token, left, right)
    return kind


def _mismatch(token: Token, left: Scalar, right: Scalar) -> NoReturn:
    refuse(
        token,
        "type-mismatch",
        f"{left.type} and {right.type} do not go together in {token.text!r}",
        "cast one side, for example (long)x",
    )


def as_text(token: Token, value: Scalar) -> Scalar:
    """Translate the conversion of a value to text inside a string expression: a null is empty."""
    if value.kind == "bool":
        text = f"CASE WHEN {value.sql} THEN 'True' WHEN NOT {value.sql} THEN 'False' END"
    elif value.kind in INTEGRAL:
        text = f"CAST({value.sql} AS STRING)"
    elif value.kind == "Guid":
        text = f"lower({value.sql})"
    elif value.kind in ("string", "char"):
        text = value.sql
    elif value.kind == "null":
        text = "''"
    else:
        refuse(
            token,
            "text-form",
            f"the text of a {value.type} depends on the culture or has no counterpart in Spark",
            'use whole numbers, strings and booleans, or DateTime.ToString("yyyy-MM-dd")',
        )
    return value.combined(f"coalesce({text}, '')" if value.nullable else text, "string")


def not_null(value: Scalar, message: str) -> Scalar:
    """Make Spark raise where C# raises on a null."""
    if not value.nullable:
        return value
    sql = f"coalesce({value.sql}, raise_error({literal(message)}))"
    return replace(value, sql=sql, nullable=False, name=None, may_raise=True)


def cast_to(token: Token, target: ScopeType, value: Scalar) -> Scalar:
    """Translate ``(T)value``."""
    if value.kind == "null":
        if not target.nullable:
            refuse(token, "null-cast", f"null is not a {target.text}", f"write ({target.text}?)null")
        return value.combined(f"CAST(NULL AS {target.spark})", target.name, nullable=True)
    nullable = target.nullable and (value.nullable or target.name != "string")
    if not target.nullable:
        value = not_null(value, f"a null was cast to {target.text}")
    if value.kind == target.name:
        return value.combined(value.sql, value.kind, nullable=nullable)
    is_exact = value.kind in NUMERIC and not (target.name == "decimal" and value.kind in ("float", "double"))
    if not is_exact or target.name not in _CASTABLE:
        refuse(
            token,
            "cast",
            f"a cast from {value.type} to {target.text} is not supported",
            "cast between numbers, to one of " + ", ".join(_CASTABLE),
        )
    result = value.combined(f"CAST({value.sql} AS {target.spark})", target.name, nullable=nullable)
    return replace(result, may_raise=True)


def date_text(value: Scalar, token: Token, net: str | None) -> Scalar:
    """Translate ``DateTime.ToString("…")``."""
    pattern = None if net is None else date_format(net)
    if pattern is None or value.nullable:
        refuse(
            token,
            "date-format",
            f"{value.type}.ToString({net!r}) depends on the culture or has no counterpart in Spark",
            'use a constant such as "yyyy-MM-dd HH:mm:ss", and x ?? DateTime.MinValue if x can be null',
        )
    return value.combined(f"date_format({value.sql}, {literal(pattern)})", "string")


def aggregate_kind(token: Token, value: Scalar) -> str:
    if token.text == "COUNT" and value.kind in (*INTEGRAL, "decimal", "string", "bool", "DateTime"):
        return "long"
    if token.text == "SUM" and value.kind in (*INTEGRAL, "double"):
        return "double" if value.kind == "double" else "long"
    if token.text in ("MIN", "MAX") and value.kind in (*INTEGRAL, "decimal", "DateTime"):
        return value.kind
    if token.text == "AVG" and value.kind == "double":
        return "double"
    raise error_at(
        token,
        "aggregate",
        f"{token.text} of {value.type} has no documented result or no counterpart in Spark",
        "use COUNT of anything but double, SUM of whole numbers and double, MIN and MAX of whole numbers, "
        "decimal and DateTime, AVG of double",
    )


# ---- .NET's date formats as Spark's ----

_FORMATS = {
    **{token: token for token in ("yyyy", "yy", "MMMM", "MMM", "MM", "M", "dd", "d")},
    **{token: token for token in ("HH", "H", "hh", "h", "mm", "m", "ss", "s")},
    **{"f" * count: "S" * count for count in range(1, 7)},
    "dddd": "EEEE",
    "ddd": "E",
    "tt": "a",
}
"""A .NET token -> Spark's. Seven ``f`` are ticks, which Spark's microseconds cannot hold."""
_NET_LETTERS = "dfFgGhHKmMstyYz"
_SAFE = re.compile(r"[-/:. ,_0-9]+")
_RUN = re.compile(r"([A-Za-z])\1*|[^A-Za-z]+")


def date_format(net: str) -> str | None:
    """Give Spark's pattern for a .NET custom date format; None if there is none that means the same.

    A format of one character is one of .NET's standard formats, which depend on the culture.
    """
    if len(net) <= 1 or any(char in net for char in "'\"\\%"):
        return None
    parts = []
    for match in _RUN.finditer(net):
        run = match.group()
        if run in _FORMATS:
            parts.append(_FORMATS[run])
        elif run[0] in _NET_LETTERS:
            return None
        elif _SAFE.fullmatch(run):
            parts.append(run)
        else:
            parts.append(f"'{run}'")
    return "".join(parts)
