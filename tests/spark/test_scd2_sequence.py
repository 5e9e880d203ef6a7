"""Scd2 by the time of the source: from feeds, and what is refused; read back by delta-rs.

Histories of many keys are compared with a model in test_sequence_model.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import InputError, MergeKeyError
from tests.spark.feed_table import FEED, Source
from tests.spark.merge_loads import load, refused, stored
from tests.support import warm
from tests.support.sequence_model import BEGIN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark

WRITE = {"kind": "scd2", "merge_key": ["id"], "sequence_by": "at"}
WINDOW = ("_valid_from", "_valid_to")


@pytest.mark.slow
def test_null_ties_and_types_are_refused(bench: Bench) -> None:
    error = refused(bench, 0, WRITE, id=[1, 2], at=[1, None])
    assert isinstance(error, MergeKeyError)
    assert "have no at, which is a sequence_by" in str(error)
    error = refused(bench, 0, WRITE, id=[1], at=["1"])
    assert isinstance(error, InputError)
    assert "cannot be ordered by it" in str(error)
    error = refused(bench, 0, {**WRITE, "track_history_columns": ["no"]}, id=[1], at=[1])
    assert isinstance(error, InputError)
    assert "track_history_columns names 'no'" in str(error)
    error = refused(bench, 0, WRITE, id=[1, 1, 1], at=[1, 1, 2], text=["a", "b", "c"])
    assert isinstance(error, MergeKeyError)
    assert "and differ: id '1', at '1'." in str(error)
    assert not bench.table.exists()

    load(bench, 0, WRITE, id=[1, 1, 1], at=[1, 1, 2], text=["a", "a", "c"])
    error = refused(bench, 1, WRITE, id=[1], at=[1], text=["b"])
    assert isinstance(error, MergeKeyError)
    assert '{"id":1,"at":1}, of which the table has one' in str(error)
    assert stored(bench, "text", *WINDOW) == [("a", 1, 2), ("c", 2, None)]


def test_versions_by_the_time_of_the_load_are_not_mixed_with_those_of_the_source(bench: Bench) -> None:
    times = {"id": [1], "at": [0]}
    load(bench, 0, {"kind": "scd2", "merge_key": ["id"]}, **times)
    error = refused(bench, 1, WRITE, **times)

    assert isinstance(error, InputError)
    assert bench.version() == 0


def test_a_late_row_writes_the_windows_of_its_neighbours_alone(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 1, 1, 2], at=[1, 5, 9, 1], text=["a", "b", "c", "x"])
    load(bench, 1, WRITE, id=[1], at=[7], text=["late"])

    assert stored(bench, "id", "text", *WINDOW) == [
        (1, "a", 1, 5),
        (1, "b", 5, 7),
        (1, "c", 9, None),
        (1, "late", 7, 9),
        (2, "x", 1, None),
    ]
    metrics = DeltaTable(str(bench.table)).history(1)[0]["operationMetrics"]
    assert [int(metrics[f"numTargetRows{kind}"]) for kind in ("Inserted", "Updated", "Deleted")] == [1, 1, 0]


@pytest.mark.slow
def test_after_a_purge_newer_rows_are_exact_and_older_ones_are_placed_among_what_is_left(
    bench: Bench,
) -> None:
    write = {**WRITE, "hard_delete": "gone"}
    load(bench, 0, write, id=[1] * 4, at=[1, 5, 9, 9], text=["a", "a", "b", "b"], gone=[False] * 4)
    load(bench, 1, write, id=[2, 2], at=[1, 3], text=["x", "x"], gone=[False, True])
    bench.spark.sql(f"DELETE FROM delta.`{bench.table}` WHERE _valid_from = _valid_to")
    load(bench, 2, write, id=[1, 2], at=[7, 6], text=["c", "y"], gone=[False, False])
    assert stored(bench, "id", "text", *WINDOW) == [
        (1, "a", 1, 7),
        (1, "b", 9, None),
        (1, "c", 7, 9),
        (2, "x", 1, 3),
        (2, "y", 6, None),
    ]

    load(bench, 3, write, id=[1], at=[3], text=["late"], gone=[False])

    assert stored(bench, "id", "text", *WINDOW)[:4] == [
        (1, "a", 5, 7),
        (1, "b", 9, None),
        (1, "c", 7, 9),
        (1, "late", 3, 5),
    ]


@pytest.mark.slow
def test_a_column_that_comes_later_makes_a_version_and_leaves_old_ones(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 1], at=[1, 5], text=["a", "b"])
    for seq, columns in enumerate(({"at": [3], "user": ["x"]}, {"at": [4], "text": ["a"]}), start=1):
        file = bench.parquet(f"{seq}.parquet", id=[1], **columns)
        bench.run(bench.batch(seq, file), write=WRITE, schema_evolution="add")

    rows = [tuple(row[name] for name in ("at", "text", "user", *WINDOW)) for row in bench.rows()]
    assert sorted(rows) == [
        (1, "a", None, 1, 3),
        (3, None, "x", 3, 4),
        (4, "a", None, 4, 5),
        (5, "b", None, 5, None),
    ]


def test_of_two_rows_that_nothing_orders_the_same_one_counts_whichever_is_loaded_first(bench: Bench) -> None:
    write = {**WRITE, "dedup_sort": ["n", "desc"]}
    row = {"id": [1], "at": [1], "n": [7]}
    load(bench, 0, write, **row, text=["a"])
    load(bench, 1, write, **row, text=["b"])
    first_way = stored(bench, "text", *WINDOW)
    refresh = {"refresh_start": 2, "overwrite_start": 2}
    anew = bench.parquet("2.parquet", **row, text=["b"])
    bench.run(bench.batch(2, anew, mode="overwrite", **refresh), write=write)
    more = bench.parquet("3.parquet", **row, text=["a"])
    bench.run(bench.batch(3, more, **refresh), write=write)

    assert stored(bench, "text", *WINDOW) == first_way


@pytest.mark.slow
def test_a_refresh_starts_the_history_over(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 1], at=[1, 5], text=["a", "b"])
    anew = bench.parquet("1.parquet", id=[1], at=[3], text=["c"])
    bench.run(
        bench.batch(1, anew, mode="overwrite", refresh_start=1, overwrite_start=1),
        write=WRITE,
    )

    assert stored(bench, "text", *WINDOW) == [("c", 3, None)]


@pytest.mark.slow
@pytest.mark.parametrize("commits", [None, pytest.param(1, marks=pytest.mark.loads)])
def test_a_feed_gives_a_version_for_each_commit(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int | None
) -> None:
    warm.use(monkeypatch, spark)
    source = Source(spark, tmp_path)
    pipe = source.pipe(
        {"kind": "scd2", "merge_key": ["id"], "sequence_by": "commit"},
        max_commits_per_batch=commits,
        table={"properties": FEED},
    )
    source.do(
        "INSERT INTO @s VALUES (1, 'a'), (2, 'x')",
        "UPDATE @s SET v = 'b' WHERE id = 1",
        "UPDATE @s SET v = 'c' WHERE id = 1",
    )
    pipe.run(max_batches_per_run=9)
    source.do(
        "DELETE FROM @s WHERE id = 1", "INSERT INTO @s VALUES (1, 'c')", "UPDATE @s SET id = 3 WHERE id = 2"
    )
    pipe.run(max_batches_per_run=9)

    rows = DeltaTable(str(pipe.table)).to_pyarrow_table().to_pylist()
    # The times of the commits are those of files, and each of the six made one.
    instants = sorted({row[name] for row in rows for name in WINDOW if row[name]})
    assert {row["_committed_at"] for row in rows} == {*instants}

    def number(value: Any) -> Any:
        return value and instants.index(value) + 1

    found = sorted(((row["id"], row["v"], *(number(row[n]) for n in WINDOW)) for row in rows), key=repr)
    assert found == sorted(
        [
            (1, "a", 1, 2),
            (1, "b", 2, 3),
            (1, "c", 3, 4),
            (1, None, 4, 4),
            (1, "c", 5, None),
            (2, "x", 1, 6),
            (2, None, 6, 6),
            (3, "x", 6, None),
        ],
        key=repr,
    )


@pytest.mark.slow
def test_of_two_commits_of_one_millisecond_the_later_one_counts(bench: Bench) -> None:
    """Times of commits are those of files: across batches nothing keeps them apart."""
    write = {"kind": "scd2", "merge_key": ["id"], "sequence_by": "commit"}
    for seq, text in enumerate(("a", "b", "b")):
        load(bench, seq, write, id=[1], _committed_at=[BEGIN], text=[text])

    assert stored(bench, "text", *WINDOW) == [("b", BEGIN, None)]


def test_a_feed_is_ordered_by_its_commits_alone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.use(monkeypatch, spark)
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    with pytest.raises(InputError, match="sequence_by='id' is not possible with a CdfSource"):
        source.pipe({"kind": "scd2", "merge_key": ["id"], "sequence_by": "id"}).run()
