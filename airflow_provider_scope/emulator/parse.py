"""Parsing scripts into statements: those that the product writes, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.check import Token, refuse, tokens
from airflow_provider_scope.scope.statements import (
    VIRTUAL_FUNCTIONS,
    AddColumn,
    AlterTable,
    Assign,
    Column,
    CreateTable,
    DeclareConstant,
    DeclareTable,
    Delete,
    Extract,
    Insert,
    NoOp,
    Place,
    SetVariable,
    Statement,
    Value,
    VirtualColumn,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_CONSTANT_TYPES = {"string": str, "bool": bool, "int": int, "long": int, "double": float}
_OPENING = {"(": ")", "[": "]", "{": "}"}


def parse(script: str) -> list[Statement]:
    """Give the statements of a script, in order.

    :raises ScriptError: The text is not a script of supported statements; the error has line and column.
    """
    return _Parser(script).script()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.position = 0
        self.constants: dict[str, Value] = {}

    # ---- tokens ---------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def advance(self) -> Token:
        token = self.token
        self.position += token.kind != "end"
        return token

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        actual = repr(token.text) if token.text else "the end of the script"
        refuse(token, "syntax", f"expected {expected}, found {actual}", f"write {expected} here")

    def take(self, kind: str, expected: str) -> str:
        if self.token.kind != kind:
            self.fail(expected)
        return self.advance().value

    def symbol(self, text: str) -> None:
        if not self.token.is_symbol(text):
            self.fail(repr(text))
        self.advance()

    def keywords(self, *words: str) -> None:
        for word in words:
            if not self.token.is_keyword(word):
                self.fail(word)
            self.advance()

    def accept_keyword(self, word: str) -> bool:
        is_next = self.token.is_keyword(word)
        self.position += is_next
        return is_next

    def accept_symbol(self, text: str) -> bool:
        is_next = self.token.is_symbol(text)
        self.position += is_next
        return is_next

    def name(self) -> str:
        if self.token.kind not in ("name", "quoted"):
            self.fail("a name")
        return self.advance().value

    def names(self) -> tuple[str, ...]:
        """Read names up to the closing bracket; each may occur once, in any case."""
        names: dict[str, str] = {}
        while not names or self.accept_symbol(","):
            token = self.token
            name = self.name()
            if name.lower() in names:
                self.fail("each name once", token)
            names[name.lower()] = name
        self.symbol(")")
        return tuple(names.values())

    # ---- statements -----------------------------------------------------------------------------

    def script(self) -> list[Statement]:
        statements: list[Statement] = []
        while self.token.kind != "end":
            statements.append(self.statement())
            self.symbol(";")
        return statements

    def statement(self) -> Statement:
        token = self.token
        at = Place(token.line, token.column)
        if token.is_symbol(";"):
            return NoOp(at)
        if token.kind == "directive":
            return self.constant(at)
        if token.kind == "variable":
            return self.rowset(at)
        readers: dict[str, Callable[[Place], Statement]] = {
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
        return reader(at)

    def table(self) -> str:
        return self.take("variable", "a table such as @target")

    def alter(self, at: Place) -> AlterTable | AddColumn:
        self.keywords("TABLE")
        table = self.table()
        if self.accept_keyword("ADD"):
            self.keywords("COLUMN")
            if_not_exists = self.accept_keyword("IF")
            if if_not_exists:
                self.keywords("NOT", "EXISTS")
            return AddColumn(table, self.column(), if_not_exists, at)
        self.keywords("SET", "TBLPROPERTIES")
        return AlterTable(table, self.properties(), at)

    def declare(self, at: Place) -> DeclareTable:
        self.keywords("TABLE")
        return DeclareTable(self.table(), self.location(), at)

    def delete(self, at: Place) -> Delete:
        self.keywords("FROM")
        table = self.table()
        self.keywords("WHERE")
        return Delete(table, self.rest("a predicate"), at)

    def insert(self, at: Place) -> Insert:
        self.keywords("INTO")
        table = self.table()
        columns = self.names() if self.accept_symbol("(") else ()
        if not self.token.is_keyword("SELECT"):
            self.fail("SELECT")
        return Insert(table, self.rest("a SELECT"), columns, at)

    def setting(self, at: Place) -> SetVariable:
        name = self.take("system", "a setting such as @@FeaturePreviews")
        self.symbol("=")
        return SetVariable(name, self.value(), at)

    def constant(self, at: Place) -> DeclareConstant:
        token = self.token
        if token.value != "DECLARE":
            refuse(token, "directive", f"the directive {token.text} is not supported", "use #DECLARE alone")
        self.advance()
        start = self.token
        name = self.take("variable", "a constant such as @deltaPath")
        kind = self.token
        value_type = _CONSTANT_TYPES.get(self.take("name", "a type"))
        if value_type is None:
            self.fail("one of " + ", ".join(_CONSTANT_TYPES), kind)
        self.symbol("=")
        token = self.token
        value = self.value()
        if type(value) is not value_type:
            self.fail(f"a value of type {kind.text}", token)
        if name in self.constants:
            refuse(start, "declared-twice", f"@{name} is declared twice", "remove one of them")
        self.constants[name] = value
        return DeclareConstant(name, kind.text, value, at)

    def create(self, at: Place) -> CreateTable:
        self.keywords("TABLE")
        if_not_exists = self.accept_keyword("IF")
        if if_not_exists:
            self.keywords("NOT", "EXISTS")
        name = self.table()
        self.symbol("(")
        columns = [self.column()]
        while self.accept_symbol(","):
            columns.append(self.column())
        self.symbol(")")
        partition_by: list[str] = []
        if self.accept_keyword("PARTITIONED"):
            self.keywords("BY")
            self.symbol("(")
            partition_by += self.names()
        return CreateTable(name, tuple(columns), tuple(partition_by), self.location(), if_not_exists, at)

    def location(self) -> str:
        self.keywords("LOCATION")
        token = self.advance()
        value: Value
        if token.kind == "string":
            value = token.value
        elif token.kind == "variable" and token.value in self.constants:
            value = self.constants[token.value]
        elif token.kind == "variable":
            refuse(
                token,
                "undeclared",
                f"{token.text} is not declared",
                f'add #DECLARE {token.text} string = "…";',
            )
        else:
            self.fail("a string or a constant", token)
        if not isinstance(value, str):
            self.fail("a string constant", token)
        self.keywords("OPTIONS")
        self.symbol("(")
        self.keywords("LAYOUT")
        self.symbol("=")
        self.keywords("DELTA")
        self.symbol(")")
        return value

    def properties(self) -> tuple[tuple[str, Value], ...]:
        self.symbol("(")
        properties: list[tuple[str, Value]] = []
        while True:
            key = self.take("string", 'a key such as "delta.appendOnly"')
            self.symbol("=")
            properties.append((key, self.value()))
            if not self.accept_symbol(","):
                break
        self.symbol(")")
        return tuple(properties)

    def rowset(self, at: Place) -> Extract | Assign:
        rowset = self.advance().value
        self.symbol("=")
        if not self.token.is_keyword("EXTRACT"):
            return Assign(rowset, self.rest("a SELECT"), at)
        self.advance()
        columns: list[Column] = []
        virtual: list[VirtualColumn] = []
        while True:
            if self.token.kind != "end" and self.tokens[self.position + 1].is_symbol("="):
                virtual.append(self.virtual())
            else:
                columns.append(self.column())
            if not self.accept_symbol(","):
                break
        self.keywords("FROM")
        files = [self.take("string", "a file")]
        while self.accept_symbol(","):
            files.append(self.take("string", "a file"))
        self.keywords("USING")
        extractor = self.call()
        return Extract(rowset, tuple(columns), tuple(virtual), tuple(files), extractor, at)

    def virtual(self) -> VirtualColumn:
        name = self.name()
        self.symbol("=")
        token = self.token
        function = self.call()
        functions = VIRTUAL_FUNCTIONS.values()
        if function not in functions:
            self.fail("one of " + ", ".join(f"{supported}()" for supported in functions), token)
        return VirtualColumn(name, function)

    def call(self) -> str:
        parts = [self.name()]
        while self.accept_symbol("."):
            parts.append(self.name())
        self.symbol("(")
        self.symbol(")")
        return ".".join(parts)

    def column(self) -> Column:
        name = self.name()
        self.accept_symbol(":")
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
        text = self.text[first.start : self.tokens[self.position - 1].end]
        if self.token is first:
            self.fail("a type")
        try:
            kind = parse_type(text)
        except InputError as error:
            refuse(first, "unknown-type", error.what, error.do)
        return Column(name, kind.text, kind.nullable)

    def value(self) -> Value:
        negative = self.accept_symbol("-")
        token = self.advance()
        if token.kind == "number":
            return _number(token, negative=negative)
        if token.kind == "string" and not negative:
            return token.value
        if token.is_keyword("true", "false") and not negative:
            return token.text == "true"
        if token.kind != "variable" or token.value not in self.constants or negative:
            self.fail("a string, a number, true or false", token)
        return self.constants[token.value]

    def rest(self, expected: str) -> str:
        """Read the text up to the ``;`` that ends the statement."""
        first = self.token
        closing: list[str] = []
        while not (self.token.kind == "end" or (self.token.is_symbol(";") and not closing)):
            token = self.advance()
            if token.kind == "directive":
                refuse(token, "directive", f"the directive {token.text} is inside a statement", "remove it")
            if token.kind == "symbol" and token.text in _OPENING:
                closing.append(_OPENING[token.text])
            elif (
                token.kind == "symbol"
                and token.text in _OPENING.values()
                and (not closing or closing.pop() != token.text)
            ):
                refuse(token, "unbalanced", f"{token.text!r} closes nothing", "balance the brackets")
        if closing:
            self.fail(repr(closing[-1]))
        if self.token is first:
            self.fail(expected)
        return self.text[first.start : self.tokens[self.position - 1].end]


def _number(token: Token, *, negative: bool) -> int | float:
    text = token.text.rstrip("uUlL") if token.text[:2] in ("0x", "0X") else token.text.rstrip("uUlLfFdDmM")
    value = (
        int(text, 16) if text[:2] in ("0x", "0X") else float(text) if set(text) & set(".eE") else int(text)
    )
    return -value if negative else value
