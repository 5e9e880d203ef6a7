"""Another writer of the table, in the midst of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tests.support.meanwhile import meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable


def with_deed(bench: Any, deed: Callable[[Any], object]) -> str:
    """Return a SELECT in the midst of which something is done to the table, or to its location."""

    def do() -> None:
        place = str(bench.table)
        deed(DeltaTable(place) if DeltaTable.is_deltatable(place) else place)

    bench.spark.udf.register("meanwhile", meanwhile(do), "bigint")
    return "SELECT meanwhile(a) a, * EXCEPT (a) FROM @data"


def append(table: Any, rows: dict[str, list[Any]], **properties: Any) -> None:
    write_deltalake(table, pa.table(rows), mode="append", commit_properties=CommitProperties(**properties))
