"""Find misspelt columns in the SELECT when the DAG is parsed, long before a JVM could."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from airflow_provider_scope.core.sql import over_view
from airflow_provider_scope.exceptions import SqlError
from airflow_provider_scope.specs.source import VIRTUAL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

_VIEW = "scope_data"


def check_columns(sql: str, columns: Iterable[str]) -> None:
    """Check that every column the SELECT names is declared.

    Only what is certain is refused: a text that this parser does not know, or that reads other tables,
    is left to Spark.

    :param columns: The declared columns of the files.
    :raises SqlError: Names each unknown column, and the declared one that looks most like it.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(over_view(sql, _VIEW), dialect="spark")
    except SqlglotError:
        return
    ctes = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    tables = {table.name.lower() for table in tree.find_all(exp.Table)}
    if tables - ctes != {_VIEW}:
        return
    declared = {name.lower(): name for name in columns}
    known = {*declared, *VIRTUAL_COLUMNS, *_made_in(tree)}
    relations = _relations(tree) | ctes
    unknown = []
    for column in tree.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        if parts[0] in relations and len(parts) > 1:
            parts = parts[1:]
        if not isinstance(column.this, exp.Star) and parts[0] not in known:
            unknown.append(column.parts[0].name if len(parts) == len(column.parts) else column.name)
    if unknown:
        raise SqlError(
            "The SQL names columns that `source.columns` does not declare: "
            + ", ".join(_hint(name, declared) for name in dict.fromkeys(unknown))
            + ".",
            kept="everything; nothing was read or written",
            do="correct the name, or declare the column in FileSource(columns=...)",
        )


def _made_in(tree: exp.Expr) -> set[str]:
    """Give the names that the SELECT itself makes: aliases, lambda parameters, columns of generators."""
    from sqlglot import exp

    names = {alias.alias.lower() for alias in tree.find_all(exp.Alias)}
    for function in tree.find_all(exp.Lambda):
        names |= {parameter.name.lower() for parameter in function.expressions}
    for alias in tree.find_all(exp.TableAlias):
        names |= {column.name.lower() for column in alias.columns}
    for several in tree.find_all(exp.Aliases):
        names |= {alias.name.lower() for alias in several.aliases if hasattr(alias, "name")}
    return names


def _relations(tree: exp.Expr) -> set[str]:
    from sqlglot import exp

    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias) if alias.this}
    return aliases | {_VIEW}


def _hint(name: str, declared: dict[str, str]) -> str:
    close = difflib.get_close_matches(name.lower(), declared, n=1)
    return f"{name} (did you mean {declared[close[0]]}?)" if close else name
