"""What the worker and the Spark application share about a database, and how its rows are divided."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from itertools import pairwise

CONF = "spark.airflow_provider_scope.jdbc."
"""Properties of the application begin so; Spark hides the value of the one that ends in "password"."""

MARK = "airflow-provider-scope: "
"""The beginning of an error that our statements raise: ``<mark>column <name> has the value <value>"``."""
_REFUSED = re.compile(re.escape(MARK) + r"(column .{1,200}? has the value .{1,100}?)\"")
_BY_SQLITE = re.compile(r"bad JSON path: '" + _REFUSED.pattern + "'")
"""It quotes what it does not take as SQL does."""
OF_NUMBERS = {
    "date": "date_from_unix_date(CAST(%s AS int))",
    "timestamp_ntz": "CAST(timestamp_micros(%s) AS timestamp_ntz)",
    "timestamp": "timestamp_micros(%s)",
}
"""Type -> its value of days or microseconds since 1970: Java's own have no 10 October 1582, and a zone."""

WHOLE = "whole"
DECIMAL = "decimal"
FLOAT = "float"


def named(name: str) -> str:
    """Quote the name of a column for a database that quotes as the standard says."""
    return '"' + name.replace('"', '""') + '"'


def rows_of(table: str | None, query: str | None) -> str:
    """Return the text after FROM."""
    if table:
        return f"{table} AS q"
    # A statement may end with a semicolon; it is a part of another one here.
    return f"({str(query).rstrip().removesuffix(';')}\n) AS q"


def postgres_literal(kind: str, text: str) -> str:
    """Return a value of one of our types as a literal of PostgreSQL."""
    if kind == "string":
        escaped = text.replace("\\", "\\\\").replace("'", "''")  # backslash_quote may be off
        return f"E'{escaped}'"
    if kind == "timestamp":
        return f"TIMESTAMPTZ '{text.removesuffix('Z')}+00'"
    if kind == "timestamp_ntz":
        return f"TIMESTAMP '{text}'"
    if kind in ("date", "float", "double"):
        return f"{ {'date': 'DATE', 'float': 'REAL', 'double': 'FLOAT8'}[kind] } '{text}'"
    return text if not text.startswith("-") else f"({text})"


def refused_value(text: str) -> str | None:
    """Find the column and the value that cannot be loaded in an error's text; None for any other error."""
    if match := _BY_SQLITE.search(text):
        return match[1].replace("''", "'")
    match = _REFUSED.search(text)
    return match[1] if match else None


def finding(kind: str, source: str, refused: str) -> str:
    """Return the query with which a user finds the rows of a value that cannot be loaded.

    :param kind: The database's.
    :param source: The text after FROM.
    :param refused: What ``refused_value`` gave.
    :return: Empty if the database is of another kind.
    """
    column, _, value = refused.removeprefix("column ").partition(" has the value ")
    name, text = named(column), value.replace("'", "''")
    of_mysql = "`" + column.replace("`", "``") + "`"
    conditions = {
        "postgresql": f"{name}::text = '{text}'",
        "sqlite": f"replace(substr(quote({name}), 1, 50), char(10), ' ') = '{text}'",
        "mysql": f"{of_mysql} IS NOT NULL AND TIMESTAMPDIFF(DAY, '1970-01-01', {of_mysql}) IS NULL",
    }
    if kind not in conditions:
        return ""
    return f"SELECT * FROM {source} WHERE {conditions[kind]}"  # noqa: S608 - it is shown, and not run


def edges(low: str, high: str, count: int, kind: str) -> list[str]:
    """Divide a range of numbers into parts of about the same width.

    :param low: The smallest number, as text. It is finite, as is the largest one.
    :param count: How many parts are wanted.
    :param kind: ``WHOLE``, ``DECIMAL`` or ``FLOAT``.
    :return: Where the second part begins, the third, and so on: ascending, above ``low``, and not above
        ``high``. Fewer than ``count - 1`` where the range has fewer numbers.
    """
    if kind == WHOLE:
        first, width = int(low), int(high) - int(low)
        texts = [str(first + width * part // count) for part in range(1, count)]
        return [text for text in dict.fromkeys(texts) if int(text) > first]
    if kind == FLOAT:
        # Not from the width, which may be infinite.
        start, end = float(low), float(high)
        numbers = [start * (1 - part / count) + end * (part / count) for part in range(1, count)]
        return [repr(number) for number in sorted({number for number in numbers if start < number <= end})]
    with localcontext(prec=len(low) + len(high) + 20):
        least, most = Decimal(low), Decimal(high)
        decimals = {least + (most - least) * part / count for part in range(1, count)}
        return [f"{number:f}" for number in sorted(decimals) if number > least]


def ranges(value: str, literals: list[str], *, may_be_null: bool = True) -> list[str]:
    """Return conditions in SQL of which each row meets one: also one without a value, and beyond all edges.

    :param value: The column, as SQL.
    :param literals: Where the second range begins, the third, and so on, as SQL.
    :param may_be_null: Whether there may be rows without a value; they are in the first range.
    :return: One condition more than there are edges.
    """
    if not literals:
        return ["TRUE"]
    between = [f"{value} >= {low} AND {value} < {high}" for low, high in pairwise(literals)]
    first = f"{value} < {literals[0]}" + (f" OR {value} IS NULL" if may_be_null else "")
    return [first, *between, f"{value} >= {literals[-1]}"]
