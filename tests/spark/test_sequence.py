"""What a write with ``sequence_by`` refuses, and what it does with a table of before; read by delta-rs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import InputError, MergeKeyError
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.recovery import NO_BASELINE
from airflow_provider_scope.stores.local import LocalStorage
from tests.spark.merge_loads import load, merge, refused, stored

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark


def changes(bench: Bench) -> Any:
    """Return what the report says of the newest batch."""
    state = probe(bench.plan.table, bench.plan.pipeline, NO_BASELINE, LocalStorage())
    return state.committed[max(state.committed)].changes


NEWEST = merge("upsert", primary_key=["id"], sequence_by="at")


@pytest.mark.parametrize("strategy", ["upsert", pytest.param("delete-insert", marks=pytest.mark.loads)])
def test_an_older_row_of_a_later_load_changes_nothing_and_is_counted(bench: Bench, strategy: str) -> None:
    write = {**NEWEST, "strategy": strategy}
    load(bench, 0, write, id=[1, 1, 2], at=[5, 4, 5], text=["a", "older", "b"])
    load(bench, 1, write, id=[1, 2, 3], at=[4, 6, 1], text=["late", "new", "c"])

    assert stored(bench, "id", "at", "text") == [(1, 5, "a"), (2, 6, "new"), (3, 1, "c")]
    counts = {"inserted": 1, "updated": 1, "deleted": 0, "deduplicated": 0, "unchanged": 1}
    assert changes(bench) == counts


def test_null_in_the_sequence_is_refused(bench: Bench) -> None:
    error = refused(bench, 0, NEWEST, id=[1, 2], at=[1, None])

    assert isinstance(error, MergeKeyError)
    assert "1 of 2 rows for" in str(error)
    assert "have no at, which is a sequence_by: id '2', at NULL" in str(error)
    assert not bench.table.exists()


@pytest.mark.parametrize("at", [["9", "10"], [1.0, 2.0], [b"1", b"2"], [True, False]])
def test_a_sequence_that_has_no_sure_order_is_refused(bench: Bench, at: list[Any]) -> None:
    error = refused(bench, 0, NEWEST, id=[1, 2], at=at)

    assert isinstance(error, InputError)
    assert "cannot be ordered by it" in str(error)
    assert "CAST(`at` AS timestamp)" in str(error)


def test_rows_that_tie_and_differ_are_refused_in_a_load_and_across_loads(bench: Bench) -> None:
    error = refused(bench, 0, NEWEST, id=[7, 7, 8], at=[1, 1, 1], text=["a", "b", "c"])
    assert isinstance(error, MergeKeyError)
    assert "have the same primary key and the same at, and differ: id '7'." in str(error)
    assert not bench.table.exists()

    load(bench, 0, NEWEST, id=[7, 7, 7], at=[1, 1, 0], text=["a", "a", "older"])
    error = refused(bench, 1, NEWEST, id=[7], at=[1], text=["b"])
    assert isinstance(error, MergeKeyError)
    assert 'the same at, and differ: {"id":7}, of which the table has one.' in str(error)
    load(bench, 1, NEWEST, id=[7], at=[1], text=["a"])

    # Of ties that lose nothing is decided.
    load(bench, 2, NEWEST, id=[7, 7, 7], at=[2, 2, 3], text=["x", "y", "z"])
    assert stored(bench, "id", "at", "text") == [(7, 3, "z")]


@pytest.mark.slow
def test_of_rows_that_nothing_puts_in_order_the_same_one_counts_in_one_load_and_across_loads(
    bench: Bench,
) -> None:
    write, ids = {**NEWEST, "dedup_sort": ["sort", "desc"]}, [*range(8)]
    alike = {"at": [1] * 8, "sort": [1] * 8}
    bench.make(id=ids, **alike, text=["a"] * 8)
    load(bench, 1, write, id=ids, **alike, text=["b"] * 8)
    across = stored(bench, "id", "text")

    bench.table = bench.folder / "together"
    both = bench.parquet("both.parquet", id=2 * ids, at=[1] * 16, sort=[1] * 16, text=["a"] * 8 + ["b"] * 8)
    bench.run(bench.batch(0, both), write=write, table=f"file://{bench.table}")

    assert stored(bench, "id", "text") == across


@pytest.mark.slow
def test_rows_of_before_there_was_a_sequence_are_the_oldest(bench: Bench) -> None:
    bench.make(id=[1, 2], text=["a", "b"])
    file = bench.parquet("1.parquet", id=[1], text=["new"], at=[date(2026, 1, 1)])
    bench.run(bench.batch(1, file), write=NEWEST, schema_evolution="add")
    load(bench, 2, NEWEST, id=[1, 2], text=["late", "newer"], at=[date(2025, 1, 1), date(2025, 1, 1)])

    assert stored(bench, "id", "text") == [(1, "new"), (2, "newer")]


@pytest.mark.slow
def test_a_wider_sequence_is_compared_by_value(bench: Bench) -> None:
    bench.make(id=[1, 2], at=pa.array([5, 5], pa.int32()))
    file = bench.parquet("1.parquet", id=[1, 2], at=[4, 2**40], odd=[Decimal(1), Decimal(2)])
    bench.run(bench.batch(1, file), write=NEWEST, schema_evolution="widen")

    # delta-rs does not read a table with a type that was widened.
    rows = bench.spark.read.format("delta").load(f"file://{bench.table}").collect()
    assert sorted(map(tuple, rows)) == [(1, 5, None), (2, 2**40, Decimal(2))]


@pytest.mark.slow
def test_a_late_row_leaves_a_newer_one_with_a_column_that_the_late_one_lacks(bench: Bench) -> None:
    bench.make(id=[1, 2], at=[5, 5], more=["x", "y"])
    for seq, at in enumerate((4, 5), start=1):
        file = bench.parquet(f"{seq}.parquet", id=[1], at=[at])
        if at == 5:
            error = bench.failure(bench.batch(seq, file), write=NEWEST, schema_evolution="add")
            assert "differ" in str(error)
        else:
            bench.run(bench.batch(seq, file), write=NEWEST, schema_evolution="add")

    assert stored(bench, "id", "at", "more") == [(1, 5, "x"), (2, 5, "y")]
