"""What the source of a feed may have become between two loads."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import ChangeFeedError, SqlError
from tests.spark.feed_table import Source
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


def _whole(source: Source) -> list[Any]:
    return sorted(tuple(row) for row in source.spark.read.format("delta").load(str(source.path)).collect())


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], id="same version"),
        pytest.param(["INSERT INTO @s VALUES (4, 'd')"], id="later version", marks=pytest.mark.loads),
    ],
)
def test_a_copy_that_was_put_back_and_changed_since_is_refused(
    spark: Any, tmp_path: Path, more: list[str]
) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b')")
    shutil.copytree(source.path, tmp_path / "copy")
    pipe = source.pipe()
    source.do("INSERT INTO @s VALUES (3, 'lost')")
    pipe.run()
    shutil.rmtree(source.path)
    shutil.copytree(tmp_path / "copy", source.path)
    source.do("DELETE FROM @s WHERE id = 1", *more)

    with pytest.raises(ChangeFeedError, match="the source was set back to an earlier version, and changed"):
        pipe.run()
    assert pipe.rows("id", "v") == [(1, "a"), (2, "b"), (3, "lost")]
    source.pipe(full_load=True).run(full_refresh=True)
    assert pipe.rows("id", "v") == _whole(source) == [(2, "b"), (4, "d")][: 1 + len(more)]
    source.do("INSERT INTO @s VALUES (5, 'e')")
    pipe.run()
    assert pipe.rows("id", "v") == _whole(source)


@pytest.mark.slow
def test_rows_from_before_the_feed_are_told_and_never_replaced_by_what_came_after(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path)
    off, on = (
        f"ALTER TABLE @s SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{value}')"
        for value in ("false", "true")
    )
    source.do("INSERT INTO @s VALUES (1, 'a')")
    pipe = source.pipe()
    pipe.run()
    for words, statements in {
        "has no change data feed": (off, "INSERT INTO @s VALUES (2, 'b')"),
        "was off from version 2 on": (on, "INSERT INTO @s VALUES (3, 'c')"),
    }.items():
        source.do(*statements)
        with pytest.raises(ChangeFeedError, match=words) as caught:
            pipe.run()
        assert "full_load=True" in caught.value.do

    with pytest.raises(ChangeFeedError, match=r"had rows before version 4, .* would replace the table"):
        pipe.run(full_refresh=True)
    assert pipe.rows("id", "v") == [(1, "a")]
    late = source.pipe()
    late.table = tmp_path / "late"
    first = late.run()
    assert "had rows before version 4" in first.warnings["earlier rows"]
    assert late.rows("id", "v") == [(3, "c")]
    chosen = source.pipe(start_version=4)
    chosen.table = late.table
    assert not chosen.run(full_refresh=True).warnings
    assert late.rows("id", "v") == [(3, "c")]
    source.pipe(full_load=True).run(full_refresh=True)
    assert pipe.rows("id", "v") == _whole(source)


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [False, pytest.param(True, marks=pytest.mark.loads)])
def test_versions_are_not_read_across_other_partitions(spark: Any, tmp_path: Path, *, mapped: bool) -> None:
    source = Source(spark, tmp_path, **(MAPPED if mapped else {}))
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b'), (4, 'd')")
    key = {"kind": "merge", "primary_key": ["v", "id"]}
    pipe = source.pipe(key)
    pipe.run()
    source.do("DELETE FROM @s WHERE id = 1")
    rows = spark.read.format("delta").load(str(source.path)).where("id <> 4").localCheckpoint()
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy("v").save(str(source.path))

    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 3)
    deleted = feed.load(str(source.path)).where("_change_type = 'delete'").collect()
    assert {row.v for row in deleted} == {None}  # if Delta knows them some day, nothing need be refused
    with pytest.raises(ChangeFeedError, match=r"3 of .* changes the partitioning from \[\] to \['v'\]"):
        pipe.run()
    assert pipe.rows("id", "v") == [(1, "a"), (2, "b"), (4, "d")]
    source.pipe(key, full_load=True).run(full_refresh=True)
    source.do("INSERT INTO @s VALUES (3, 'c')")
    pipe.run()
    assert pipe.rows("id", "v") == _whole(source)


def test_a_feed_that_was_enabled_on_an_empty_table_has_all_rows(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.path = tmp_path / "other"
    source.name = f"delta.`{source.path}`"
    source.do("CREATE TABLE @s (id INT, v STRING) USING delta", "INSERT INTO @s VALUES (1, 'a')")
    source.do("DELETE FROM @s", "ALTER TABLE @s SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    source.do("INSERT INTO @s VALUES (2, 'b')")
    pipe = source.pipe()

    assert not pipe.run().warnings
    assert not pipe.run(full_refresh=True).warnings
    assert pipe.rows("id", "v") == _whole(source)


@pytest.mark.slow
def test_a_select_meets_the_names_of_the_versions_that_a_batch_reads(spark: Any, tmp_path: Path) -> None:
    """With columns that are mapped, the versions before a rename are a batch of their own."""
    source = Source(spark, tmp_path, "id INT, v STRING", **MAPPED)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    old, new = (source.pipe(sql=f"SELECT id, {name} AS v FROM @data") for name in ("v", "w"))
    old.run()
    source.do("INSERT INTO @s VALUES (2, 'b')", "ALTER TABLE @s RENAME COLUMN v TO w")
    source.do("INSERT INTO @s VALUES (3, 'c')")

    with pytest.raises(SqlError, match="with its old name until this batch is committed") as caught:
        new.run()
    assert "columns that the source had at version 2" in caught.value.do
    with pytest.raises(SqlError, match="columns that the source had at version 4") as caught:
        old.run()
    assert old.rows("id", "v") == [(1, "a"), (2, "b")]
    new.run()
    assert new.rows("id", "v") == [(1, "a"), (2, "b"), (3, "c")]
