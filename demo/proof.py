"""An independent look at the table: it must hold the landed rows, each as often as it was landed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import parquet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Rows of the files against rows of the table, compared as multisets."""

    files: int
    landed: int
    in_table: int
    version: int
    same_columns: bool
    """The table has the columns of the files, with their types, and ``source_file_uri``."""
    lost: int
    """Copies of rows that were landed and are not in the table."""
    doubled: int
    """Copies of rows in the table beyond those that were landed."""


def results(landing: Path, suffix: str) -> list[Path]:
    """Return the landed files that a table of them must hold."""
    files = sorted(landing.rglob(f"*{suffix}"))
    return [file for file in files if not file.name.startswith("_") and file.stat().st_size]


def compare(files: Sequence[Path], landing: Path, root: str, table: Path) -> Proof:
    """Compare all columns of all rows of the files with the table, by readers that are not Spark.

    :param root: The landing folder, as the virtual columns name it.
    """
    delta = DeltaTable(table)
    in_table = delta.to_pyarrow_table()
    landed = pa.concat_tables(_rows(file, f"{root}/{file.relative_to(landing)}") for file in files)
    columns = {field.name: _delta_type(field.type) for field in landed.schema}
    landed = landed.select(in_table.column_names).cast(in_table.schema)
    lost, doubled = differences(landed, in_table)
    return Proof(
        files=len(files),
        landed=landed.num_rows,
        in_table=in_table.num_rows,
        version=delta.version(),
        same_columns=columns == {field.name: field.type for field in in_table.schema},
        lost=lost,
        doubled=doubled,
    )


def differences(landed: pa.Table, in_table: pa.Table) -> tuple[int, int]:
    """Count the rows that are too few and those that are too many.

    Every landed row counts 1 and every row of the table -1; the sum over equal rows is 0 if the
    table holds them as often as they were landed.
    """
    count = "rows_too_few"
    both = pa.concat_tables(
        table.append_column(count, pa.repeat(pa.scalar(sign, pa.int64()), table.num_rows))
        for sign, table in ((1, landed), (-1, in_table))
    )
    sums = both.group_by(landed.column_names).aggregate([(count, "sum")])[f"{count}_sum"]
    lost = pc.sum(pc.filter(sums, pc.greater(sums, 0))).as_py() or 0
    doubled = pc.sum(pc.filter(sums, pc.less(sums, 0))).as_py() or 0
    return lost, -doubled


def _rows(file: Path, uri: str) -> pa.Table:
    rows = parquet.read_table(file, partitioning=None)
    return rows.append_column("source_file_uri", pa.repeat(uri, rows.num_rows))


def _delta_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in a Delta table, where every time is in microseconds."""
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
