"""A SCOPE query as Spark SQL, for the shapes that dbt-scope's models have; all else is refused.

The text assumes a Spark session with ``spark.sql.ansi.enabled=true`` and
``spark.sql.session.timeZone=UTC``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.script.lexer import KEYWORDS, ScriptError, Token, refuse, tokens
from airflow_provider_scope.script.lowering import Scalar, condition
from airflow_provider_scope.script.scalar import ScalarParser

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Translation:
    """A query as Spark SQL."""

    sql: str
    columns: dict[str, str]
    """Its columns in order: name -> SCOPE type."""
    rowset: str
    """The rowset that it reads."""
    picks: list[str] | None
    """Which columns of the rowset they are, if it only picks and renames columns."""


def translate(select_text: str, rowsets: Mapping[str, Mapping[str, str]]) -> Translation:
    """Give a SCOPE query as Spark SQL.

    :param rowsets: Rowset without its ``@`` -> column -> SCOPE type. Spark must know each rowset as a view
        of the same name.
    :raises ScriptError: The query is not of the supported shapes; the error has a code, a place and advice.
    """
    found = tokens(select_text)
    for token in found:
        if token.kind in ("directive", "parameter", "system"):
            refuse(
                token, token.kind, f"{token.text} is not supported inside a query", "write the value itself"
            )
    source, alias = _source(found, rowsets)
    parser = ScalarParser(found, rowsets[source.value], alias or source.value)
    try:
        return _Query(parser, source, alias).translate()
    except RecursionError as error:
        raise ScriptError("too-deep", 1, 1, "the query nests too deeply", "use fewer brackets") from error


def _source(found: list[Token], rowsets: Mapping[str, Mapping[str, str]]) -> tuple[Token, str | None]:
    """Find the rowset after FROM first: the items before it need its columns."""
    start = next((place for place, token in enumerate(found) if token.is_keyword("FROM")), None)
    if start is None:
        refuse(found[-1], "no-from", "the query has no FROM", "write SELECT … FROM @data")
    source = found[start + 1]
    if source.kind != "variable":
        refuse(
            source, "not-a-rowset", f"{source.text!r} is not a rowset", "select from a rowset such as @data"
        )
    if source.value not in rowsets:
        known = ", ".join(f"@{name}" for name in rowsets)
        refuse(source, "unknown-rowset", f"{source.text} is not assigned above", f"use one of {known}")
    lower = [name.lower() for name in rowsets[source.value]]
    if len(set(lower)) != len(lower):
        refuse(
            source, "ambiguous", f"{source.text} has columns that differ only in case", "rename one of them"
        )
    alias = None
    if found[start + 2].is_keyword("AS"):
        alias = found[start + 3].value
        if found[start + 3].kind not in ("name", "quoted") or alias in KEYWORDS:
            refuse(found[start + 3], "syntax", "AS needs a name", "write FROM @data AS d")
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
        parser.place += 3 if self.alias else 1
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
            for each in parser.columns:
                column = Token("quoted", each, each, token.start, token.end, token.line, token.column)
                self.items.append((token, each, parser.column(column)))
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
        if test.aggregate:
            refuse(token, "aggregate", "WHERE holds an aggregate", "filter in a second query")
        return f" WHERE {test.sql}"

    def groups(self) -> str:
        if not self.parser.accept("GROUP"):
            return ""
        self.parser.expect("BY")
        found = [self.group()]
        while self.parser.accept(","):
            found.append(self.group())
        return " GROUP BY " + ", ".join(found)

    def group(self) -> str:
        token = self.parser.token
        value = self.parser.expression()
        # Spark reads GROUP BY 1 as the first item.
        if not value.plain or value.aggregate:
            refuse(token, "group-by", "this is the same for all rows, or an aggregate", "group by columns")
        return value.sql

    def check(self, *, grouped: bool) -> None:
        seen = set()
        for token, name, _ in self.items:
            if name.lower() in seen:
                refuse(token, "ambiguous", f"the query has two columns {name}", "rename one with AS")
            seen.add(name.lower())
        if not grouped and any(value.aggregate for *_, value in self.items):
            for token, name, value in self.items:
                if value.plain:
                    refuse(
                        token,
                        "implicit-group-by",
                        f"{name} is neither grouped nor inside an aggregate",
                        "write the GROUP BY",
                    )
