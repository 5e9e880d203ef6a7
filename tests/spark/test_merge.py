"""Row-level writing by keys, on real Delta tables; read back by delta-rs."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.spark.held import hold

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark


def merging(strategy: str = "delete-insert", key: Any = ("id",), **more: Any) -> dict[str, Any]:
    return {"write": {"kind": "merge", "strategy": strategy, "primary_key": key, **more}}


def load(bench: Bench, seq: int, how: dict[str, Any], **columns: Any) -> int | None:
    return bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), **how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["upsert", pytest.param("scd2", marks=pytest.mark.loads)])
def test_wide_decimals_are_found_whatever_the_statistics_say(bench: Bench, how: str) -> None:
    """delta-rs writes them as floats: by these, none of its files has any of the keys."""
    rule = merging(how) if how != "scd2" else {"write": {"kind": "scd2", "merge_key": ("id",)}}
    first = [Decimal(f"{10**19 + 20}.000000000000000001"), Decimal(f"-{'9' * 20}.{'9' * 18}")]
    kind = pa.decimal128(38, 18)
    load(bench, 0, rule, id=pa.array(first, kind), text=["a", "b"])
    stored = DeltaTable(str(bench.table)).to_pyarrow_table()
    for number in range(len(stored)):
        write_deltalake(bench.table, stored.slice(number, 1), mode="append" if number else "overwrite")

    for number, key in enumerate(first):
        load(bench, number + 1, rule, id=pa.array([key], kind), text=["new"])

    rows = bench.rows()
    if how == "scd2":
        rows = [row for row in rows if row["_valid_to"] is None]
    assert sorted((row["id"], row["text"]) for row in rows) == sorted((key, "new") for key in first)


def test_old_days_of_a_table_that_delta_rs_wrote_stay_as_they_are(bench: Bench) -> None:
    """Its files do not say which calendar they have: Spark would not read them."""
    options = {"options": {"datetimeRebaseMode": "CORRECTED"}}
    days = [date(1500, 1, 1), date(1582, 10, 4)]
    bench.make(id=[1, 2], day=days)

    load(bench, 1, {**merging("upsert"), **options}, id=[2], day=[date(1001, 2, 3)])

    assert bench.rows() == [{"id": 1, "day": days[0]}, {"id": 2, "day": date(1001, 2, 3)}]


def versions(**more: Any) -> dict[str, Any]:
    return {"write": {"kind": "scd2", **more}}


def windows(bench: Bench) -> list[tuple[Any, ...]]:
    """Return each version: its values, the load that began it, and the one that ended it."""
    rows = DeltaTable(str(bench.table)).to_pyarrow_table().to_pylist()
    starts = sorted({row["_valid_from"] for row in rows} | {row["_valid_to"] for row in rows} - {None})
    place = {None: None, **{instant: number for number, instant in enumerate(starts)}}
    return sorted(
        (row["id"], row["text"], place[row["_valid_from"]], place[row["_valid_to"]]) for row in rows
    )


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert", "insert-only"])
def test_a_merge_brings_new_columns_and_fields_and_its_rows_have_none_that_it_lacks(
    bench: Bench, strategy: str
) -> None:
    """Delta adds a column in a MERGE only if the source has one of its name; ``user`` is also a function."""
    how = {**merging(strategy), "schema_evolution": "add"}
    bench.make(id=[1, 2], c1=["a", "b"], old=[{"x": 1}, None])
    load(
        bench,
        1,
        how,
        id=[2, 3],
        old=[{"x": 2, "y": 5}, {"x": 3, "y": 4}],
        k_c0=["new"] * 2,
        user=["U"] * 2,
        current_date=["D"] * 2,
    )

    none = {"k_c0": None, "user": None, "current_date": None}
    new = {"k_c0": "new", "user": "U", "current_date": "D"}
    second = {"id": 2, "c1": None, "old": {"x": 2, "y": 5}, **new}
    assert bench.rows() == [
        {"id": 1, "c1": "a", "old": {"x": 1, "y": None}, **none},
        {"id": 2, "c1": "b", "old": None, **none} if strategy == "insert-only" else second,
        {"id": 3, "c1": None, "old": {"x": 3, "y": 4}, **new},
    ]
    assert bench.version() == 1


def test_rows_are_held_without_what_is_known_of_them(spark: Any) -> None:
    """Spark would look for it first: of a hundred columns that are made of one, until the heap is full."""
    rows = spark.range(3).selectExpr("id AS a", "id AS b").where("a > 0")
    with ExitStack() as block:
        held = hold(block, rows)

        assert held._jdf.queryExecution().analyzed().constraints().isEmpty()
        assert sorted(held.collect()) == [(1, 1), (2, 2)]
    assert spark.conf.get("spark.sql.constraintPropagation.enabled") == "true"


@pytest.mark.slow
def test_versions_bring_new_columns(bench: Bench) -> None:
    how = {**versions(), "schema_evolution": "add"}
    load(bench, 0, how, id=[1, 2], text=["a", "b"])
    load(bench, 1, how, id=[1, 2], text=["a", "b"], user=[None, 7])

    assert windows(bench) == [(1, "a", 0, None), (2, "b", 0, 1), (2, "b", 1, None)]
    assert bench.version() == 1


def test_a_partition_column_may_have_a_dot_in_its_name(bench: Bench) -> None:
    """Delta takes it for a field when it brings the rows of a partition together."""
    how = {**merging(), "partition_by": ("a.b",)}
    bench.make(["a.b"], **{"id": [1, 2], "a.b": ["x", "y"]})
    load(bench, 1, how, **{"id": [2], "a.b": ["x"]})

    assert bench.rows() == [{"id": 1, "a.b": "x"}, {"id": 2, "a.b": "x"}]


@pytest.mark.slow
def test_a_key_may_be_a_partition_column(bench: Bench) -> None:
    """Once it was ambiguous in the condition that names the partitions: the table's, or the batch's."""
    how = {**versions(merge_key=["day", "id"]), "partition_by": ("day",)}
    load(bench, 0, how, day=["mon", "mon", "tue"], id=[1, 2, 1], text=["a", "b", "c"])
    load(bench, 1, how, day=["mon", "wed"], id=[2, 2], text=["new", "d"])

    found = [(row["day"], row["id"], row["text"]) for row in bench.rows() if not row.get("_valid_to")]
    assert sorted(found) == [("mon", 1, "a"), ("mon", 2, "new"), ("tue", 1, "c"), ("wed", 2, "d")]


def test_other_readers_find_the_far_end_of_an_active_version(bench: Bench) -> None:
    """A time of Spark's default form, INT96, was in the year 1816 for them."""
    far = datetime(9999, 12, 31, tzinfo=UTC)
    load(bench, 0, versions(active_record_timestamp=far.isoformat()), id=[1], text=["a"])

    assert [row["_valid_to"] for row in bench.rows()] == [far]


def test_whole_partitions_are_replaced_without_a_look_at_their_rows(bench: Bench) -> None:
    how = merging(key=(), merge_key=["day", "Place"], hard_delete="gone") | {"partition_by": ("day", "place")}
    bench.make(["day", "place"], day=[1, 1, 2], place=["a", "it's", "a"], n=[1, 2, 3], gone=[False] * 3)
    load(
        bench,
        1,
        how,
        day=[1, 1, 1, 3],
        place=["it's"] * 3 + ["b"],
        n=[5, 5, 6, 7],
        gone=[None, None, True, None],
    )

    found = sorted((row["day"], row["place"], row["n"]) for row in bench.rows())
    assert found == [(1, "a", 1), (1, "it's", 5), (1, "it's", 5), (2, "a", 3), (3, "b", 7)]
    newest = DeltaTable(str(bench.table)).history(1)[0]
    assert newest["operation"] == "WRITE"
    assert json.loads(newest["userMetadata"])["changes"] == {"deduplicated": 0, "hard_deleted": 1}
    assert DeltaTable(str(bench.table)).transaction_version(bench.plan.pipeline) == 1


def test_rows_that_were_held_are_let_go_of(bench: Bench) -> None:
    def held() -> int:
        return int(bench.spark.sparkContext._jsc.getPersistentRDDs().size())

    before = held()
    for seq in range(2):
        load(bench, seq, merging(), id=[1, 2])

    assert held() == before
