"""Whether a model fits its table, and what Spark is asked to find out about it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.streams import Extraction, Stream, StreamColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.schema import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model to be run on some files, into a table that is thrown away."""

    extraction: Extraction
    rowset: str
    """The rowset of the EXTRACT."""
    queries: tuple[tuple[str, str], ...]
    """Rowsets and the Spark SQL that makes them, in order: the model, then what is inserted."""
    columns: tuple[StreamColumn, ...]
    """Of the table."""
    partition_by: tuple[str, ...]
    table: str
    """Local path of the table."""


def encode(plan: ModelPlan) -> bytes:
    """Give the bytes of a plan file."""
    return json.dumps(asdict(plan), ensure_ascii=False).encode()


def decode(data: bytes) -> ModelPlan:
    """Read a plan file, which this very version wrote."""
    value = json.loads(data)
    read = value["extraction"]
    extraction = Extraction(
        streams=tuple(Stream(**{**one, "parts": tuple(one["parts"])}) for one in read["streams"]),
        groups=tuple((kind, tuple(parts)) for kind, parts in read["groups"]),
        columns=tuple(StreamColumn(**one) for one in read["columns"]),
        virtual=tuple((name, function) for name, function in read["virtual"]),
    )
    return ModelPlan(
        extraction=extraction,
        rowset=value["rowset"],
        queries=tuple((name, sql) for name, sql in value["queries"]),
        columns=tuple(StreamColumn(**one) for one in value["columns"]),
        partition_by=tuple(value["partition_by"]),
        table=value["table"],
    )


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table that exists."""

    version: int
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    not_null: frozenset[str] = frozenset()


def model_differences(model: Sequence[Column], declared: Sequence[Column]) -> list[str]:
    """Tell where a model does not give the declared columns.

    Names are matched with their case, as SCOPE does, and types as Delta does, which converts none.
    """
    given, wanted = dict(model), dict(declared)
    return [
        *(
            f"{name} {kind} is declared, but the SELECT does not give it"
            for name, kind in _without(declared, given)
        ),
        *(f"{name} {kind} of the SELECT is not declared" for name, kind in _without(model, wanted)),
        *(
            f"{name} is {given[name]} in the SELECT, but declared as {kind}"
            for name, kind in declared
            if name in given and not _alike(given[name], kind)
        ),
    ]


def table_differences(
    declared: Sequence[Column],
    partition_by: Sequence[str],
    table: TableColumns,
    *,
    adds_columns: bool = False,
) -> list[str]:
    """Tell where a table that exists is not the declared one.

    :param adds_columns: Whether a job adds the declared columns that the table does not have.
    """
    wanted, there = dict(declared), dict(table.columns)
    found = [
        *(
            f"{name} {kind} is declared, but is not a column of the table"
            for name, kind in ([] if adds_columns else _without(declared, there))
        ),
        *(f"{name} {kind} of the table is not declared" for name, kind in _without(table.columns, wanted)),
        *(
            f"{name} is declared as {kind}, but is {there[name]} in the table"
            for name, kind in declared
            if name in there and not _alike(kind, there[name])
        ),
    ]
    # A table is left as it is where no partitioning is declared.
    if partition_by and tuple(partition_by) != table.partition_by:
        found.append(
            f"the table is partitioned by {_names(table.partition_by)}, but declared as partitioned by "
            f"{_names(partition_by)}"
        )
    return found


def choose(files: Iterable[FileEntry], count: int, limit_bytes: int) -> tuple[FileEntry, ...]:
    """Take the first files that together are not larger than a limit; what does not fit is passed over."""
    chosen: list[FileEntry] = []
    left = limit_bytes
    for file in files:
        if len(chosen) == count:
            break
        if file.size_bytes <= left:
            chosen.append(file)
            left -= file.size_bytes
    return tuple(chosen)


def _without(columns: Iterable[Column], names: Iterable[str]) -> list[Column]:
    known = set(names)
    return [column for column in columns if column[0] not in known]


def _alike(one: str, other: str) -> bool:
    """Tell whether two Spark types are the same to SCOPE, whose decimal has no fixed digits."""
    return one == other or (one.startswith("decimal(") and other.startswith("decimal("))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
