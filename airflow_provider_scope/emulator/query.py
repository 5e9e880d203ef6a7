"""SCOPE queries over rows: ``SELECT … FROM @rowset [WHERE …]``, the shapes that dbt-scope's models have.

An expression is compiled once, with its C# type, to a function of a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_scope.emulator.csharp import (
    INTEGRAL,
    NUMERIC,
    ORDERS,
    SMALL,
    Value,
    arithmetic,
    arrow_type,
    as_text,
    boolean,
    cast_to,
    common,
    condition,
    date_text,
    equality,
    relational,
    split,
)
from airflow_provider_scope.emulator.parse import Fragment, TokenReader
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import KEYWORDS, ScopeType, ScriptError, Token, parse_type, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CAST_WORDS = (*NUMERIC, "bool", "string", "DateTime")
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Query:
    """A query that is ready to run."""

    rowset: str
    items: dict[str, Value]
    """Its columns, in order."""
    where: Value | None

    @property
    def columns(self) -> dict[str, str]:
        """Name -> SCOPE type."""
        return {name: value.type for name, value in self.items.items()}

    def run(self, table: pa.Table) -> pa.Table:
        """Return the rows of the query.

        :raises InputError: An expression fails for a row.
        """
        if self.where is not None:
            meets = self.where.of
            table = table.filter(pa.array([meets(row) for row in table.to_pylist()], pa.bool_()))
        is_computed = any(value.column is None for value in self.items.values())
        rows = table.to_pylist() if is_computed else []
        columns = [
            table[value.column]
            if value.column is not None
            else pa.array([value.of(row) for row in rows], arrow_type(value.type))
            for value in self.items.values()
        ]
        return pa.table(columns, names=list(self.items))


def compile_query(query: Fragment, rowsets: Mapping[str, Mapping[str, str]]) -> Query:
    """Compile a SELECT.

    :param rowsets: Rowset without its ``@`` -> column -> SCOPE type.
    :raises ScriptError: The query is not of the supported shapes; the error has a code, a place and advice.
    """
    for token in query.tokens:
        if token.kind in ("directive", "parameter", "system"):
            problem = f"{token.text} is not supported inside a query"
            refuse(token, token.kind, problem, "write the value itself")
    # The rowset comes first: the items before it need its columns.
    start = next((number for number, token in enumerate(query.tokens) if token.is_keyword("FROM")), None)
    if start is None:
        refuse(query.tokens[-1], "no-from", "the query has no FROM", "write SELECT … FROM @data")
    rowset = query.tokens[start + 1]
    if rowset.kind != "variable":
        problem = f"{rowset.text!r} is not a rowset"
        refuse(rowset, "not-a-rowset", problem, "select from a rowset such as @data")
    if rowset.value not in rowsets:
        names = ", ".join(f"@{name}" for name in rowsets)
        refuse(rowset, "unknown-rowset", f"{rowset.text} is not assigned above", f"use one of {names}")
    try:
        return _QueryReader(query.tokens, rowsets[rowset.value]).query()
    except RecursionError as error:
        raise ScriptError("too-deep", 1, 1, "the query nests too deeply", "use fewer brackets") from error


# ---- reading expressions ----

_OPERATORS: tuple[tuple[tuple[str, ...], Callable[[Value, Token, Value], Value]], ...] = (
    (("||",), boolean),
    (("&&",), boolean),
    (("==", "!="), equality),
    (tuple(ORDERS), relational),
    (("+", "-"), arithmetic),
    (("*", "/", "%"), arithmetic),
)
"""From the operators that bind most loosely to those that bind most tightly."""


def _refuse_bare_conditionals(token: Token, *values: Value) -> None:
    """Refuse a bare ``?:`` or ``??`` beside AND, OR and NOT: how they bind is not documented."""
    if any(value.is_bare_conditional for value in values):
        problem = f"{token.text} next to ?: or ?? can be read in two ways"
        refuse(token, "unclear-precedence", problem, "put brackets around the ?: or ??")


class _QueryReader(TokenReader):
    """Reads a SELECT, and the expressions in it."""

    def __init__(self, query_tokens: Sequence[Token], columns: Mapping[str, str]) -> None:
        super().__init__(query_tokens)
        self.columns = columns
        """Name -> SCOPE type."""

    def query(self) -> Query:
        self.expect("SELECT")
        items: dict[str, Value] = {}
        names: set[str] = set()
        while not items or self.accept(","):
            token = self.token
            for name, value in self.item():
                if name.lower() in names:
                    refuse(token, "ambiguous", f"the query has two columns {name}", "rename one with AS")
                names.add(name.lower())
                items[name] = value
        self.expect("FROM")
        rowset = self.advance().value
        token = self.token
        where = self.expression() if self.accept("WHERE") else None
        if self.token.kind != "end":
            refuse(
                self.token,
                "not-supported",
                f"{self.token.text!r} is not supported",
                "use SELECT … FROM @rowset WHERE …: one rowset without an alias, no grouping, no sub-query",
            )
        return Query(rowset, items, where and condition(token, where))

    def item(self) -> list[tuple[str, Value]]:
        token = self.token
        if self.accept("*"):
            named = (replace(token, kind="quoted", value=name) for name in self.columns)
            return [(column.value, self.column(column)) for column in named]
        value = self.expression()
        if value.kind in ("null", "char", "strings"):
            refuse(token, "no-type", "this item has no column type", "cast it, for example (int?)null")
        name = value.column
        if self.accept("AS"):
            alias = self.advance()
            if alias.kind not in ("name", "quoted") or alias.is_keyword(*KEYWORDS):
                refuse(alias, "syntax", "AS needs a name", "write x AS name")
            name = alias.value
        if name is None:
            refuse(token, "no-alias", "this item has no name", "give it one with AS")
        return [(name, value)]

    def expression(self) -> Value:
        left = self._conjunction()
        while self.is_next("OR"):
            left = self._logical(left, self.advance(), self._conjunction())
        if self.token.is_symbol("="):
            refuse(self.token, "single-equals", "a single = compares nothing in C#", "write ==")
        return left

    def _conjunction(self) -> Value:
        left = self._negation()
        while self.is_next("AND"):
            left = self._logical(left, self.advance(), self._negation())
        return left

    def _negation(self) -> Value:
        token = self.token
        if not self.accept("NOT"):
            return self._conditional()
        inner = self._negation()
        _refuse_bare_conditionals(token, inner)
        return self._negated(token, inner)

    def _negated(self, token: Token, value: Value) -> Value:
        of = condition(token, value).of
        return Value("bool", nullable=False, of=lambda row: not of(row))

    def _logical(self, left: Value, token: Token, right: Value) -> Value:
        _refuse_bare_conditionals(token, left, right)
        return boolean(left, token, right)

    def _conditional(self) -> Value:
        test = self._coalescing()
        token = self.token
        if not self.accept("?"):
            return test
        decide = condition(token, test).of
        yes = self._conditional()
        self.expect(":")
        no = self._conditional()
        kind = common(token, yes, no)
        return Value(
            kind,
            yes.nullable or no.nullable,
            lambda row: yes.of(row) if decide(row) else no.of(row),
            is_bare_conditional=True,
        )

    def _coalescing(self) -> Value:
        left = self._binary(0)
        token = self.token
        if not self.accept("??"):
            return left
        right = self._coalescing()
        if not left.nullable or left.kind == "null":
            do = "leave out the ?? and its right side"
            refuse(token, "never-null", "the left side of ?? cannot be null", do)

        def of(row: Mapping[str, Any]) -> Any:
            value = left.of(row)
            return right.of(row) if value is None else value

        return Value(common(token, left, right), right.nullable, of, is_bare_conditional=True)

    def _binary(self, level: int) -> Value:
        if level == len(_OPERATORS):
            return self._unary()
        symbols, combine = _OPERATORS[level]
        left = self._binary(level + 1)
        while True:
            if combine is relational and self.accept("IS"):
                left = self._null_test(left)
            elif self.token.kind == "symbol" and self.token.text in symbols:
                token = self.advance()
                left = combine(left, token, self._binary(level + 1))
            else:
                return left

    def _null_test(self, value: Value) -> Value:
        is_not = self.accept("NOT")
        self.expect("NULL")
        return Value("bool", nullable=False, of=lambda row: (value.of(row) is None) != is_not)

    def _unary(self) -> Value:
        token = self.token
        if self.accept("!"):
            return self._negated(token, self._unary())
        if self.accept("-"):
            inner = self._unary()
            if inner.kind not in (*SMALL, "int", "long", "double"):
                problem = f"-({inner.type}) is not supported"
                refuse(token, "arithmetic", problem, "cast it to int, long or double")
            return arithmetic(Value("int", nullable=False, of=lambda _: 0), token, inner)
        if target := self._cast_type():
            return cast_to(token, target, self._unary())
        return self._postfix(self._primary())

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
            return Value(token.kind, nullable=False, of=lambda _: token.value, literal=token.value)
        if token.kind == "number":
            return self._number(token)
        if token.kind not in ("name", "quoted") or token.is_keyword(*KEYWORDS):
            actual = repr(token.text) if token.text else "the end"
            problem = f"{actual} is not a supported expression"
            refuse(token, "not-supported", problem, "use columns and literals")
        return self._word(token)

    def _word(self, token: Token) -> Value:
        if token.is_keyword("null"):
            return Value("null", nullable=True, of=lambda _: None)
        if token.is_keyword("true", "false"):
            return Value("bool", nullable=False, of=lambda _: token.text == "true")
        if token.is_keyword("DateTime") and token.text not in self.columns and self.accept("."):
            return self._date_constant()
        return self.column(token)

    def _number(self, token: Token) -> Value:
        match = re.fullmatch(r"(\d+)([lL]?)|(\d*\.\d+|\d+)[dD]?", token.text)
        if match is None:
            refuse(token, "number", f"the number {token.text} is not supported", "write 1, 1L or 1.5")
        if match[1] is None:
            double = float(match[3])
            return Value("double", nullable=False, of=lambda _: double)
        number = int(match[1])
        if number > _LONG_MAX:
            refuse(token, "number", f"{token.text} is larger than a long", "use a smaller number")
        if number > _INT_MAX and not match[2]:
            refuse(token, "number", f"{token.text} is larger than an int", "write an L after it")
        return Value("long" if match[2] else "int", nullable=False, of=lambda _: number)

    def _date_constant(self) -> Value:
        token = self.advance()
        constants = {"UtcNow": datetime.now(UTC), "MinValue": datetime.min.replace(tzinfo=UTC)}
        if token.text not in constants:
            problem = f"DateTime.{token.text} is not supported"
            refuse(token, "not-supported", problem, "use DateTime.UtcNow or MinValue")
        return Value("DateTime", nullable=False, of=lambda _: constants[token.text])

    def column(self, token: Token) -> Value:
        """Return the column that a token names."""
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
                value = self._element(value, self.advance())
            elif self.is_next("("):
                problem = "calls of this kind are not supported"
                refuse(self.token, "not-supported", problem, "use columns and literals")
            else:
                return value

    def _element(self, value: Value, token: Token) -> Value:
        index = self.advance()
        self.expect("]")
        if value.kind != "strings" or not re.fullmatch(r"\d{1,9}", index.text):
            refuse(token, "not-supported", "only x.Split('c')[0] has an index here", "use a number from 0 on")
        number = int(index.text)

        def of(row: Mapping[str, Any]) -> str:
            parts: list[str] = value.of(row)
            if number >= len(parts):
                raise InputError(f"[{number}] is outside of the {len(parts)} parts of Split.")
            return parts[number]

        return Value("string", nullable=False, of=of)

    def _member(self, value: Value, token: Token) -> Value:
        arguments: list[Value] = []
        is_call = self.accept("(")
        if is_call and not self.accept(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
        kinds = [argument.kind for argument in arguments]
        if is_call and (token.text, value.kind, kinds) == ("Split", "string", ["char"]):
            return split(value, arguments[0].literal or "")
        if is_call and (token.text, value.kind, kinds) == ("ToString", "DateTime", ["string"]):
            return date_text(value, token, arguments[0].literal)
        if not is_call or token.text != "ToString" or kinds or value.kind not in (*INTEGRAL, "bool"):
            problem = f".{token.text} on a {value.type} is not supported"
            do = "use Split('c')[n], ToString() of whole numbers or booleans, or DateTime.ToString(…)"
            refuse(token, "not-supported", problem, do)
        return as_text(token, value)
