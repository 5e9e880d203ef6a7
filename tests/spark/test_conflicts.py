"""Another writer commits while a batch is written: the batch is in the table once, or a run says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from airflow_provider_scope.exceptions import BatchNotInTableError
from tests.support.meanwhile import meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark


def with_deed(bench: Any, deed: Callable[[Any], object]) -> str:
    """Return a SELECT in the midst of which something is done to the table, or to its location."""

    def do() -> None:
        place = str(bench.table)
        deed(DeltaTable(place) if DeltaTable.is_deltatable(place) else place)

    bench.spark.udf.register("meanwhile", meanwhile(do), "bigint")
    return "SELECT meanwhile(a) a, * EXCEPT (a) FROM @data"


def append(table: Any, rows: dict[str, list[Any]], **properties: Any) -> None:
    write_deltalake(table, pa.table(rows), mode="append", commit_properties=CommitProperties(**properties))


def test_a_batch_that_another_run_commits_during_the_write_is_not_in_the_table_twice(bench: Any) -> None:
    """Delta reports a conflict, also if the other commit was our own and its answer was lost."""
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])))
    same = [Transaction(bench.plan.pipeline, 1)]
    sql = with_deed(bench, lambda table: append(table, {"a": [2]}, app_transactions=same))

    version = bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])), sql=sql)

    assert version is None
    assert bench.version() == 1
    assert bench.rows() == [{"a": 1}, {"a": 2}]


def test_a_batch_that_would_make_the_table_adds_to_the_one_that_is_made_meanwhile(bench: Any) -> None:
    sql = with_deed(bench, lambda place: write_deltalake(place, pa.table({"a": [1]}), mode="ignore"))

    version = bench.run(bench.batch(0, bench.parquet("a.parquet", a=[2])), sql=sql)

    assert version == 1
    assert bench.rows() == [{"a": 1}, {"a": 2}]


def test_a_range_is_replaced_although_its_files_are_compacted_meanwhile(bench: Any) -> None:
    for seq, day in enumerate(["mon", "tue", "tue"]):
        bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", a=[seq], d=[day])))
    batch = bench.batch(3, bench.parquet("b.parquet", a=[9], d=["tue"]), mode="overwrite", where="d = 'tue'")

    version = bench.run(batch, sql=with_deed(bench, lambda table: table.optimize.compact()))

    assert version == 4  # 3 is the compaction
    assert bench.rows() == [{"a": 0, "d": "mon"}, {"a": 9, "d": "tue"}]


def test_files_are_added_although_others_are_compacted_meanwhile(bench: Any) -> None:
    for seq in range(2):
        bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", a=[seq])))

    bench.run(
        bench.batch(2, bench.parquet("b.parquet", a=[2])),
        sql=with_deed(bench, lambda table: table.optimize.compact()),
    )

    assert bench.rows() == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_a_table_that_others_change_at_every_try_is_left_alone_after_three(bench: Any) -> None:
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])))

    def change(table: DeltaTable) -> None:
        table.alter.set_table_properties({"delta.checkpointInterval": str(10 + table.version())})

    sql = with_deed(bench, change)
    with pytest.raises(BatchNotInTableError, match="another writer committed in between, 3 times"):
        bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])), sql=sql)

    assert bench.version() == 3
    assert bench.rows() == [{"a": 1}]


def test_a_range_is_replaced_row_by_row_in_a_table_with_deletion_vectors(bench: Any) -> None:
    vectors = {"delta.enableDeletionVectors": "true"}
    first = bench.batch(0, bench.parquet("a.parquet", a=[*range(10)], d=["mon", "tue"] * 5))
    second = bench.batch(
        1, bench.parquet("b.parquet", a=[99], d=["tue"]), mode="overwrite", where="d = 'tue'"
    )
    third = bench.batch(2, bench.parquet("c.parquet", a=[100], d=["mon"]))

    bench.run(first, properties=vectors)
    bench.run(second, properties=vectors)
    bench.spark.sql(f"OPTIMIZE delta.`{bench.table}`")
    bench.run(third, properties=vectors)

    # By Spark, for what was deleted by a vector only a reader of vectors leaves out.
    found = bench.spark.read.format("delta").load(str(bench.table)).collect()
    assert sorted((row["a"], row["d"]) for row in found) == [
        *[(0, "mon"), (2, "mon"), (4, "mon"), (6, "mon"), (8, "mon")],
        *[(99, "tue"), (100, "mon")],
    ]
