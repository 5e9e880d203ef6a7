"""The predicate of a DELETE: from SCOPE to the SQL that ``deltalake`` reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.emulator.reading import ScriptFailedError
from airflow_provider_scope.script.lexer import tokens
from airflow_provider_scope.script.lowering import condition
from airflow_provider_scope.script.scalar import ScalarParser

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = "scope table"
_OPERATORS = frozenset({"==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", "(", ")", "-"})
_WORDS = frozenset({"AND", "OR", "NOT", "IS", "NULL", "true", "false", "null"})
_LONG = re.compile(r"\b(\d+)L\b")
_NEGATIVE = re.compile(r"\(- CAST\((\d+) AS \w+\)\)")
"""``deltalake`` breaks on a cast behind a minus."""


def delete_predicate(where: str, columns: Mapping[str, str]) -> str:
    """Give a predicate that compares columns with constants.

    Such a predicate means the same to Spark and to ``deltalake``, but for how constants are written.

    :param columns: Columns of the table that can be compared -> SCOPE type.
    :raises ScriptFailedError: It is more than that.
    :raises ScriptError: It cannot be read, or its types do not go together.
    """
    found = tokens(where)
    for before, token in zip((None, *found), found, strict=False):
        known = token.kind in ("number", "quoted", "string", "end") or (
            token.text in _OPERATORS if token.kind == "symbol" else token.text in {*_WORDS, *columns}
        )
        if before is not None and token.is_symbol("-"):
            known = before.kind == "symbol" and before.text != ")"
        if not known or (token.kind == "string" and set(token.value) & set("'\\$")):
            raise ScriptFailedError(
                f"The emulator deletes by comparisons of columns with constants, without {token.text!r}."
            )
    parser = ScalarParser(found, columns, _TABLE)
    test = condition(found[0], parser.expression())
    if parser.token.kind != "end":
        raise ScriptFailedError(f"The emulator cannot read the predicate at {parser.token.text!r}.")
    # No string holds a quote, so every other piece is outside of strings.
    pieces = test.sql.replace(f"{quoted(_TABLE)}.", "").split("'")
    pieces[::2] = [_NEGATIVE.sub(r"(-\1)", _LONG.sub(r"\1", piece)) for piece in pieces[::2]]
    return "'".join(pieces)
