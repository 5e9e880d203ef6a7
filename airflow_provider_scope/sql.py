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


_OF_READING = re.compile(r"input_file_(name|block_start|block_length)\s*\(", re.IGNORECASE)
"""What Spark knows of a row while it reads its file, and no longer."""
_ALL_COLUMNS = re.compile(r"\s*select\s+\*((?!\bfrom\b).)*\bfrom\s+@data\b", re.DOTALL | re.IGNORECASE)


def takes_all_columns(sql: str) -> bool:
    """Check whether a SELECT begins with all columns of ``@data``, whatever their names are."""
    return _ALL_COLUMNS.match(sql) is not None


def over_view(sql: str, view: str) -> str:
    """Replace ``@data`` in a SELECT by the name of a view; quoted text and comments stay.

    :raises SqlError: The text does not read ``@data``; or as ``check_reads_no_file`` says.
    """
    check_reads_no_file(sql)
    replaced = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal replaced
        if match.lastgroup != "data":
            return match.group()
        replaced += 1
        return view

    result = _TOKEN.sub(replacement, sql).strip().rstrip(";").rstrip()
    if not replaced:
        raise SqlError(
            f"The SQL does not read @data: {sql.strip()[:200]!r}.",
            kept="everything; nothing was written",
            do="select from @data, the files of one batch: SELECT … FROM @data",
        )
    return result


def check_reads_no_file(sql: str) -> None:
    """Refuse a SELECT, or a predicate over its rows, that asks Spark which file it is reading.

    :raises SqlError: As said.
    """
    for match in _TOKEN.finditer(sql):
        if match.lastgroup == "word" and _OF_READING.match(sql, match.start()):
            raise SqlError(
                f"{match.group()}() is empty where rows are held until they are written, so its value "
                "would depend on what else is in the batch.",
                kept="everything; nothing was written",
                do="of files, select source_file_uri",
            )


def words(sql: str) -> set[str]:
    """Return all names in the SQL, in lower case: those in back quotes too, but none in texts or comments."""
    names = set()
    for match in _TOKEN.finditer(sql):
        if match.lastgroup == "word":
            names.add(match.group().lower())
        elif match.lastgroup == "quoted" and match.group().startswith("`"):
            names.add(match.group()[1:-1].lower())
    return names


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Write a text as a literal of Spark SQL.

    A ``$`` is escaped: Spark fills in ``${name}`` before it parses, in literals too.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
