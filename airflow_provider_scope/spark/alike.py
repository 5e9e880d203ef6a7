"""Names in text files that a table cannot tell apart: told as they are in the file.

Spark itself stops at a JSON key in two spellings without the file, and gives CSV columns names of its own.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import BadFileError
from airflow_provider_scope.spark.listing import for_inference
from airflow_provider_scope.spark.problems import KEPT, Problem, bad_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.records import OffsetEntry

CLASH = "COLUMN_ALREADY_EXISTS"
"""Spark's condition for two names that differ in case alone."""
_FILES_AT_ONCE = 4
_KEYS_HINT = (
    "write the key in one way; or declare one spelling in `columns`, and leave the other out with "
    'extra_columns="ignore"'
)
_HEADER_HINT = "give each column of the file a name of its own"


def json_keys(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> BadFileError | None:
    """Give the error for files with keys that differ in letter case alone; they are read once more.

    :return: None if there are no such keys.
    """
    # Of its own, so that nothing else that runs now sees the setting.
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")

    def keys(path: str) -> list[str]:
        found = session.read.format("json").options(**options).load(for_inference([path])).schema
        return [*_names(found)]

    paths = [file.path for file in entry.files]
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="scope-keys") as pool:
        keys_of = dict(zip(paths, pool.map(keys, paths), strict=True))
    problems = [
        Problem(path, f"it has keys that differ in letter case alone: {', '.join(same)}", hint=_KEYS_HINT)
        for path, names in keys_of.items()
        if (same := _alike(names))
    ]
    if problems:
        return bad_files(entry, problems)
    first: dict[str, str] = {}
    for path, names in keys_of.items():
        for name in names:
            first.setdefault(name, path)
    same = _alike([*first])
    if not same:
        return None
    # No file is at fault alone, so that none of them is put aside.
    told = "; ".join(f"{name} in {first[name]}" for name in same)
    return BadFileError(
        f"The files of batch {entry.seq} have keys that differ in letter case alone: {told}.",
        kept=KEPT,
        do=_KEYS_HINT,
    )


def check_header(
    spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str], names: Sequence[str]
) -> None:
    """Refuse a CSV header with a name twice, or an empty one.

    :param options: In lower case, as Spark's reader gets them.
    :param names: The columns that Spark took from the header of one of the files.
    :raises BadFileError: As said.
    """
    made_up = any(name.endswith(str(place)) for place, name in enumerate(names))
    if options.get("header", "false").lower() != "true" or not made_up:
        return
    plain = {**options, "header": "false", "inferschema": "false"}
    for file in entry.files:
        first = spark.read.format("csv").options(**plain).load(for_inference([file.path])).first()
        header = [name or "" for name in first or ()]
        if header == [*names]:
            return
        same = _alike(header)
        if same or "" in header:
            empty = [str(place) for place, name in enumerate(header, start=1) if not name]
            parts = [f"a name more than once: {', '.join(same)}"] if same else []
            parts += [f"no name for column {', '.join(empty)}"] if empty else []
            what = f"its CSV header has {' and '.join(parts)}"
            raise bad_files(entry, [Problem(file.path, what, ",".join(header), _HEADER_HINT, line=1)])


def _names(kind: T.DataType, outer: str = "") -> Iterator[str]:
    """Give the names of all fields with those they are in: ``a``, ``a.b``."""
    if isinstance(kind, T.ArrayType):
        yield from _names(kind.elementType, outer)
    elif isinstance(kind, T.StructType):
        for field in kind:
            yield outer + field.name
            yield from _names(field.dataType, f"{outer}{field.name}.")


def _alike(names: Sequence[str]) -> list[str]:
    """Give the names that are there more than once, whatever their case."""
    often = Counter(name.lower() for name in names)
    found = [name for name in names if name and often[name.lower()] > 1]
    # What lies below such a key differs with it.
    outer = tuple(f"{name.lower()}." for name in found)
    return [name for name in found if not name.lower().startswith(outer)]
