"""Columns whose values are in the paths of the files: ``…/d=2026-11-25/h=07/a.parquet``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.columns import INFER
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.files.listing import KEPT, Problem, bad_files
from airflow_provider_scope.spark.structs import literal_rows, repeated_names
from airflow_provider_scope.spark.values import Converted, convert
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql import types as T  # noqa: N812

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.plan import Plan

HIVES_NULL = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, Spark and others write NULL in a path."""
_PATH_HINT = (
    "move the file; or correct `partition_columns`, whose names are compared exactly; or set "
    'missing_columns="null" if paths may lack a folder'
)
_TYPE_HINT = "declare it as string in `partition_columns`, and use try_cast in the SELECT"


def inferred(plan: Plan, entry: OffsetEntry) -> Plan:
    """Declare the columns of all folders of a batch as texts, or as the hints say, if they are inferred.

    :raises InputError: Their names differ in letter case alone, or are those of columns of the files.
    """
    if plan.files.partition_columns != INFER:
        return plan
    names = list(dict.fromkeys(name for path in entry.paths for name in _folders(path)))
    if alike := repeated_names(names):
        raise InputError(
            f"The folders of batch {entry.seq} have names that differ in letter case alone: "
            f"{', '.join(alike)}.",
            kept=KEPT,
            do="name the folders alike; or declare the right ones in `partition_columns`",
        )
    hints = plan.hints
    # A hint for which an earlier batch had no folder was a column of its files, without values.
    hinted = {*hints} & {*names}
    of_files = {name: kind for name, kind in (plan.inferred_columns or {}).items() if name not in hinted}
    types = {name: hints.pop(name, "string") for name in names}
    return replace(
        plan,
        inferred_columns=of_files or None,
        source=replace(plan.files, partition_columns=types or None, schema_hints=hints or None),
    )


def _folders(path: str) -> dict[str, list[str]]:
    """Read the names and the texts of the folders that have both."""
    texts: dict[str, list[str]] = {}
    for folder in path.split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if name and sign:
            texts.setdefault(unquote(name), []).append(text)
    return texts


def texts_of(path: str, names: Sequence[str], *, allows_missing: bool = False) -> list[str | None]:
    """Read the texts that the folders of a path have for columns; None is NULL.

    :param allows_missing: Whether a column without a folder is NULL.
    :raises ValueError: It has none for a column, or several, or one that is not UTF-8; it says which.
    """
    texts = _folders(path)
    if allows_missing:
        texts = {name: [HIVES_NULL] for name in names} | texts
    for name in names:
        if len(texts.get(name, ())) != 1:
            raise ValueError(f"its path has {'more than one' if name in texts else 'no'} folder {name}=…")
    try:
        return [
            None if texts[name] == [HIVES_NULL] else unquote(texts[name][0], errors="strict")
            for name in names
        ]
    except UnicodeDecodeError:
        raise ValueError("its path has a value that is not UTF-8 when it is decoded") from None


def rows_of(
    entry: OffsetEntry, columns: T.StructType, *, allows_missing: bool
) -> list[dict[str, str | None]]:
    """Read the texts of each file of a batch: ``p0``, ``p1`` and so on.

    :raises BadFileError: A path does not have one for each column.
    """
    problems, rows = [], []
    for path in entry.paths:
        try:
            texts = texts_of(path, columns.names, allows_missing=allows_missing)
        except ValueError as err:
            problems.append(Problem(path, str(err), hint=_PATH_HINT))
        else:
            rows.append({f"p{place}": text for place, text in enumerate(texts)})
    if problems:
        raise bad_files(entry, problems)
    return rows


def text_columns(columns: T.StructType) -> list[str]:
    """List the columns of the texts, with their types."""
    return [f"p{place} string" for place, _ in enumerate(columns)]


def values(columns: T.StructType) -> list[str]:
    """Write SQL of the typed values over the texts, under the names of the columns."""
    return [
        f"{_converted(place, field).value} AS {quoted(field.name)}" for place, field in enumerate(columns)
    ]


def check(spark: SparkSession, entry: OffsetEntry, columns: T.StructType, *, allows_missing: bool) -> None:
    """Check that the path of each file of a batch has a value for each column, of its type.

    :param allows_missing: As for ``texts_of``.
    :raises BadFileError: As said.
    """
    texts_by_file = rows_of(entry, columns, allows_missing=allows_missing)
    rows = [{"path": path, **row} for path, row in zip(entry.paths, texts_by_file, strict=True)]
    cases = []
    for place, field in enumerate(columns):
        if is_exact := _converted(place, field).is_exact:
            words = literal(f", which is not {field.dataType.simpleString()}")
            rule = f"concat({literal(f'its path has {field.name}=')}, p{place}, {words})"
            cases.append(f"WHEN p{place} IS NOT NULL AND NOT coalesce({is_exact}, false) THEN {rule}")
    if not cases:
        return
    texts = literal_rows(spark, rows, ", ".join(["path string", *text_columns(columns)]))
    wrong = texts.select("path", F.expr(f"CASE {' '.join(cases)} END").alias("wrong"))
    if bad := wrong.where("wrong IS NOT NULL").collect():
        raise bad_files(entry, [Problem(row.path, row.wrong, hint=_TYPE_HINT) for row in bad])


def check_names(columns: T.StructType, names: Sequence[str]) -> None:
    """Refuse columns of paths that the files have, too.

    :param names: The columns of the files.
    :raises InputError: As said.
    """
    in_files = {name.lower() for name in names}
    repeated = [name for name in columns.names if name.lower() in in_files]
    if repeated:
        raise InputError(
            f"The files have columns that partition_columns names, too: {', '.join(repeated)}.",
            kept=KEPT,
            do="leave them out of partition_columns; or declare `columns` without them, and set "
            'extra_columns="ignore"',
        )


def _converted(place: int, field: T.StructField) -> Converted:
    # Without the reader's options: they say how values are written in the files.
    return convert(f"p{place}", field.dataType, field.name, {})
