"""Check the user's SELECT before it is put into a script."""

from __future__ import annotations

from airflow_provider_scope.script.lexer import LINE_ENDS, ScriptError, Token, refuse, tokens

_CLOSING = {"(": ")", "[": "]", "{": "}"}


def check_model(sql: str) -> str:
    """Give the query without what surrounds it: white space, comments and trailing semicolons.

    Only what would break out of its place in the script is refused; whether it compiles is for SCOPE
    to say.

    :raises ScriptError: It is empty, is not one query, holds a ``#`` directive, leaves a string, comment
        or bracket open, or does not read ``@data``.
    """
    _check_text(sql)
    found = tokens(sql)[:-1]
    while found and found[-1].is_symbol(";"):
        found.pop()
    if not found:
        raise ScriptError("empty", 1, 1, "the SQL has no query", "write SELECT … FROM @data")
    _check_tokens(found)
    if not (found[0].is_keyword("SELECT") or found[0].is_symbol("(")):
        refuse(
            found[0],
            "not-a-query",
            f"the SQL starts with {found[0].text!r}",
            "write one query: SELECT … FROM @data; keywords are in upper case",
        )
    if not any(token.kind == "variable" and token.value == "data" for token in found):
        refuse(
            found[0],
            "no-data",
            "the SQL does not read @data",
            "select from @data, the files of one batch: SELECT … FROM @data",
        )
    return sql[found[0].start : found[-1].end]


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


def _check_tokens(found: list[Token]) -> None:
    opened: list[Token] = []
    for token in found:
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
