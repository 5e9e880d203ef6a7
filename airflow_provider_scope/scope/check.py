"""Tokens of SCOPE text, and the check of the user's SELECT before it is put into a script.

Tokens are C#'s, ``@name`` and ``@@name``, ``[quoted names]`` and ``#`` directives. The rules are C#'s where
SCOPE has none of its own. A ``--`` is not a comment, a ``'x'`` is one character, and keywords are upper
case only.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import NoReturn

from airflow_provider_scope.exceptions import SqlError

_CLOSING = {"(": ")", "[": "]", "{": "}"}


def check_model(sql: str) -> str:
    """Give the query without what surrounds it: white space, comments and trailing semicolons.

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
    line, column = 1, 1
    starts_line = True
    for place, char in enumerate(sql):
        if "\ud800" <= char <= "\udfff":
            raise ScriptError(
                "bad-character",
                line,
                column,
                f"the character {char!r} cannot be written as UTF-8",
                "remove it",
            )
        if char == "#" and starts_line:
            raise ScriptError(
                "directive",
                line,
                column,
                "a line starts with #, which is a directive of the SCOPE preprocessor",
                "write the query without directives; a model is one SELECT",
            )
        if char in LINE_ENDS:
            is_pair = char == "\r" and sql[place + 1 : place + 2] == "\n"
            line, column, starts_line = (line, column + 1, True) if is_pair else (line + 1, 1, True)
        else:
            column += 1
            starts_line = starts_line and char.isspace()


def _check_tokens(query: list[Token]) -> None:
    opened: list[Token] = []
    for token in query:
        if token.kind == "directive":
            refuse(
                token,
                "directive",
                f"{token.text} is a directive of the SCOPE preprocessor",
                "write the query without directives; a model is one SELECT",
            )
        if token.is_symbol(";"):
            refuse(
                token,
                "second-statement",
                "a ; ends the query, and more text follows",
                "write one query; sub-queries in brackets do what further statements would",
            )
        if token.kind != "symbol":
            continue
        if token.text in _CLOSING:
            opened.append(token)
        elif token.text in _CLOSING.values() and (not opened or _CLOSING[opened.pop().text] != token.text):
            refuse(token, "unbalanced", f"{token.text!r} closes nothing", "balance the brackets")
    if opened:
        closing = _CLOSING[opened[-1].text]
        refuse(
            opened[-1], "unclosed-bracket", f"{opened[-1].text!r} is not closed", f"close it with {closing}"
        )


# ---- the error of everything that reads SCOPE text, and its tokens ----


UNTOUCHED = "everything; no job was submitted"


class ScriptError(SqlError):
    """SCOPE text is refused at a place in it.

    :param code: Short name of the rule, such as ``unclosed-string``.
    :param line: Line of the place, from 1.
    :param column: Column of the place in characters, from 1.
    :param problem: What is wrong there.
    :param do: What to write instead.
    """

    def __init__(self, code: str, line: int, column: int, problem: str, do: str) -> None:
        super().__init__(f"{code} at line {line}, column {column}: {problem}", kept=UNTOUCHED, do=do)
        self.code = code
        self.line = line
        self.column = column
        self._arguments = (code, line, column, problem, do)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling with the place."""
        return (type(self), self._arguments)


LINE_ENDS = "\n\r\x85\u2028\u2029"
"""What ends a line in C#, and with it a ``//`` comment."""
_ANY_LINE_END = re.compile("\r\n|[" + LINE_ENDS + "]")
_BLANK = re.compile(r"[ \t\v\f\ufeff" + LINE_ENDS + "]+")
_NAME = re.compile(r"[^\W\d]\w*")
_SYSTEM = re.compile(r"@@([^\W\d]\w*)(@@)?")
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]+(?:[uU][lL]?|[lL][uU]?)?"
    r"|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:[uU][lL]?|[lL][uU]?|[fFdDmM])?"
)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{1,4}|['\"\\0abfnrtv])")
_SIMPLE_ESCAPES = dict(zip("'\"\\0abfnrtv", "'\"\\\0\a\b\f\n\r\t\v", strict=True))
_SURROGATES = range(0xD800, 0xE000)
_SYMBOLS = (
    *("<<=", "??=", "==", "!=", "<=", ">=", "&&", "||", "??", "=>", "<<", "++", "--", "+=", "-="),
    *("*=", "/=", "%=", "&=", "|=", "^=", "->", "::"),
    *"+-*/%&|^!~=<>?:.,;()[]{}",
)
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
        """Tell whether it is this symbol."""
        return self.kind == "symbol" and self.text == text

    def is_keyword(self, *words: str) -> bool:
        """Tell whether it is one of these words, spelt exactly so."""
        return self.kind == "name" and self.text in words


def error_at(token: Token, code: str, problem: str, do: str) -> ScriptError:
    """Give the error that refuses the text at a token."""
    return ScriptError(code, token.line, token.column, problem, do)


def refuse(token: Token, code: str, problem: str, do: str) -> NoReturn:
    """Refuse the text at a token."""
    raise error_at(token, code, problem, do)


def tokens(text: str) -> list[Token]:
    """Give the tokens of a text, without comments; the last one is ``end``.

    :raises ScriptError: A string, comment or bracketed name has no end, or a character is not SCOPE.
    """
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.tokens: list[Token] = []
        self.starts = [0, *(match.end() for match in _ANY_LINE_END.finditer(text))]
        self.line = 1

    def run(self) -> list[Token]:
        while self.place < len(self.text):
            if not self.skip():
                self.take()
        self.add("end", self.place, "")
        return self.tokens

    def where(self, place: int) -> tuple[int, int]:
        # Places only grow, so the line is found by walking on from the last one.
        while self.line < len(self.starts) and self.starts[self.line] <= place:
            self.line += 1
        return self.line, place - self.starts[self.line - 1] + 1

    def fail(self, code: str, problem: str, do: str, place: int | None = None) -> NoReturn:
        line, column = self.where(self.place if place is None else place)
        raise ScriptError(code, line, column, problem, do)

    def add(self, kind: str, end: int, value: str) -> None:
        line, column = self.where(self.place)
        self.tokens.append(Token(kind, self.text[self.place : end], value, self.place, end, line, column))
        self.place = end

    def skip(self) -> bool:
        """Step over one run of white space or one comment."""
        if blank := _BLANK.match(self.text, self.place):
            self.place = blank.end()
            return True
        if self.text.startswith("//", self.place):
            end = _ANY_LINE_END.search(self.text, self.place)
            self.place = end.start() if end else len(self.text)
            return True
        if self.text.startswith("/*", self.place):
            close = self.text.find("*/", self.place + 2)
            if close < 0:
                self.fail("unclosed-comment", "this /* comment is not closed", "close it with */")
            self.place = close + 2
            return True
        return False

    def take(self) -> None:
        text, place = self.text, self.place
        char = text[place]
        if text.startswith('@"', place):
            self.verbatim()
        elif char in "\"'@#":
            {'"': self.string, "'": self.character, "@": self.variable, "#": self.directive}[char]()
        elif name := _NAME.match(text, place):
            self.add("name", name.end(), name.group())
        elif number := _NUMBER.match(text, place):
            if _NAME.match(text, number.end()):
                self.fail("bad-number", f"{number.group()!r} runs into a name", "put a space between them")
            self.add("number", number.end(), number.group())
        elif char == "[" and self.starts_quoted_name():
            self.quoted_name()
        else:
            self.symbol(char)

    def symbol(self, char: str) -> None:
        for symbol in _SYMBOLS:
            if self.text.startswith(symbol, self.place):
                self.add("symbol", self.place + len(symbol), symbol)
                return
        advice = "remove it" + ('; SCOPE has no $"…" strings, use +' if char == "$" else "")
        self.fail("bad-character", f"the character {char!r} is not SCOPE", advice)

    def directive(self) -> None:
        word = _NAME.match(self.text, self.place + 1)
        self.add("directive", word.end() if word else self.place + 1, word.group() if word else "")

    def string(self) -> None:
        value, end = self.escaped('"')
        self.add("string", end, value)

    def character(self) -> None:
        value, end = self.escaped("'")
        # One character is one unit of UTF-16; an emoji, for example, is two.
        if len(value) != 1 or value > "\uffff":
            self.fail(
                "single-quoted-string",
                "single quotes hold exactly one character in SCOPE",
                f'write text in double quotes: "{value}"',
            )
        self.add("char", end, value)

    def escaped(self, quote: str) -> tuple[str, int]:
        parts: list[str] = []
        place = self.place + 1
        while True:
            char = self.text[place : place + 1]
            if char == quote:
                return "".join(parts), place + 1
            if char == "" or char in LINE_ENDS:
                self.fail(
                    "unclosed-string", f"this {quote} is not closed on its line", f"close it with {quote}"
                )
            if char == "\\":
                escape = _ESCAPE.match(self.text, place)
                if escape is None:
                    self.fail(
                        "bad-escape",
                        f"{self.text[place : place + 2]!r} is not a C# escape",
                        'write \\\\ for a backslash, or use @"…"',
                        place,
                    )
                parts.append(self.unescape(escape.group(), place))
                place = escape.end()
            else:
                parts.append(char)
                place += 1

    def unescape(self, escape: str, place: int) -> str:
        if escape[1] in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[escape[1]]
        digits = escape[2:]
        code = int(digits, 16)
        if code > sys.maxunicode or code in _SURROGATES:
            self.fail("bad-escape", f"{escape} is not a character", "write \\U and eight digits", place)
        return chr(code)

    def verbatim(self) -> None:
        place = self.place + 2
        while True:
            close = self.text.find('"', place)
            if close < 0:
                self.fail("unclosed-string", 'this @" is not closed', 'close it with "')
            if not self.text.startswith('""', close):
                break
            place = close + 2
        self.add("string", close + 1, self.text[self.place + 2 : close].replace('""', '"'))

    def variable(self) -> None:
        if system := _SYSTEM.match(self.text, self.place):
            self.add("parameter" if system.group(2) else "system", system.end(), system.group(1))
        elif name := _NAME.match(self.text, self.place + 1):
            self.add("variable", name.end(), name.group())
        else:
            self.fail("bad-character", "an @ stands alone", "write the name right after it: @data")

    def starts_quoted_name(self) -> bool:
        """Tell ``[name]`` from an indexer: only the token before it can."""
        if not self.tokens:
            return True
        last = self.tokens[-1]
        if last.kind == "name":
            return last.text in KEYWORDS
        return last.kind == "symbol" and last.text not in (")", "]")

    def quoted_name(self) -> None:
        close = re.compile(r"\[([^\[\]\"';#" + LINE_ENDS + r"]+)\]").match(self.text, self.place)
        if close is None:
            self.fail(
                "unclosed-bracket",
                "this [ does not start a name in brackets",
                "close it with ] on its line; a name must not contain a bracket, a quote, ; or #",
            )
        self.add("quoted", close.end(), close.group(1))
