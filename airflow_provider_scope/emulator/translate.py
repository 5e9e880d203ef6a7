"""Translating SCOPE queries to Spark SQL: the shapes that dbt-scope's models have, and no others.

The SQL assumes a Spark session with ``spark.sql.ansi.enabled=true`` and
``spark.sql.session.timeZone=UTC``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.emulator.lowering import (
    INTEGRAL,
    NUMERIC,
    SMALL,
    Scalar,
    aggregate_kind,
    arithmetic,
    as_text,
    boolean,
    cast_to,
    common,
    condition,
    date_text,
    equality,
    not_null,
    refuse_bare_conditionals,
    relational,
)
from airflow_provider_scope.scope.check import KEYWORDS, ScriptError, Token, error_at, refuse, tokens
from airflow_provider_scope.scope.statements import ScopeType, parse_type
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Translation:
    """A query as Spark SQL."""

    sql: str
    columns: dict[str, str]
    """Its columns in order: name -> SCOPE type."""
    rowset: str
    """The rowset that it reads."""
    picks: list[str] | None
    """The columns of the rowset in order, if the query only picks and renames columns; None otherwise."""


def translate(select_text: str, rowsets: Mapping[str, Mapping[str, str]]) -> Translation:
    """Translate a SCOPE query to Spark SQL.

    :param rowsets: Rowset without its ``@`` -> column -> SCOPE type. Spark must know each rowset as a view
        of the same name.
    :raises ScriptError: The query is not of the supported shapes; the error has a code, a place and advice.
    """
    query_tokens = tokens(select_text)
    for token in query_tokens:
        if token.kind in ("directive", "parameter", "system"):
            refuse(
                token, token.kind, f"{token.text} is not supported inside a query", "write the value itself"
            )
    source, alias = _source(query_tokens, rowsets)
    parser = ScalarParser(query_tokens, rowsets[source.value], alias or source.value)
    try:
        return _Query(parser, source, alias).translate()
    except RecursionError as error:
        raise ScriptError("too-deep", 1, 1, "the query nests too deeply", "use fewer brackets") from error


def _source(query_tokens: list[Token], rowsets: Mapping[str, Mapping[str, str]]) -> tuple[Token, str | None]:
    """Read the rowset after FROM, and its alias. It comes first: the items before it need its columns."""
    start = next((position for position, token in enumerate(query_tokens) if token.is_keyword("FROM")), None)
    if start is None:
        refuse(query_tokens[-1], "no-from", "the query has no FROM", "write SELECT … FROM @data")
    source = query_tokens[start + 1]
    if source.kind != "variable":
        refuse(
            source, "not-a-rowset", f"{source.text!r} is not a rowset", "select from a rowset such as @data"
        )
    if source.value not in rowsets:
        names = ", ".join(f"@{name}" for name in rowsets)
        refuse(source, "unknown-rowset", f"{source.text} is not assigned above", f"use one of {names}")
    lower_names = [name.lower() for name in rowsets[source.value]]
    if len(set(lower_names)) != len(lower_names):
        refuse(
            source, "ambiguous", f"{source.text} has columns that differ only in case", "rename one of them"
        )
    alias = None
    if query_tokens[start + 2].is_keyword("AS"):
        alias = query_tokens[start + 3].value
        if query_tokens[start + 3].kind not in ("name", "quoted") or alias in KEYWORDS:
            refuse(query_tokens[start + 3], "syntax", "AS needs a name", "write FROM @data AS d")
    return source, alias


class _Query:
    def __init__(self, parser: ScalarParser, source: Token, alias: str | None) -> None:
        self.parser = parser
        self.source = source
        self.alias = alias
        self.items: list[tuple[Token, str, Scalar]] = []

    def translate(self) -> Translation:
        parser = self.parser
        parser.expect("SELECT")
        distinct = "DISTINCT " if parser.accept("DISTINCT") else ""
        self.item()
        while parser.accept(","):
            self.item()
        parser.expect("FROM")
        parser.position += 3 if self.alias else 1
        where = self.where()
        groups = self.groups()
        token = parser.token
        if token.kind != "end":
            refuse(
                token,
                "not-supported",
                f"{token.text!r} is not supported",
                "use SELECT … FROM @rowset WHERE … GROUP BY …, one rowset and no sub-query",
            )
        self.check(grouped=bool(groups))
        items = ", ".join(f"{value.sql} AS {quoted(name)}" for _, name, value in self.items)
        relation = quoted(self.source.value) + (f" AS {quoted(self.alias)}" if self.alias else "")
        sql = f"SELECT {distinct}{items} FROM {relation}{where}{groups}"  # noqa: S608 - made of tokens
        if "${" in sql:
            raise ScriptError("name", 1, 1, "a name holds ${, which Spark fills in", "rename the column")
        picks = [value.name for *_, value in self.items if value.name]
        only_picks = len(picks) == len(self.items) and not (distinct or where or groups)
        columns = {name: value.type for _, name, value in self.items}
        return Translation(sql, columns, self.source.value, picks if only_picks else None)

    def item(self) -> None:
        parser = self.parser
        token = parser.token
        if parser.accept("*"):
            for column in parser.columns:
                column_token = Token(
                    "quoted", column, column, token.start, token.end, token.line, token.column
                )
                self.items.append((token, column, parser.column(column_token)))
            return
        value = parser.expression()
        if value.kind in ("null", "char", "strings"):
            refuse(token, "no-type", "this item has no column type", "cast it, for example (int?)null")
        name: str | None = value.name
        if parser.accept("AS"):
            alias = parser.advance()
            if alias.kind not in ("name", "quoted") or alias.is_keyword(*KEYWORDS):
                refuse(alias, "syntax", "AS needs a name", "write x AS name")
            name = alias.value
        if name is None:
            refuse(token, "no-alias", "this item has no name", "give it one with AS")
        self.items.append((token, name, value))

    def where(self) -> str:
        token = self.parser.token
        if not self.parser.accept("WHERE"):
            return ""
        test = condition(token, self.parser.expression())
        if test.has_aggregate:
            refuse(token, "aggregate", "WHERE holds an aggregate", "filter in a second query")
        return f" WHERE {test.sql}"

    def groups(self) -> str:
        if not self.parser.accept("GROUP"):
            return ""
        self.parser.expect("BY")
        expressions = [self.group()]
        while self.parser.accept(","):
            expressions.append(self.group())
        return " GROUP BY " + ", ".join(expressions)

    def group(self) -> str:
        token = self.parser.token
        value = self.parser.expression()
        # Spark reads GROUP BY 1 as the first item.
        if not value.has_bare_column or value.has_aggregate:
            refuse(token, "group-by", "this is the same for all rows, or an aggregate", "group by columns")
        return value.sql

    def check(self, *, grouped: bool) -> None:
        names = set()
        for token, name, _ in self.items:
            if name.lower() in names:
                refuse(token, "ambiguous", f"the query has two columns {name}", "rename one with AS")
            names.add(name.lower())
        if not grouped and any(value.has_aggregate for *_, value in self.items):
            for token, name, value in self.items:
                if value.has_bare_column:
                    refuse(
                        token,
                        "implicit-group-by",
                        f"{name} is neither grouped nor inside an aggregate",
                        "write the GROUP BY",
                    )


# ---- C# expressions over columns ----

_TYPE_WORDS = (*NUMERIC, "bool", "string", "DateTime", "Guid")
_INT_MAX, _UINT_MAX, _LONG_MAX = 2**31 - 1, 2**32 - 1, 2**63 - 1
_AGGREGATES = ("COUNT", "SUM", "MIN", "MAX", "AVG")
_OPERATORS: tuple[tuple[tuple[str, ...], Callable[[Scalar, Token, Scalar], Scalar]], ...] = (
    (("||",), boolean),
    (("&&",), boolean),
    (("==", "!="), equality),
    (("<", ">", "<=", ">="), relational),
    (("+", "-"), arithmetic),
    (("*", "/", "%"), arithmetic),
)
"""From the operators that bind most loosely to those that bind most tightly."""


class ScalarParser:
    """Reads expressions, beginning at the token at ``position``.

    :param columns: Name -> SCOPE type.
    :param relation: The name of the rows, by which columns may be qualified.
    """

    def __init__(self, query_tokens: list[Token], columns: Mapping[str, str], relation: str) -> None:
        self.tokens = query_tokens
        self.position = 0
        self.columns = columns
        self.relation = relation
        self.inside_aggregate = False

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def _peek(self, count: int = 1) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def advance(self) -> Token:
        """Step over the next token and give it."""
        token = self.token
        self.position += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        """Step over this symbol or keyword if it is next; tell whether it was."""
        is_next = self.token.is_symbol(text) or self.token.is_keyword(text)
        self.position += is_next
        return is_next

    def expect(self, text: str) -> None:
        """Step over this symbol or keyword; refuse anything else."""
        if not self.accept(text):
            actual = repr(self.token.text) if self.token.text else "the end"
            refuse(self.token, "syntax", f"expected {text!r}, found {actual}", f"write {text!r} here")

    def expression(self) -> Scalar:
        left = self._conjunction()
        while self.token.is_keyword("OR"):
            left = self._logical(left, self.advance(), self._conjunction())
        if self.token.is_symbol("="):
            refuse(self.token, "single-equals", "a single = compares nothing in C#", "write ==")
        if self.token.is_keyword("IN", "NOT", "BETWEEN", "LIKE") or self.token.text in ("|", "&", "^", "<<"):
            refuse(
                self.token,
                "not-supported",
                f"{self.token.text} is not supported",
                "use comparisons with && and ||",
            )
        return left

    def _conjunction(self) -> Scalar:
        left = self._negation()
        while self.token.is_keyword("AND"):
            left = self._logical(left, self.advance(), self._negation())
        return left

    def _negation(self) -> Scalar:
        if self.token.is_keyword("NOT"):
            token = self.advance()
            inner = self._negation()
            refuse_bare_conditionals(token, inner)
            return inner.combined(f"(NOT {condition(token, inner).sql})", "bool")
        return self._conditional()

    def _logical(self, left: Scalar, token: Token, right: Scalar) -> Scalar:
        refuse_bare_conditionals(token, left, right)
        return boolean(left, token, right)

    def _conditional(self) -> Scalar:
        test = self._coalescing()
        if not self.token.is_symbol("?"):
            return test
        token = self.advance()
        condition(token, test)
        yes = self._conditional()
        self.expect(":")
        no = self._conditional()
        kind = common(token, yes, no)
        nullable = yes.nullable or no.nullable
        sql = f"(CASE WHEN {test.sql} THEN {yes.sql} ELSE {no.sql} END)"
        return replace(test.combined(sql, kind, yes, no, nullable=nullable), is_bare_conditional=True)

    def _coalescing(self) -> Scalar:
        left = self._binary(0)
        if not self.token.is_symbol("??"):
            return left
        token = self.advance()
        right = self._coalescing()
        if not left.nullable or left.kind == "null":
            refuse(
                token,
                "never-null",
                "the left side of ?? cannot be null",
                "leave out the ?? and its right side",
            )
        kind = common(token, left, right)
        sql = f"coalesce({left.sql}, {right.sql})"
        return replace(left.combined(sql, kind, right, nullable=right.nullable), is_bare_conditional=True)

    def _binary(self, level: int) -> Scalar:
        if level == len(_OPERATORS):
            return self._unary()
        symbols, combine = _OPERATORS[level]
        left = self._binary(level + 1)
        while True:
            if combine is relational and self.token.is_keyword("IS"):
                left = self._is_null(left)
            elif self.token.kind == "symbol" and self.token.text in symbols:
                token = self.advance()
                left = combine(left, token, self._binary(level + 1))
            else:
                return left

    def _is_null(self, left: Scalar) -> Scalar:
        self.advance()
        is_not = "NOT " if self.accept("NOT") else ""
        self.expect("NULL")
        return left.combined(f"({left.sql} IS {is_not}NULL)", "bool")

    def _unary(self) -> Scalar:
        token = self.token
        if self.accept("!"):
            inner = condition(token, self._unary())
            return inner.combined(f"(NOT {inner.sql})", "bool")
        if self.accept("-"):
            inner = self._unary()
            if inner.kind not in (*SMALL, "int", "long", "double"):
                refuse(
                    token, "arithmetic", f"-({inner.type}) is not supported", "cast it to int, long or double"
                )
            kind = "int" if inner.kind in SMALL else inner.kind
            sql = f"(- CAST({inner.sql} AS {parse_type(kind).spark}))"
            return inner.combined(sql, kind, nullable=inner.nullable)
        if target := self._cast_type():
            return cast_to(token, target, self._unary())
        return self._postfix(self._primary())

    def _cast_type(self) -> ScopeType | None:
        """Read ``(T)`` or ``(T?)`` if it is a cast; None otherwise."""
        if not self.token.is_symbol("(") or not self._peek().is_keyword(*_TYPE_WORDS):
            return None
        has_mark = self._peek(2).is_symbol("?") and not self._peek().is_keyword("string")
        if not self._peek(2 + has_mark).is_symbol(")"):
            return None
        word = self._peek().text
        after = self._peek(3 + has_mark)
        if word in ("DateTime", "Guid") and (
            after.kind == "end"
            or after.is_symbol("-")
            or (after.kind == "symbol" and after.text not in ("(", "!"))
        ):
            return None
        self.position += 3 + has_mark
        return parse_type(word + "?" * has_mark)

    def _primary(self) -> Scalar:
        token = self.advance()
        if token.is_symbol("("):
            inner = self.expression()
            self.expect(")")
            return replace(inner, is_bare_conditional=False)
        if token.kind in ("string", "char"):
            return Scalar(literal(token.value), token.kind, nullable=False, constant=token.value)
        if token.kind == "number":
            return self._number(token)
        if token.is_keyword(*_AGGREGATES) and self.token.is_symbol("("):
            return self._aggregate(token)
        if token.kind == "quoted" or (token.kind == "name" and token.text not in KEYWORDS):
            return self._word(token)
        actual = repr(token.text) if token.text else "the end"
        raise error_at(
            token,
            "not-supported",
            f"{actual} is not a supported expression",
            "use columns and literals",
        )

    def _word(self, token: Token) -> Scalar:
        if token.is_keyword("null"):
            return Scalar("NULL", "null", nullable=True)
        if token.is_keyword("true", "false"):
            return Scalar(token.text, "bool", nullable=False)
        if token.kind == "name" and token.text not in self.columns:
            if token.text == "DateTime" and self.accept("."):
                return self._date_constant()
            if token.text in ("string", "String") and self.accept("."):
                return self._is_null_or_empty()
        return self.column(token)

    def _number(self, token: Token) -> Scalar:
        match = re.fullmatch(r"(\d+)([lL]?)|(\d*\.\d+|\d+)[dD]?", token.text)
        if match is None:
            refuse(token, "number", f"the number {token.text} is not supported", "write 1, 1L or 1.5")
        if match[1] is None:
            return Scalar(f"CAST('{match[3]}' AS DOUBLE)", "double", nullable=False)
        value = int(match[1])
        if value > _LONG_MAX:
            refuse(token, "number", f"{token.text} is larger than a long", "use a smaller number")
        if match[2] or value > _UINT_MAX:
            return Scalar(f"{value}L", "long", nullable=False)
        if value > _INT_MAX:
            return Scalar(f"{value}L", "uint", nullable=False)
        return Scalar(str(value), "int", nullable=False)

    def _date_constant(self) -> Scalar:
        token = self.advance()
        if token.text == "UtcNow":
            return Scalar("current_timestamp()", "DateTime", nullable=False)
        if token.text == "MinValue":
            return Scalar("TIMESTAMP '0001-01-01 00:00:00Z'", "DateTime", nullable=False)
        raise error_at(
            token,
            "not-supported",
            f"DateTime.{token.text} is not supported",
            "use DateTime.UtcNow or MinValue",
        )

    def _is_null_or_empty(self) -> Scalar:
        token = self.advance()
        if token.text != "IsNullOrEmpty":
            refuse(
                token, "not-supported", f"string.{token.text} is not supported", "use string.IsNullOrEmpty(x)"
            )
        self.expect("(")
        value = self.expression()
        self.expect(")")
        if value.kind != "string":
            refuse(
                token, "type-mismatch", f"IsNullOrEmpty takes a string, not {value.type}", "give it a string"
            )
        return value.combined(f"(coalesce({value.sql}, '') = '')", "bool")

    def column(self, token: Token) -> Scalar:
        """Give the column that a token names."""
        if token.value == self.relation and token.value not in self.columns and self.accept("."):
            token = self.advance()
        kind = self.columns.get(token.value) if token.kind in ("name", "quoted") else None
        if kind is None:
            refuse(
                token,
                "unknown-column",
                f"{token.text} is not a column",
                "use one of " + ", ".join(self.columns) + "; upper and lower case differ",
            )
        column_type = parse_type(kind)
        sql = f"{quoted(self.relation)}.{quoted(token.value)}"
        return Scalar(
            sql,
            column_type.name,
            column_type.nullable,
            name=token.value,
            has_bare_column=not self.inside_aggregate,
        )

    def _postfix(self, value: Scalar) -> Scalar:
        while True:
            if self.token.is_symbol("."):
                self.advance()
                value = self._member(value, self.advance())
            elif self.token.is_symbol("["):
                value = self._element(value, self.advance())
            elif self.token.is_symbol("("):
                refuse(
                    self.token,
                    "not-supported",
                    "calls of this kind are not supported",
                    "use columns and literals",
                )
            else:
                return value

    def _element(self, value: Scalar, token: Token) -> Scalar:
        index = self.advance()
        self.expect("]")
        if value.kind != "strings" or not re.fullmatch(r"\d{1,9}", index.text):
            refuse(token, "not-supported", "only x.Split('c')[0] has an index here", "use a number from 0 on")
        return replace(value.combined(f"{value.sql}[{index.text}]", "string"), may_raise=True)

    def _member(self, value: Scalar, token: Token) -> Scalar:
        arguments: list[Scalar] = []
        if self.accept("(") and not self.accept(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
        constants = [argument.constant for argument in arguments]
        kinds = [argument.kind for argument in arguments]
        called = self.tokens[self.position - 1].is_symbol(")")
        if called and token.text == "Split" and value.kind == "string" and kinds == ["char"]:
            receiver = not_null(value, "Split was called on a null string")
            pattern = literal(re.escape(constants[0] or ""))
            return replace(
                receiver.combined(f"split({receiver.sql}, {pattern})", "strings"),
                may_raise=receiver.may_raise,
            )
        if called and token.text == "ToString" and not kinds and value.kind in (*INTEGRAL, "bool", "Guid"):
            return as_text(token, value)
        if called and token.text == "ToString" and value.kind == "DateTime" and kinds == ["string"]:
            return date_text(value, token, constants[0])
        raise error_at(
            token,
            "not-supported",
            f".{token.text} on a {value.type} is not supported",
            "use Split('c')[n], ToString() of whole numbers and booleans, or DateTime.ToString(\"yyyyMMdd\")",
        )

    def _aggregate(self, token: Token) -> Scalar:
        if self.inside_aggregate:
            refuse(token, "nested-aggregate", "an aggregate is inside another one", "use two steps")
        self.advance()
        if token.text == "COUNT" and (self.accept(")") or (self.accept("*") and self.accept(")"))):
            return Scalar("count(*)", "long", nullable=False, has_aggregate=True)
        distinct = "DISTINCT " if token.text == "COUNT" and self.accept("DISTINCT") else ""
        self.inside_aggregate = True
        value = self.expression()
        self.inside_aggregate = False
        self.expect(")")
        kind = aggregate_kind(token, value)
        sql = f"{token.text.lower()}({distinct}{value.sql})"
        return Scalar(
            sql, kind, nullable=token.text != "COUNT", has_aggregate=True, may_raise=value.may_raise
        )
