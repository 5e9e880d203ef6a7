"""What Scd2 keeps, ends and begins; read back by delta-rs.

The tables of docs/writes.md are run by tests/docs/test_writes_page.py; here is what they do not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import InputError, MergeKeyError

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark


def scd2(day: int, **more: Any) -> dict[str, Any]:
    return {"kind": "scd2", "boundary_timestamp": f"2026-01-{day:02}T00:00:00+00:00", **more}


def load(bench: Bench, day: int, write: dict[str, Any] | None = None, **columns: Any) -> None:
    """Load an extract of a day of January; the first one makes the table."""
    seq = 0 if not bench.table.exists() else bench.version() + 1
    bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), write=scd2(day, **(write or {})))


def refused(bench: Bench, write: dict[str, Any], **columns: Any) -> Exception:
    seq = 0 if not bench.table.exists() else bench.version() + 1
    return bench.failure(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), write=write)


def windows(bench: Bench, *names: str, validity: tuple[str, str] = ("_valid_from", "_valid_to")) -> list[Any]:
    """Return each version: its values, the day of its beginning, and the one of its end or None."""
    rows = DeltaTable(str(bench.table)).to_pyarrow_table().to_pylist()
    days = [[row[name] and row[name].day for name in validity] for row in rows]
    return sorted(
        ((*(row[name] for name in names), *day) for row, day in zip(rows, days, strict=True)), key=repr
    )


@pytest.mark.slow
def test_an_empty_extract_is_ignored_unless_it_is_to_retire(bench: Bench) -> None:
    nothing = pa.array([], pa.int64())
    load(bench, 1, id=[1, 2])
    load(bench, 2, id=nothing)
    assert windows(bench, "id") == [(1, 1, None), (2, 1, None)]

    load(bench, 3, {"on_empty_extract": "retire"}, id=nothing)

    assert windows(bench, "id") == [(1, 1, 3), (2, 1, 3)]


@pytest.mark.slow
def test_the_hash_sees_values_and_not_how_they_are_written_or_ordered(bench: Bench) -> None:
    """Equal rows are one version, and one that comes back is a new one, which ends alone."""
    lists = pa.list_(pa.int64())
    whole = pa.array([3, 2, 1], pa.int32())
    items = pa.array([[1], [1], [1], []], lists)
    load(bench, 1, id=[1, 1, 2, 3], n=[1.0, 1.0, 2.0, 3.0], text=["a", "a", "b", None], items=items)
    items = pa.array([[], [1], [1]], lists)
    load(bench, 2, items=items, text=[None, "b ", "a"], n=whole, id=[3, 2, 1])
    items = pa.array([[], [1], [2]], lists)
    load(bench, 3, id=[3, 2, 1], n=whole, text=[None, "b", "a"], items=items)
    load(bench, 4, id=[3], n=whole[:1], text=pa.array([None], pa.string()), items=items[:1])

    assert windows(bench, "id", "text") == [
        (1, "a", 1, 3),
        (1, "a", 3, 4),
        (2, "b ", 2, 3),
        (2, "b", 1, 2),
        (2, "b", 3, 4),
        (3, None, 1, None),
    ]


def test_a_key_among_those_of_the_extract_that_it_does_not_have_stays_as_it_is(bench: Bench) -> None:
    key = {"merge_key": ["id"]}
    load(bench, 1, key, id=[1, 2, 3], text=["a", "b", "c"])
    load(bench, 2, key, id=[1, 3], text=["x", "c"])

    expected = [(1, "a", 1, 2), (1, "x", 2, None), (2, "b", 1, None), (3, "c", 1, None)]
    assert windows(bench, "id", "text") == expected


def test_a_column_that_is_missing_is_the_same_as_null(bench: Bench) -> None:
    load(bench, 1, id=[1, 2], text=pa.array([None, "b"], pa.string()))
    file = bench.parquet("1.parquet", id=[1, 2])
    bench.run(bench.batch(1, file), write=scd2(2), schema_evolution="add")

    assert windows(bench, "id", "text") == [(1, None, 1, None), (2, "b", 1, 2), (2, None, 2, None)]


def test_names_and_the_end_of_active_versions_may_be_others_but_stay_so(bench: Bench) -> None:
    names = ("Since", "Until")
    write = {
        "validity_column_names": names,
        "active_record_timestamp": "2222-02-05T00:00:00+00:00",
        "row_version_column_name": "digest",
    }
    load(bench, 1, write, id=[1, 2])
    load(bench, 2, write, id=[2])
    assert windows(bench, "id", validity=names) == [(1, 1, 2), (2, 1, 5)]
    assert {len(row["digest"]) for row in bench.rows()} == {32}

    error = refused(bench, scd2(3, **{**write, "active_record_timestamp": None}), id=[2])

    assert isinstance(error, InputError)
    assert "versions that are active with another active_record_timestamp than that of the task, " in str(
        error
    )
    assert windows(bench, "id", validity=names) == [(1, 1, 2), (2, 1, 5)]


@pytest.mark.slow
def test_a_row_version_may_be_a_number_and_stands_for_equal_rows_alone(bench: Bench) -> None:
    write = {"row_version_column_name": "version"}
    load(bench, 1, write, version=[1, 2, 2], text=["a", "b", "b"])
    load(bench, 2, write, version=[1, 3], text=["other", "c"])
    assert windows(bench, "version", "text") == [(1, "a", 1, None), (2, "b", 1, 2), (3, "c", 2, None)]

    error = refused(bench, scd2(3, **write), version=[4, None], text=["a", "b"])
    assert isinstance(error, MergeKeyError)
    assert "have no version, which is a row_version_column_name: " in str(error)
    error = refused(bench, scd2(3, **write), version=[4, 4], text=["a", "b"])

    assert isinstance(error, MergeKeyError)
    assert "have the same version, '4', and differ" in str(error)


def test_a_refresh_begins_the_history_anew_with_windows(bench: Bench) -> None:
    load(bench, 1, id=[1, 2])
    anew = bench.parquet("1.parquet", id=[2, 3])
    entry = bench.batch(1, anew, mode="overwrite", refresh_start=1, overwrite_start=1)
    bench.run(entry, write=scd2(2))
    assert windows(bench, "id") == [(2, 2, None), (3, 2, None)]

    more = bench.parquet("2.parquet", id=[3])
    bench.run(bench.batch(2, more, refresh_start=1, overwrite_start=1), write=scd2(3))

    assert windows(bench, "id") == [(2, 2, 3), (3, 2, None)]


@pytest.mark.slow
def test_a_boundary_is_used_as_it_is_given_and_what_does_not_fit_the_versions_is_refused(
    bench: Bench,
) -> None:
    load(bench, 9, id=[1])
    load(bench, 4, id=[2])

    beside = refused(bench, scd2(5, active_record_timestamp="9999-12-31T00:00:00+00:00"), id=[2])
    entry = bench.batch(2, bench.parquet("2.parquet", id=[3]))
    plain = bench.failure(entry, write={}, schema_evolution="widen")

    assert isinstance(beside, InputError)
    assert "versions that are active with another active_record_timestamp than that of the task, " in str(
        beside
    )
    assert isinstance(plain, InputError)
    assert "versions of rows, but the rows to write have no _valid_from, _valid_to, _row_hash." in str(plain)
    assert windows(bench, "id") == [(1, 9, 4), (2, 4, None)]


@pytest.mark.slow
def test_a_table_without_rows_may_be_made_before_its_first_version(bench: Bench) -> None:
    bench.spark.sql(
        f"CREATE TABLE delta.`{bench.table}` (id BIGINT, p STRING) USING delta PARTITIONED BY (p)"
    )

    for day, values in ((1, ["a", "b"]), (2, ["a", "c"])):
        entry = bench.batch(day - 1, bench.parquet(f"{day}.parquet", id=[1, 2], p=values))
        bench.run(entry, write=scd2(day, merge_key=["id"]), schema_evolution="add")

    assert windows(bench, "id", "p") == [(1, "a", 1, None), (2, "b", 1, 2), (2, "c", 2, None)]
    assert DeltaTable(str(bench.table)).metadata().partition_columns == ["p"]


def test_rows_without_versions_are_not_left_beside_versions(bench: Bench) -> None:
    bench.run(bench.batch(0, bench.parquet("0.parquet", id=[1], text=["a"])))
    entry = bench.batch(1, bench.parquet("1.parquet", id=[1], text=["b"]))

    error = bench.failure(entry, write=scd2(1, merge_key=["id"]), schema_evolution="add")

    assert isinstance(error, InputError)
    assert "rows, but lacks the columns for their versions: _valid_from, _valid_to, _row_hash." in str(error)
    assert bench.version() == 0


def test_a_struct_of_nulls_is_another_value_than_none(bench: Bench) -> None:
    place = pa.struct([("city", pa.string())])
    load(bench, 1, id=[1], place=pa.array([None], place))
    load(bench, 2, id=[1], place=pa.array([{"city": None}], place))

    assert windows(bench, "place") == [(None, 1, 2), ({"city": None}, 2, None)]
