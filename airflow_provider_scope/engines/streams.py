"""What can be told of the files of an EXTRACT without Spark: their kind, and which of them read alike."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from airflow_provider_scope.core.streams import Extraction, StreamColumn
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.script.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.core.streams import Stream
    from airflow_provider_scope.script.statements import Column, Extract

_PARQUET = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Tell parquet from CSV by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def is_readable(head: bytes) -> bool:
    """Tell whether a file that begins with these bytes can be parquet or text."""
    if head.startswith(_PARQUET):
        return True
    try:
        # A character that is cut at the end is no error.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def column_of(column: Column) -> StreamColumn:
    """Give a column of a script with its Spark type."""
    return StreamColumn(column.name, column.type, spark_type(column.type), column.nullable)


def extraction(statement: Extract, streams: Sequence[Stream]) -> Extraction:
    """Give what an EXTRACT reads of files.

    :raises InputError: A file says that it is parquet, and is not.
    """
    return Extraction(
        streams=tuple(streams),
        groups=_groups(streams, [column.name for column in statement.columns]),
        columns=tuple(map(column_of, statement.columns)),
        virtual=tuple((one.name, one.function) for one in statement.virtual),
    )


def _groups(streams: Sequence[Stream], names: list[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Put files of the same kind and types together; Spark reads each group with one schema."""
    groups: dict[tuple[str, str], list[str]] = {}
    for stream in streams:
        for part in stream.parts:
            kind, types = "csv", ""
            if is_parquet(Path(part)):
                kind = "parquet"
                try:
                    schema = parquet.read_schema(part)
                except (pa.ArrowException, OSError) as err:
                    raise InputError(f"{stream.uri} cannot be read: {err}.") from err
                types = repr([(f.name, str(f.type)) for f in schema if f.name in names])
            groups.setdefault((kind, types), []).append(part)
    return tuple((kind, tuple(parts)) for (kind, _), parts in groups.items())
