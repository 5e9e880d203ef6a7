"""What is wrong with a script before it runs: statements and queries that cannot be read.

Names and types are looked at when it runs, and so is what the translator knows of SCOPE.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from airflow_provider_scope.core.streams import VIRTUAL
from airflow_provider_scope.script.errors import ScriptError
from airflow_provider_scope.script.lexer import LINE_ENDS
from airflow_provider_scope.script.parse import parse
from airflow_provider_scope.script.statements import Assign, Extract, Insert
from airflow_provider_scope.script.translate import translate

SYNTAX_ERROR = "E_CSC_USER_SYNTAXERROR"
"""The recorded code."""
_SYNTAX_CODES = frozenset({"syntax", "no-from", "single-equals"})
"""Codes of the translator that blame the text, and not a name, a type or what it does not know."""
_LINE_END = re.compile("\r\n|[" + LINE_ENDS + "]")


def diagnostics(script: str) -> list[dict[str, str | int]]:
    """Compile a script: its first error in the recorded form, or nothing."""
    try:
        _check(script)
    except ScriptError as err:
        start = _offset(script, err.line, err.column)
        return [
            {
                "severity": "Error",
                "lineNumber": err.line,
                "columnNumber": err.column,
                "start": start,
                "end": start,
                "message": f"{SYNTAX_ERROR}: {err.what}",
            }
        ]
    return []


def _check(script: str) -> None:
    rowsets: dict[str, dict[str, str]] = {}
    for statement in parse(script):
        if isinstance(statement, Extract):
            rowsets[statement.rowset] = {column.name: column.type for column in statement.columns}
            rowsets[statement.rowset] |= {one.name: VIRTUAL[one.function][0] for one in statement.virtual}
        elif isinstance(statement, Assign | Insert):
            try:
                columns = translate(statement.select, rowsets).columns
            except ScriptError as err:
                if err.code in _SYNTAX_CODES:
                    raise _moved(script, statement, err) from err
                return
            if isinstance(statement, Assign):
                rowsets[statement.rowset] = columns


def _moved(script: str, statement: Assign | Insert, err: ScriptError) -> ScriptError:
    """Give an error of a query with its place in the whole script."""
    begin = script.index(statement.select, _offset(script, *statement.at) + 1)
    place = begin + _offset(statement.select, err.line, err.column)
    starts = _line_starts(script)
    line = bisect_right(starts, place)
    return ScriptError(err.code, line, place - starts[line - 1] + 1, err.what.partition(": ")[2], err.do)


def _offset(script: str, line: int, column: int) -> int:
    """Give the place of a line and a column, from 1, in characters from 0."""
    return _line_starts(script)[line - 1] + column - 1


def _line_starts(script: str) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(script))]
