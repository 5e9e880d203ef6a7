"""SCOPE's text and types, and the check of the user's SELECT before it is put into a script.

Tokens are C#'s, ``@name`` and ``@@name``, ``[quoted names]`` and ``#`` directives. The rules are C#'s where
SCOPE has none of its own. A ``--`` is not a comment, a ``'x'`` is one character, and keywords are upper
case only.

Of types, unsigned ones widen to the next signed one that holds all their values; SCOPE's ``decimal`` has a
floating scale and no exact image: DECIMAL(38,18) is the nearest.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from dataclasses import dataclass
from typing import NoReturn

from airflow_provider_scope.exceptions import InputError, SqlError

Value = str | bool | int | float
"""What a setting, a constant or a table property can hold."""
VIRTUAL_FUNCTIONS = {
    "source_file_uri": "FILE.URI",
    "source_file_length": "FILE.LENGTH",
    "source_file_created": "FILE.CREATED",
    "source_file_modified": "FILE.MODIFIED",
}
"""Virtual column -> the function that gives it."""
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        ADD ALL ALTER AND ANTISEMIJOIN ANY APPLY AS ASC BETWEEN BY CASE CLUSTERED COMBINE CREATE CROSS
        DECLARE DELETE DESC DISTINCT DROP ELSE END EXCEPT EXISTS EXTRACT FETCH FROM FULL GROUP HAVING IF IN
        INNER INSERT INTERSECT INTO IS JOIN LAYOUT LEFT LIKE LOCATION NOT NULL OFFSET ON OPTIONS OR ORDER
        OUTER OUTPUT OVER PARTITION PARTITIONED PROCESS REDUCE RIGHT SAMPLE SELECT SEMIJOIN SET SSTREAM TABLE
        TBLPROPERTIES THEN TO TOP TRUNCATE UNION UPDATE USING VALUES VIEW WHEN WHERE WITH
        """,
    )
)
_UNTOUCHED = "everything; no job was submitted"
BRACKETS = {"(": ")", "[": "]", "{": "}"}


class ScriptError(SqlError):
    """SCOPE text is refused at a place in it.

    :param code: Short name of the rule, such as ``unclosed-string``.
    :param line: Line of the place, from 1.
    :param column: Column of the place in characters, from 1.
    :param problem: What is wrong there.
    :param do: What to write instead.
    """

    def __init__(self, code: str, line: int, column: int, problem: str, do: str) -> None:
        super().__init__(f"{code} at line {line}, column {column}: {problem}", kept=_UNTOUCHED, do=do)
        self.code = code
        self.line = line
        self.column = column
        self._arguments = (code, line, column, problem, do)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling with the place."""
        return (type(self), self._arguments)


# ---- the user's SELECT ----


def check_model(sql: str) -> str:
    """Return the query without what surrounds it: white space, comments and trailing semicolons.

    Only what would break out of its place in the script is refused; whether it compiles is for SCOPE
    to say.

    :raises ScriptError: It is empty, is not one query, holds a ``#`` directive, leaves a string, comment
        or bracket open, or does not read ``@data``.
    """
    _check_text(sql)
    query = tokens(sql)[:-1]
    while query and query[-1].is_symbol(";"):
        query.pop()
    if not query:
        raise ScriptError("empty", 1, 1, "the SQL has no query", "write SELECT … FROM @data")
    _check_tokens(query)
    if not (query[0].is_keyword("SELECT") or query[0].is_symbol("(")):
        refuse(
            query[0],
            "not-a-query",
            f"the SQL starts with {query[0].text!r}",
            "write one query: SELECT … FROM @data; keywords are in upper case",
        )
    if not any(token.kind == "variable" and token.value == "data" for token in query):
        refuse(
            query[0],
            "no-data",
            "the SQL does not read @data",
            "select from @data, the files of one batch: SELECT … FROM @data",
        )
    return sql[query[0].start : query[-1].end]


def _check_text(sql: str) -> None:
    """Refuse what the lexer does not see: a directive inside a comment or string, and broken text.

    Whether the preprocessor, which works before the lexer, looks there is not documented.
    """
    match = _NOT_IN_A_QUERY.search(sql)
    if match is None:
        return
    place = match.end() - 1
    if sql[place] == "#":
        _Lexer(sql).fail(place, "directive", "a line starts with #", _NO_DIRECTIVES)
    problem = f"the character {sql[place]!r} cannot be written as UTF-8"
    _Lexer(sql).fail(place, "bad-character", problem, "remove it")


def _check_tokens(query: list[Token]) -> None:
    opened: list[Token] = []
    for token in query:
        if token.kind == "directive":
            problem = f"{token.text} is a directive of the SCOPE preprocessor"
            refuse(token, "directive", problem, _NO_DIRECTIVES)
        if token.is_symbol(";"):
            refuse(
                token,
                "second-statement",
                "a ; ends the query, and more text follows",
                "write one query; sub-queries in brackets do what further statements would",
            )
        check_bracket(token, opened)
    if opened:
        unclosed = opened[-1]
        do = f"close it with {BRACKETS[unclosed.text]}"
        refuse(unclosed, "unclosed-bracket", f"{unclosed.text!r} is not closed", do)


def check_bracket(token: Token, opened: list[Token]) -> None:
    """Keep the brackets that are open before the next token; refuse one that closes nothing."""
    if token.kind != "symbol":
        return
    if token.text in BRACKETS:
        opened.append(token)
    elif token.text in BRACKETS.values() and (not opened or BRACKETS[opened.pop().text] != token.text):
        refuse(token, "unbalanced", f"{token.text!r} closes nothing", "balance the brackets")


# ---- tokens ----

_ENDS = "\n\r\x85\u2028\u2029"
"""What ends a line in C#, and with it a ``//`` comment."""
_LINE_END = re.compile(f"\r\n|[{_ENDS}]")
_NOT_IN_A_QUERY = re.compile(rf"[\ud800-\udfff]|(?:\A|(?<=[{_ENDS}]))\s*#")
_NO_DIRECTIVES = "write the query without directives of the SCOPE preprocessor; a model is one SELECT"
_NAME = r"[^\W\d]\w*"
_BODY = rf"(?:[^{{quote}}\\{_ENDS}]|\\[^{_ENDS}])*"
_SYMBOLS = (
    *("<<=", "??=", "==", "!=", "<=", ">=", "&&", "||", "??", "=>", "<<", "++", "--", "+=", "-="),
    *("*=", "/=", "%=", "&=", "|=", "^=", "->", "::"),
    *"+-*/%&|^!~=<>?:.,;()[]{}",
)
_TOKEN = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in {
            "blank": rf"[ \t\v\f\ufeff{_ENDS}]+|//[^{_ENDS}]*|/\*.*?\*/",
            "verbatim": '@"(?:[^"]|"")*+"',
            "string": '"' + _BODY.format(quote='"') + '"',
            "char": "'" + _BODY.format(quote="'") + "'",
            "system": f"@@{_NAME}(?:@@)?",
            "variable": f"@{_NAME}",
            "directive": f"#(?:{_NAME})?",
            "name": _NAME,
            "number": r"0[xX][0-9a-fA-F]+(?:[uU][lL]?|[lL][uU]?)?"
            r"|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:[uU][lL]?|[lL][uU]?|[fFdDmM])?",
            # What is none of these opens a comment or a string that nothing closes.
            "symbol": "(?!/[*])(?:" + "|".join(map(re.escape, _SYMBOLS)) + ")",
        }.items()
    ),
    re.DOTALL,
)
_QUOTED_NAME = re.compile(rf"\[([^\[\]\"';#{_ENDS}]+)\]")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{1,4}|['\"\\0abfnrtv]|)")
_SIMPLE_ESCAPES = dict(zip("'\"\\0abfnrtv", "'\"\\\0\a\b\f\n\r\t\v", strict=True))
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Token:
    """One token and its place."""

    kind: str
    """``name``, ``quoted`` (a name in brackets), ``variable`` (``@x``), ``system`` (``@@x``),
    ``parameter`` (``@@x@@``), ``directive`` (``#X``), ``string``, ``char``, ``number``, ``symbol``
    or ``end``."""
    text: str
    """As written."""
    value: str
    """What it stands for: the characters of a string, the name without its signs."""
    start: int
    end: int
    line: int
    column: int

    def is_symbol(self, text: str) -> bool:
        return self.kind == "symbol" and self.text == text

    def is_keyword(self, *words: str) -> bool:
        """Return whether it is one of these words, spelt exactly so."""
        return self.kind == "name" and self.text in words


def refuse(token: Token, code: str, problem: str, do: str) -> NoReturn:
    raise ScriptError(code, token.line, token.column, problem, do)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, without comments; the last one is ``end``.

    :raises ScriptError: A string, comment or bracketed name has no end, or a character is not SCOPE.
    """
    lexer = _Lexer(text)
    place = 0
    while place < len(text):
        place = lexer.take(place)
    lexer.add("end", place, place, "")
    return lexer.tokens


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.line_starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def line_and_column(self, place: int) -> tuple[int, int]:
        line = bisect_right(self.line_starts, place)
        return line, place - self.line_starts[line - 1] + 1

    def add(self, kind: str, start: int, end: int, value: str) -> int:
        place = self.line_and_column(start)
        self.tokens.append(Token(kind, self.text[start:end], value, start, end, *place))
        return end

    def fail(self, place: int, code: str, problem: str, do: str) -> NoReturn:
        raise ScriptError(code, *self.line_and_column(place), problem, do)

    def take(self, place: int) -> int:
        """Take the token or the blank at a place, and return the place after it."""
        if self.text[place] == "[" and self.starts_quoted_name():
            return self.take_quoted_name(place)
        match = _TOKEN.match(self.text, place)
        if match is None:
            self.fail(place, *_unreadable(self.text, place))
        kind, text, end = match.lastgroup or "", match.group(), match.end()
        if kind == "blank":
            return end
        if kind == "number" and re.compile(_NAME).match(self.text, end):
            self.fail(place, "bad-number", f"{text!r} runs into a name", "put a space between them")
        value = text.strip("@#")
        match kind:
            case "verbatim":
                kind, value = "string", text[2:-1].replace('""', '"')
            case "string" | "char":
                value = _ESCAPE.sub(lambda escape: self.unescaped(escape, place + 1), text[1:-1])
            case "system" if text.endswith("@@"):
                kind = "parameter"
        # One character is one unit of UTF-16; an emoji, for example, is two.
        if kind == "char" and (len(value) != 1 or value > "\uffff"):
            self.fail(
                place,
                "single-quoted-string",
                "single quotes hold exactly one character in SCOPE",
                f'write text in double quotes: "{value}"',
            )
        return self.add(kind, place, end, value)

    def unescaped(self, escape: re.Match[str], start: int) -> str:
        """Return the character of an escape.

        :param start: The place of the string's first character.
        """
        text, place = escape.group(), start + escape.start()
        if text == "\\":
            problem = f"{self.text[place : place + 2]!r} is not a C# escape"
            self.fail(place, "bad-escape", problem, 'write \\\\ for a backslash, or use @"…"')
        if text[1] in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[text[1]]
        digits = text[2:]
        code = int(digits, 16)
        if code > sys.maxunicode or code in _SURROGATES:
            self.fail(place, "bad-escape", f"{text} is not a character", "write \\U and eight digits")
        return chr(code)

    def starts_quoted_name(self) -> bool:
        """Distinguish ``[name]`` from an indexer, by the token before it."""
        if not self.tokens:
            return True
        last = self.tokens[-1]
        if last.kind == "name":
            return last.text in KEYWORDS
        return last.kind == "symbol" and last.text not in (")", "]")

    def take_quoted_name(self, place: int) -> int:
        match = _QUOTED_NAME.match(self.text, place)
        if match is None:
            self.fail(
                place,
                "unclosed-bracket",
                "this [ does not start a name in brackets",
                "close it with ] on its line; a name must not contain a bracket, a quote, ; or #",
            )
        return self.add("quoted", place, match.end(), match[1])


def _unreadable(text: str, place: int) -> tuple[str, str, str]:
    """Say why no token begins at a place: the code of the rule, the problem, and what to do."""
    if text.startswith("/*", place):
        return "unclosed-comment", "this /* comment is not closed", "close it with */"
    if text.startswith('@"', place):
        return "unclosed-string", 'this @" is not closed', 'close it with "'
    char = text[place]
    if char in "\"'":
        return "unclosed-string", f"this {char} is not closed on its line", f"close it with {char}"
    if char == "@":
        return "bad-character", "an @ stands alone", "write the name right after it: @data"
    advice = "remove it" + ('; SCOPE has no $"…" strings, use +' if char == "$" else "")
    return "bad-character", f"the character {char!r} is not SCOPE", advice


# ---- types, and their Spark counterparts ----

_VALUE_TYPES = {
    "bool": "boolean",
    "sbyte": "tinyint",
    "short": "smallint",
    "int": "int",
    "long": "bigint",
    "byte": "smallint",
    "ushort": "int",
    "uint": "bigint",
    "ulong": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "decimal": "decimal(38,18)",
    "DateTime": "timestamp",
    "Guid": "string",
}
_REFERENCE_TYPES = {"string": "string", "byte[]": "binary"}
_ALL_TYPES = _REFERENCE_TYPES | _VALUE_TYPES
_FROM_SPARK = {spark: name for name, spark in reversed(_ALL_TYPES.items()) if "(" not in spark}
"""The first of several types that Spark does not tell apart."""
_TYPE_WORD = re.compile(r"\s*(SQL\.ARRAY|SQL\.MAP|SqlArray|SqlMap|[A-Za-z]\w*|\[\s*\]|[<>,?])")
_SPARK_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\d+(?:,\d+)?\))?")
_SPARK_STRING = re.compile(r"(?:var)?char\(\d+\)")
_SPARK_ALIASES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
"""Other names that Spark has for its types."""


@dataclass(frozen=True, slots=True)
class ScopeType:
    name: str
    """In its short form without the ``?``: ``int``, ``byte[]``, ``SQL.ARRAY<string>``."""
    nullable: bool
    spark: str
    """The Spark type, as ``simpleString`` gives it."""

    @property
    def text(self) -> str:
        """As SCOPE writes it."""
        return self.name + ("?" if self.nullable and self.name in _VALUE_TYPES else "")


def parse_type(text: str) -> ScopeType:
    """Read a SCOPE type.

    :raises InputError: It is not one, or cannot be a column of a Delta table.
    """
    words = ["[]" if word.startswith("[") else word for word in _TYPE_WORD.findall(text)]
    try:
        column_type = _type(words)
    except (IndexError, ValueError):
        column_type = None
    if column_type is None or words or _TYPE_WORD.sub("", text).strip():
        raise InputError(
            f"{text!r} is not a SCOPE type of a column.",
            kept=_UNTOUCHED,
            do="use one of: "
            + ", ".join([*_VALUE_TYPES, *_REFERENCE_TYPES])
            + ", SQL.ARRAY<T>, SQL.MAP<K,V>; all but string, byte[], arrays and maps take a ? for null",
        )
    return column_type


def scope_type(spark: str) -> str:
    """Return the SCOPE type, with null, of a Spark type as users write it.

    :raises InputError: SCOPE has none.
    """
    kind = re.sub(r"\s", "", spark).lower()
    kind = "string" if _SPARK_STRING.fullmatch(kind) else _SPARK_ALIASES.get(kind, kind)
    name = "decimal" if _SPARK_DECIMAL.fullmatch(kind) else _FROM_SPARK.get(kind)
    if name is None:
        raise InputError(
            f"The Spark type {spark!r} has no SCOPE type.",
            kept=_UNTOUCHED,
            do="use one of: "
            + ", ".join([*_FROM_SPARK, "decimal(p,s)"])
            + "; or set sql_dialect='scope', and write SQL.ARRAY<T> and SQL.MAP<K,V> for arrays and maps",
        )
    return name + ("?" if name in _VALUE_TYPES else "")


def _type(words: list[str]) -> ScopeType:
    """Take the words of a type from a text; IndexError or ValueError if they are none."""
    word = words.pop(0)
    if word in ("SQL.ARRAY", "SqlArray"):
        (inner,) = _arguments(words, 1)
        return ScopeType(f"SQL.ARRAY<{inner.text}>", nullable=True, spark=f"array<{inner.spark}>")
    if word in ("SQL.MAP", "SqlMap"):
        key, value = _arguments(words, 2)
        return ScopeType(
            f"SQL.MAP<{key.text},{value.text}>", nullable=True, spark=f"map<{key.spark},{value.spark}>"
        )
    if words[:1] == ["[]"]:
        word += words.pop(0)
    if word in _REFERENCE_TYPES:
        return ScopeType(word, nullable=True, spark=_REFERENCE_TYPES[word])
    if word not in _VALUE_TYPES:
        raise ValueError(word)
    nullable = words[:1] == ["?"]
    if nullable:
        words.pop(0)
    return ScopeType(word, nullable=nullable, spark=_VALUE_TYPES[word])


def _arguments(words: list[str], count: int) -> list[ScopeType]:
    types = []
    for sign in ("<", ",")[:count]:
        _skip(words, sign)
        types.append(_type(words))
    _skip(words, ">")
    return types


def _skip(words: list[str], sign: str) -> None:
    if words.pop(0) != sign:
        raise ValueError(sign)
