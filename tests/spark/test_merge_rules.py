"""What Merge does with keys, duplicates, marks and columns; read back by delta-rs.

The tables of docs/writes.md are run by tests/docs/test_writes_page.py; here is what they do not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import InputError, MergeKeyError
from tests.spark.merge_loads import load, merge, refused, stored

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark


def test_every_copy_of_a_key_that_an_append_left_goes_and_nested_data_come_with_their_row(
    bench: Bench,
) -> None:
    lists = pa.list_(pa.int64())
    items = pa.array([[1, 2], [1, 2], [3]], lists)
    bench.make(id=[1, 1, 2], text=["a", "a", "b"], items=items)
    load(bench, 1, merge(primary_key=["id"]), id=[1], text=["new"], items=pa.array([[]], lists))

    assert stored(bench, "id", "text", "items") == [(1, "new", []), (2, "b", [3])]


@pytest.mark.slow
def test_keys_are_exact_and_compared_column_by_column(bench: Bench) -> None:
    write, big = merge(primary_key=["a", "b", "x", "n"]), 2**53
    bench.make(a=["ab", "k"], b=["c", "k"], x=[0.0, 0.0], n=[1, big + 1], told=[0, 0])
    others = ["K", "k ", "", "\u00e9", "e\u0301"]
    count = len(others)
    load(
        bench,
        1,
        write,
        a=["a", "k", "k", *others],
        b=["bc", "k", "k", *["k"] * count],
        x=[0.0, -0.0, 0.0, *[0.0] * count],
        n=[1, big + 1, big, *[big + 1] * count],
        told=[1] * (count + 3),
    )

    rows = stored(bench, "a", "b", "n", "told")
    assert ("ab", "c", 1, 0) in rows
    assert ("k", "k", big + 1, 0) not in rows
    assert len(rows) == 1 + 3 + count


@pytest.mark.parametrize("key", ["primary_key", "merge_key"])
def test_a_key_that_is_null_refuses_the_batch(bench: Bench, key: str) -> None:
    error = refused(bench, 0, merge(**{key: ["id", "day"]}), id=[1, 2, 3], day=["mon", None, None])

    assert isinstance(error, MergeKeyError)
    assert f"2 of 3 rows for file://{bench.table} have no day, which is a {key}: id '2', day NULL" in str(
        error
    )
    assert not bench.table.exists()


def test_a_name_that_is_no_column_is_refused_though_no_key_comes_twice(bench: Bench) -> None:
    names = {"primary_key": ["no"], "merge_key": ["no"], "dedup_sort": ["no", "asc"], "hard_delete": "no"}
    for argument, value in names.items():
        error = refused(bench, 0, merge(**{"primary_key": ["id"], argument: value}), id=[1, 2])

        assert isinstance(error, InputError)
        assert f"{argument} names 'no', which is not a column of the rows for" in str(error)
    assert not bench.table.exists()


@pytest.mark.parametrize(
    "write",
    [
        merge("upsert", primary_key=["id"]),
        {"kind": "scd2", "merge_key": ["id"]},
        {"kind": "scd2", "merge_key": ["number"], "sequence_by": "id"},
        pytest.param(merge(primary_key=["number"], merge_key=["id"]), marks=pytest.mark.loads),
        pytest.param(merge("insert-only", primary_key=["id"]), marks=pytest.mark.loads),
    ],
)
def test_a_key_that_was_renamed_in_the_table_is_refused_where_columns_are_added(
    bench: Bench, write: dict[str, Any]
) -> None:
    none = pa.array([None], pa.int64() if "sequence_by" in write else pa.timestamp("us", "UTC"))
    versions = {"_valid_from": none, "_valid_to": none, "_row_hash": ["x"]}
    bench.make(order=[1], number=[1], **(versions if write["kind"] == "scd2" else {}))
    file = bench.parquet("1.parquet", id=[1], number=[1])
    error = bench.failure(bench.batch(1, file), write=write, schema_evolution="add")

    assert "names 'id', which is not a column of the table" in str(error)
    assert "full_refresh=True" in str(error)
    assert bench.version() == 0


@pytest.mark.slow
def test_a_row_that_loses_still_deletes_by_its_merge_key(bench: Bench) -> None:
    write = merge(primary_key=["id"], merge_key=["day"], dedup_sort=["at", "desc"])
    bench.make(id=[1, 2, 3, 4], day=["mon", "tue", "wed", "thu"], at=[1, 1, 1, 1])
    load(bench, 1, write, id=[1, 1], day=["tue", "wed"], at=[9, 8])

    assert stored(bench, "id", "day") == [(1, "tue"), (4, "thu")]


def test_without_keys_rows_are_added_but_for_those_that_are_marked(bench: Bench) -> None:
    write = merge(hard_delete="gone")
    bench.make(id=[1], gone=[False])
    load(bench, 1, write, id=[1, 1], gone=[False, True])

    assert stored(bench, "id") == [1, 1]


@pytest.mark.parametrize(("order", "wins"), [("asc", 1), ("desc", 3)])
def test_null_loses_in_both_orders(bench: Bench, order: str, wins: int) -> None:
    load(bench, 0, merge(primary_key=["id"], dedup_sort=["at", order]), id=[7] * 4, at=[3, None, 1, 2])

    assert stored(bench, "at") == [wins]


def test_one_of_equal_rows_counts_and_the_last_load_wins(bench: Bench) -> None:
    write = merge(primary_key=["id"], dedup_sort=["at", "desc"])
    load(bench, 0, write, id=[1, 1, 2], at=[9, 9, 9], text=["a", "b", "c"])
    load(bench, 1, write, id=[2], at=[1], text=["older"])

    rows = stored(bench, "id", "at", "text")
    assert [row[:2] for row in rows] == [(1, 9), (2, 1)]
    assert rows[1][2] == "older"


def test_without_an_order_always_the_same_row_counts(bench: Bench) -> None:
    load(bench, 0, merge(primary_key=["id"]), id=[1, 1], text=["a", "b"])
    first = stored(bench, "text")
    load(bench, 1, merge(primary_key=["id"]), id=[1, 1], text=["b", "a"])

    assert len(first) == 1
    assert stored(bench, "text") == first


@pytest.mark.parametrize(
    ("marks", "left"),
    [
        pytest.param([True, False, None], [2, 3, 9], id="boolean"),
        pytest.param(["", "false", None], [3, 9], id="text"),
    ],
)
def test_what_marks_a_row(bench: Bench, marks: list[Any], left: list[int]) -> None:
    write = merge(primary_key=["id"], hard_delete="gone")
    kind = pa.array(marks).type
    bench.make(id=[1, 2, 3, 9], gone=pa.array([None] * 4, kind))
    load(bench, 1, write, id=[1, 2, 3], gone=pa.array(marks, kind))

    assert stored(bench, "id") == left


def test_a_mark_for_a_key_that_is_not_there_does_nothing(bench: Bench) -> None:
    write = merge("insert-only", primary_key=["id"], hard_delete="gone")
    load(bench, 0, write, id=[1, 2], gone=[True, False])
    assert stored(bench, "id") == [2]

    load(bench, 1, write, id=[1, 3], gone=[False, True])

    assert stored(bench, "id") == [1, 2]


@pytest.mark.slow
def test_a_marked_row_deletes_by_either_key_and_needs_no_other_value(bench: Bench) -> None:
    write = merge(primary_key=["id"], merge_key=["day"], hard_delete="gone")
    bench.make(id=[1, 2, 3], day=["mon", "tue", "wed"], text=["a", "b", "c"], gone=[False] * 3)
    load(bench, 1, write, id=[1], day=["tue"], text=pa.array([None], pa.string()), gone=[True])

    assert stored(bench, "id") == [3]


def test_the_order_picks_the_row_before_its_mark_is_looked_at(bench: Bench) -> None:
    write = merge("upsert", primary_key=["id"], dedup_sort=["at", "desc"], hard_delete="gone")
    bench.make(id=[1, 2], at=[1, 1], gone=[False, False])
    load(bench, 1, write, id=[1, 1, 2, 2], at=[2, 3, 2, 3], gone=[False, True, True, False])

    assert stored(bench, "id", "at") == [(2, 3)]


def test_a_group_is_replaced_by_fewer_rows_of_which_duplicates_stay_and_marked_ones_go(bench: Bench) -> None:
    write = merge(merge_key=["day"], hard_delete="gone")
    days, texts = ["mon"] * 3 + ["tue"] + ["wed"] * 2, ["a", "b", "c", "d", "e", "f"]
    bench.make(day=days, text=texts, gone=[False] * 6)
    marks = [False, False, False, True]
    load(bench, 1, write, day=["mon", "mon", "wed", "wed"], text=["x", "x", "new", "f"], gone=marks)

    assert stored(bench, "day", "text") == [("mon", "x"), ("mon", "x"), ("tue", "d"), ("wed", "new")]


def test_duplicates_of_which_none_counts_are_refused(bench: Bench) -> None:
    error = refused(bench, 0, merge("upsert", primary_key=["id"]), id=[5, 5, 6], text=["a", "b", "c"])

    assert isinstance(error, MergeKeyError)
    assert "have the same primary key: id '5'." in str(error)
    assert "dedup_sort=" in str(error)
    assert not bench.table.exists()


def test_a_refresh_replaces_the_table_and_later_batches_merge(bench: Bench) -> None:
    write = merge(primary_key=["id"], hard_delete="gone")
    bench.make(id=[1, 2], text=["a", "b"], gone=[False, False])
    anew = bench.parquet("1.parquet", id=[2, 3, 3], text=["x", "y", "y"], gone=[True, False, False])
    bench.run(bench.batch(1, anew, mode="overwrite", refresh_start=1, overwrite_start=1), write=write)
    assert stored(bench, "id", "text") == [(3, "y")]

    more = bench.parquet("2.parquet", id=[3], text=["z"], gone=[False])
    bench.run(bench.batch(2, more, refresh_start=1, overwrite_start=1), write=write)

    assert stored(bench, "id", "text") == [(3, "z")]
