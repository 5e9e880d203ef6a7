"""Another writer commits while a batch is written: the batch is in the table once, or a run says why not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import BatchNotInTableError
from airflow_provider_scope.spark import commit
from tests.spark.neighbour import append, with_deed

pytestmark = pytest.mark.spark


def test_a_batch_that_would_make_the_table_adds_to_the_one_that_is_made_meanwhile(bench: Any) -> None:
    sql = with_deed(bench, lambda place: write_deltalake(place, pa.table({"a": [1]}), mode="ignore"))

    version = bench.run(bench.batch(0, bench.parquet("a.parquet", a=[2])), sql=sql)

    assert version == 1
    assert bench.rows() == [{"a": 1}, {"a": 2}]


def test_a_range_is_replaced_although_its_files_are_compacted_meanwhile(bench: Any) -> None:
    for number, day in enumerate(["mon", "tue", "tue"]):
        append(str(bench.table), {"a": [number], "d": [day]})
    batch = bench.batch(0, bench.parquet("b.parquet", a=[9], d=["tue"]), mode="overwrite", where="d = 'tue'")

    version = bench.run(batch, sql=with_deed(bench, lambda table: table.optimize.compact()))

    assert version == 4  # 3 is the compaction
    assert bench.rows() == [{"a": 0, "d": "mon"}, {"a": 9, "d": "tue"}]


@pytest.mark.slow
def test_a_table_that_others_change_at_every_try_is_left_alone_after_some(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "TRIES", 3)
    append(str(bench.table), {"a": [1]})

    def change(table: DeltaTable) -> None:
        table.alter.set_table_properties({"delta.checkpointInterval": str(10 + table.version())})

    sql = with_deed(bench, change)
    with pytest.raises(BatchNotInTableError, match="another writer committed in between, 3 times"):
        bench.run(bench.batch(0, bench.parquet("b.parquet", a=[2])), sql=sql)

    assert bench.version() == 3
    assert bench.rows() == [{"a": 1}]


@pytest.mark.slow
def test_a_range_is_replaced_row_by_row_in_a_table_with_deletion_vectors(bench: Any) -> None:
    vectors = {"delta.enableDeletionVectors": "true"}
    first = bench.batch(0, bench.parquet("a.parquet", a=[*range(10)], d=["mon", "tue"] * 5))
    second = bench.batch(
        1, bench.parquet("b.parquet", a=[99], d=["tue"]), mode="overwrite", where="d = 'tue'"
    )

    bench.run(first, properties=vectors)
    bench.run(second, properties=vectors)

    # By Spark, for what was deleted by a vector only a reader of vectors leaves out.
    rows = bench.spark.read.format("delta").load(str(bench.table)).collect()
    assert sorted(row["a"] for row in rows) == [0, 2, 4, 6, 8, 99]
