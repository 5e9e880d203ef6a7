"""Text of SQL: the user's SELECT, with ``@data`` and the virtual columns in it; names and literals."""

from __future__ import annotations

import re

from airflow_provider_scope.exceptions import SqlError

_TOKEN = re.compile(
    r"""
      (?P<quoted> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `(?:[^`]|``)*` )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<data> @data\b )
    | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def over_view(sql: str, view: str) -> str:
    """Give the SELECT with ``@data`` replaced by the name of a view; quoted text and comments stay.

    :raises SqlError: The text does not read ``@data``.
    """
    found = 0

    def put(match: re.Match[str]) -> str:
        nonlocal found
        if match.lastgroup != "data":
            return match.group()
        found += 1
        return view

    result = _TOKEN.sub(put, sql).strip().rstrip(";").rstrip()
    if not found:
        raise SqlError(
            f"The SQL does not read @data: {sql.strip()[:200]!r}.",
            kept="everything; nothing was written",
            do="select from @data, the files of one batch: SELECT … FROM @data",
        )
    return result


def words(sql: str) -> set[str]:
    """Give all names in the SQL, in lower case; text in quotes and comments is not looked at.

    Back-quoted names count.
    """
    found = set()
    for match in _TOKEN.finditer(sql):
        if match.lastgroup == "word":
            found.add(match.group().lower())
        elif match.lastgroup == "quoted" and match.group().startswith("`"):
            found.add(match.group()[1:-1].lower())
    return found


def quoted(name: str) -> str:
    """Give a name in back quotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Give a text as a literal of Spark SQL.

    A ``$`` is escaped: Spark fills in ``${name}`` before it parses, in literals too.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
