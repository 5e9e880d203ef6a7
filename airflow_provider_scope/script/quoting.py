"""Values as SCOPE text: each is quoted so that it stays one token, or refused by its name.

Strings come out in ASCII, so no character can end a line or be read in two ways, and a script has the
same bytes everywhere.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from airflow_provider_scope.script.lexer import KEYWORDS
from airflow_provider_scope.specs.validation import bad

if TYPE_CHECKING:
    from airflow_provider_scope.script.statements import Value

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NOT_AS_IT_IS = re.compile(r'[^ -~]|["\\]')
_LONG = range(-(2**63), 2**63)
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_IN_NAMES = ("[", "]", '"', "'", ";", "#", "@@", "//", "/*", "*/")
_NOT_IN_FILES = "{}*?"
"""SCOPE reads braces in a path as a pattern over many files; the other two are refused with them."""
_CSHARP_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        abstract as base bool break byte case catch char checked class const continue decimal default
        delegate do double else enum event explicit extern false finally fixed float for foreach goto if
        implicit in int interface internal is lock long namespace new null object operator out override
        params private protected public readonly ref return sbyte sealed short sizeof stackalloc static
        string struct switch this throw true try typeof uint ulong unchecked unsafe ushort using virtual
        void volatile while
        """,
    )
)


def quote_string(argument: str, value: str) -> str:
    """Give a text as a string literal.

    :raises InputError: It holds half of a surrogate pair, which no string of SCOPE can stand for.
    """
    if _SURROGATES.search(value):
        raise bad(argument, value, "text that can be written as UTF-8")
    quoted = _NOT_AS_IT_IS.sub(_escaped, value)
    # A submitter may fill in @@name@@ before the script is compiled, in strings too.
    return '"' + quoted.replace("@@", "@\\u0040") + '"'


def quote_name(argument: str, value: str) -> str:
    """Give the name of a column, in brackets where it is not a plain one.

    :raises InputError: It holds a character that cannot stand in brackets.
    """
    if _PLAIN.fullmatch(value) and value not in KEYWORDS and value not in _CSHARP_KEYWORDS:
        return value
    if (
        not value.isprintable()
        or value != value.strip()
        or not value
        or any(part in value for part in _NOT_IN_NAMES)
    ):
        raise bad(argument, value, "a name of printable characters without " + " ".join(_NOT_IN_NAMES))
    return f"[{value}]"


def quote_file(argument: str, value: str) -> str:
    """Give the path of one file as a string literal.

    :raises InputError: It is empty, or SCOPE could read it as a pattern.
    """
    if not value or any(char in _NOT_IN_FILES for char in value):
        raise bad(
            argument,
            value,
            f"the path of one file, without any of {' '.join(_NOT_IN_FILES)}",
            "rename the file; if its batch is logged already, abandon the batch first",
        )
    return quote_string(argument, value)


def plain_name(argument: str, value: str) -> str:
    """Give a name that cannot stand in brackets, such as that of a setting.

    :raises InputError: It is not made of ASCII letters, digits and ``_``.
    """
    if not _PLAIN.fullmatch(value):
        raise bad(argument, value, "a name of letters, digits and _")
    return value


def value_text(argument: str, value: Value) -> str:
    """Give a setting's or property's value as a literal; Python's booleans become C#'s.

    :raises InputError: It is not text, a boolean, a whole number of 64 bits, or a finite number.
    """
    if isinstance(value, str):
        return quote_string(argument, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _LONG:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise bad(argument, value, "text, True, False, a whole number of 64 bits, or a finite number")


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    return f"\\u{code:04x}" if char <= "\uffff" else f"\\U{code:08x}"
