"""Scripts as statements: those that the product and dbt-scope write, and no others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import (
    BRACKETS,
    VIRTUAL_FUNCTIONS,
    Token,
    Value,
    check_bracket,
    parse_type,
    refuse,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

# ---- statements ----


@dataclass(frozen=True, slots=True)
class Fragment:
    """A query as written; it is read once the columns of its rowset are known."""

    text: str
    tokens: tuple[Token, ...] = field(default=(), compare=False, repr=False)
    """With an ``end``; they know their places in the script."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or of files."""

    name: str
    type: str
    """The SCOPE type in its short form, ``int?`` for example."""

    @property
    def nullable(self) -> bool:
        """By its type: ``int`` cannot hold null, ``int?`` and ``string`` can."""
        return parse_type(self.type).nullable


@dataclass(frozen=True, slots=True)
class VirtualColumn:
    """A column that describes the file of a row, by one of ``VIRTUAL_FUNCTIONS``."""

    name: str
    function: str


@dataclass(frozen=True, slots=True)
class SetVariable:
    """``SET @@name = value;``."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class DeclareConstant:
    """``#DECLARE @name string = value;``."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE IF NOT EXISTS @name (…) [PARTITIONED BY (…)] LOCATION … OPTIONS (…);``."""

    name: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    location: str
    """The location itself; a constant is resolved."""


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ALTER TABLE @table SET TBLPROPERTIES ("key" = value, …);``."""

    table: str
    properties: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ALTER TABLE @table ADD COLUMN IF NOT EXISTS name type;``."""

    table: str
    column: Column


@dataclass(frozen=True, slots=True)
class DeclareTable:
    """``DECLARE TABLE @name LOCATION … OPTIONS (LAYOUT = DELTA);``: bind a table that exists."""

    name: str
    location: str


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM @table WHERE true;``."""

    table: str


@dataclass(frozen=True, slots=True)
class Extract:
    """``@rowset = EXTRACT … FROM "…", … USING Extractors.SStream();``."""

    rowset: str
    columns: tuple[Column, ...]
    virtual: tuple[VirtualColumn, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """``@rowset = SELECT …;``."""

    rowset: str
    select: Fragment


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO @table [(column, …)] SELECT …;``."""

    table: str
    select: Fragment
    columns: tuple[str, ...] = ()
    """The columns of the table that the SELECT gives, in its order; empty is the table's, by position."""


Statement = (
    SetVariable
    | DeclareConstant
    | CreateTable
    | AlterTable
    | AddColumn
    | DeclareTable
    | Delete
    | Extract
    | Assign
    | Insert
)


def parse(script: str) -> list[Statement]:
    """Return the statements of a script, in order; a lone ``;`` is none.

    :raises ScriptError: The text is not a script of supported statements; the error has line and column.
    """
    return _Parser(script).script()


class TokenReader:
    """Steps over tokens; the last one is ``end``."""

    def __init__(self, script_tokens: Sequence[Token]) -> None:
        self.tokens = script_tokens
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, count: int) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        self.position += token.kind != "end"
        return token

    def is_next(self, *texts: str) -> bool:
        """Return whether one of these symbols or keywords is next."""
        return self.token.kind in ("symbol", "name") and self.token.text in texts

    def accept(self, text: str) -> bool:
        """Step over this symbol or keyword if it is next."""
        is_next = self.is_next(text)
        self.position += is_next
        return is_next

    def expect(self, *texts: str) -> None:
        """Step over these symbols and keywords."""
        for text in texts:
            if not self.accept(text):
                self.fail(repr(text))

    def listed(self, read: Callable[[], _T]) -> list[_T]:
        """Read one or more items with commas between them."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return items

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        actual = repr(token.text) if token.text else "the end"
        refuse(token, "syntax", f"expected {expected}, found {actual}", f"write {expected} here")


class _Parser(TokenReader):
    def __init__(self, text: str) -> None:
        super().__init__(tokens(text))
        self.text = text
        self.constants: dict[str, str] = {}

    def take(self, kind: str, expected: str) -> str:
        if self.token.kind != kind:
            self.fail(expected)
        return self.advance().value

    def name(self) -> str:
        if self.token.kind not in ("name", "quoted"):
            self.fail("a name")
        return self.advance().value

    def names(self) -> tuple[str, ...]:
        """Read names in brackets; each may occur once, in any case."""
        self.expect("(")
        names: dict[str, str] = {}
        while not names or self.accept(","):
            token = self.token
            name = self.name()
            if name.lower() in names:
                self.fail("each name once", token)
            names[name.lower()] = name
        self.expect(")")
        return tuple(names.values())

    def script(self) -> list[Statement]:
        statements: list[Statement] = []
        while self.token.kind != "end":
            if not self.accept(";"):
                statements.append(self.statement())
                self.expect(";")
        return statements

    def statement(self) -> Statement:
        token = self.token
        if token.kind == "directive":
            return self.constant()
        if token.kind == "variable":
            return self.rowset()
        readers: dict[str, Callable[[], Statement]] = {
            "SET": self.setting,
            "CREATE": self.create,
            "ALTER": self.alter,
            "DECLARE": self.declare,
            "DELETE": self.delete,
            "INSERT": self.insert,
        }
        reader = readers.get(token.text) if token.kind == "name" else None
        if reader is None:
            refuse(
                token,
                "unknown-statement",
                f"no supported statement starts with {token.text!r}",
                "use #DECLARE, @rows = …, or one that starts with " + ", ".join(readers),
            )
        self.advance()
        return reader()

    def table(self) -> str:
        return self.take("variable", "a table such as @target")

    def alter(self) -> AlterTable | AddColumn:
        self.expect("TABLE")
        table = self.table()
        if self.accept("ADD"):
            self.expect("COLUMN", "IF", "NOT", "EXISTS")
            return AddColumn(table, self.column())
        self.expect("SET", "TBLPROPERTIES", "(")
        properties = self.listed(self.table_property)
        self.expect(")")
        return AlterTable(table, tuple(properties))

    def table_property(self) -> tuple[str, Value]:
        key = self.take("string", 'a key such as "delta.appendOnly"')
        self.expect("=")
        return key, self.value()

    def declare(self) -> DeclareTable:
        self.expect("TABLE")
        return DeclareTable(self.table(), self.location())

    def delete(self) -> Delete:
        self.expect("FROM")
        table = self.table()
        self.expect("WHERE", "true")
        return Delete(table)

    def insert(self) -> Insert:
        self.expect("INTO")
        table = self.table()
        columns = self.names() if self.is_next("(") else ()
        return Insert(table, self.select(), columns)

    def setting(self) -> SetVariable:
        name = self.take("system", "a setting such as @@FeaturePreviews")
        self.expect("=")
        return SetVariable(name, self.value())

    def constant(self) -> DeclareConstant:
        token = self.token
        if token.value != "DECLARE":
            refuse(token, "directive", f"the directive {token.text} is not supported", "use #DECLARE alone")
        self.advance()
        start = self.token
        name = self.take("variable", "a constant such as @deltaPath")
        self.expect("string", "=")
        value = self.take("string", "a string")
        if name in self.constants:
            refuse(start, "declared-twice", f"@{name} is declared twice", "remove one of them")
        self.constants[name] = value
        return DeclareConstant(name, value)

    def create(self) -> CreateTable:
        self.expect("TABLE", "IF", "NOT", "EXISTS")
        name = self.table()
        self.expect("(")
        columns = self.listed(self.column)
        self.expect(")")
        partition_by: tuple[str, ...] = ()
        if self.accept("PARTITIONED"):
            self.expect("BY")
            partition_by = self.names()
        return CreateTable(name, tuple(columns), partition_by, self.location())

    def location(self) -> str:
        self.expect("LOCATION")
        token = self.advance()
        if token.kind not in ("string", "variable"):
            self.fail("a string or a constant", token)
        value = token.value if token.kind == "string" else self.constants.get(token.value)
        if value is None:
            advice = f'add #DECLARE {token.text} string = "…";'
            refuse(token, "undeclared", f"{token.text} is not declared", advice)
        self.expect("OPTIONS", "(", "LAYOUT", "=", "DELTA", ")")
        return value

    def rowset(self) -> Extract | Assign:
        rowset = self.advance().value
        self.expect("=")
        if not self.accept("EXTRACT"):
            return Assign(rowset, self.select())
        columns = self.listed(lambda: self.virtual() if self.peek(1).is_symbol("=") else self.column())
        self.expect("FROM")
        files = self.listed(lambda: self.take("string", "a file"))
        self.expect("USING", "Extractors", ".", "SStream", "(", ")")
        return Extract(
            rowset,
            tuple(column for column in columns if isinstance(column, Column)),
            tuple(column for column in columns if isinstance(column, VirtualColumn)),
            tuple(files),
        )

    def virtual(self) -> VirtualColumn:
        name = self.name()
        self.expect("=")
        token = self.token
        self.expect("FILE", ".")
        function = f"FILE.{self.name()}"
        self.expect("(", ")")
        functions = VIRTUAL_FUNCTIONS.values()
        if function not in functions:
            self.fail("one of " + ", ".join(f"{supported}()" for supported in functions), token)
        return VirtualColumn(name, function)

    def column(self) -> Column:
        name = self.name()
        self.accept(":")
        first = self.token
        depth = 0
        while self.token.kind in ("name", "symbol"):
            token = self.token
            depth += {"<": 1, "[": 1, ">": -1, "]": -1}.get(token.text, 0)
            if token.is_keyword("FROM") or (token.kind == "symbol" and token.text not in "<>[].?,"):
                break
            if token.is_symbol(",") and depth == 0:
                break
            self.advance()
        if self.token is first:
            self.fail("a type")
        try:
            return Column(name, parse_type(self.text_from(first)).text)
        except InputError as error:
            refuse(first, "unknown-type", error.what, error.do)

    def value(self) -> Value:
        sign = -1 if self.accept("-") else 1
        token = self.advance()
        if token.kind == "number" and re.fullmatch(r"[\d.]+([eE][+-]?\d+)?", token.text):
            return sign * (int(token.text) if token.text.isdigit() else float(token.text))
        if sign > 0 and token.kind == "string":
            return token.value
        if sign < 0 or not token.is_keyword("true", "false"):
            self.fail("a string, a decimal number, true or false", token)
        return token.text == "true"

    def text_from(self, first: Token) -> str:
        """Return the text from a token to the newest one that was read."""
        return self.text[first.start : self.tokens[self.position - 1].end]

    def select(self) -> Fragment:
        """Read a SELECT, up to the ``;`` that ends the statement."""
        if not self.is_next("SELECT"):
            self.fail("SELECT")
        start = self.position
        opened: list[Token] = []
        while not (self.token.kind == "end" or (self.token.is_symbol(";") and not opened)):
            token = self.advance()
            if token.kind == "directive":
                refuse(token, "directive", f"the directive {token.text} is inside a statement", "remove it")
            check_bracket(token, opened)
        if opened:
            self.fail(repr(BRACKETS[opened[-1].text]))
        end = replace(self.token, kind="end", text="", value="")
        return Fragment(self.text_from(self.tokens[start]), (*self.tokens[start : self.position], end))
