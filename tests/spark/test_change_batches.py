"""Changes that a program of the caller's own reads, and says when it is done with them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.exceptions import (
    ChangeFeedError,
    CheckpointGapError,
    InputError,
    SourceNotFoundError,
)
from airflow_provider_scope.spark import consume, read_changes
from airflow_provider_scope.specs import CdfSource
from tests.spark.feed_table import FEED, ON, Source

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_changes_are_given_again_until_they_are_consumed_by_who_read_them_last(
    spark: Any, tmp_path: Path
) -> None:
    source, checkpoint = Source(spark, tmp_path), tmp_path / "nightly"
    source.do("INSERT INTO @s VALUES (1, 'a')")
    first = read_changes(spark, source.path, checkpoint)
    source.do("DELETE FROM @s")
    again = read_changes(spark, str(source.path), str(checkpoint))

    assert [(batch.start, batch.end) for batch in (first, again)] == [(0, 1), (0, 1)]
    assert [tuple(row) for row in again.dataframe.select("id", "_change_type").collect()] == [(1, "insert")]
    with pytest.raises(ChangeFeedError, match="given to another reader"):
        consume(first)
    consume(again)
    with pytest.raises(ChangeFeedError, match="have already been consumed"):
        consume(again)

    second = read_changes(spark, source.path, checkpoint)
    assert (second.start, second.end) == (2, 2)
    assert [row["_change_type"] for row in second.dataframe.collect()] == ["delete"]
    consume(second)
    nothing = read_changes(spark, source.path, checkpoint)
    assert (nothing.dataframe, nothing.start, nothing.end) == (None, None, None)
    consume(nothing)
    other = read_changes(spark, source.path, tmp_path / "other")
    assert (other.start, other.end) == (0, 2)
    assert {path.name for path in source.path.iterdir() if path.is_dir()} <= {"_delta_log", "_change_data"}


def test_a_table_has_its_name_in_the_catalog_of_the_session(spark: Any, tmp_path: Path) -> None:
    source, checkpoint = Source(spark, tmp_path), tmp_path / "checkpoint"
    source.do("INSERT INTO @s VALUES (1, 'a')")
    spark.sql(f"CREATE TABLE default.fed USING delta LOCATION '{source.path}'")
    spark.sql(f"CREATE TABLE default.not_delta (id INT) USING parquet LOCATION '{tmp_path}/parquet'")
    try:
        batch = read_changes(spark, "default.fed", checkpoint)
        assert [tuple(row) for row in batch.dataframe.select("id", "_change_type").collect()] == [
            (1, "insert")
        ]
        consume(batch)
        assert read_changes(spark, source.path, checkpoint).dataframe is None  # it is the same table

        for name in ("default.not_delta", "default.nowhere", "no name"):
            with pytest.raises(InputError, match="neither a folder nor a Delta table"):
                read_changes(spark, name, checkpoint)
    finally:
        for name in ("fed", "not_delta"):
            spark.sql(f"DROP TABLE default.{name}")


def _dropped_and_created(source: Source) -> None:
    shutil.rmtree(source.path)
    write_deltalake(str(source.path), pa.table({"id": [2], "v": ["b"]}), configuration=FEED)


def _replaced_by_statement(source: Source) -> None:
    source.do(f"CREATE OR REPLACE TABLE @s USING delta TBLPROPERTIES {ON} AS SELECT 2 AS id, 'b' AS v")


def _copy_put_back(source: Source) -> None:
    shutil.rmtree(source.path)
    shutil.copytree(source.folder / "copy", source.path)
    source.do(*["INSERT INTO @s VALUES (4, 'd')"] * 3)


def _copy_put_back_to_the_same_version(source: Source) -> None:
    shutil.rmtree(source.path)
    shutil.copytree(source.folder / "copy", source.path)
    source.do("INSERT INTO @s VALUES (4, 'd')")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_replaced_by_statement, "not the one that was read before"),
        (_copy_put_back, "was set back to an earlier version"),
        (_copy_put_back_to_the_same_version, "was set back to an earlier version"),
    ],
)
def test_a_source_that_is_another_one_now_is_refused(
    spark: Any, tmp_path: Path, change: Any, message: str
) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    shutil.copytree(source.path, tmp_path / "copy")
    source.do("INSERT INTO @s VALUES (3, 'c')")
    consume(read_changes(spark, source.path, tmp_path / "consumed"))
    read_changes(spark, source.path, tmp_path / "open")
    change(source)

    for reader in ("consumed", "open"):
        with pytest.raises(ChangeFeedError, match=message) as caught:
            read_changes(spark, source.path, tmp_path / reader)
        assert "with another checkpoint, and with CdfSource(full_load=True)" in str(caught.value)
    assert read_changes(spark, CdfSource(table=str(source.path), full_load=True), tmp_path / "new").dataframe


def test_changes_of_a_table_that_was_created_again_are_not_consumed(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    batch = read_changes(spark, source.path, tmp_path / "reader")
    _dropped_and_created(source)

    with pytest.raises(ChangeFeedError, match="not the one that was read before"):
        consume(batch)


@pytest.mark.slow
def test_a_restored_source_is_refused_and_a_renamed_one_is_read_on(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    consume(read_changes(spark, source.path, tmp_path / "reader"))
    renamed = source.path.rename(tmp_path / "renamed")
    spark.sql(f"INSERT INTO delta.`{renamed}` VALUES (2, 'b')")
    with pytest.raises(SourceNotFoundError):
        read_changes(spark, source.path, tmp_path / "reader")
    batch = read_changes(spark, renamed, tmp_path / "reader")
    assert (batch.start, batch.end) == (2, 2)
    consume(batch)
    spark.sql(f"RESTORE TABLE delta.`{renamed}` TO VERSION AS OF 1")

    with pytest.raises(ChangeFeedError, match="is a RESTORE"):
        read_changes(spark, renamed, tmp_path / "reader")


def test_a_checkpoint_says_what_was_consumed_or_is_refused(spark: Any, tmp_path: Path) -> None:
    source, checkpoint = Source(spark, tmp_path), tmp_path / "reader"
    for number in range(2):
        source.do(f"INSERT INTO @s VALUES ({number}, 'a')")
        consume(read_changes(spark, source.path, checkpoint))
    with pytest.raises(ChangeFeedError, match=r"belongs to the load 'default'.*'x'"):
        read_changes(spark, CdfSource(table=str(source.path), identifier="x"), checkpoint)
    for number in (0, 1):
        (checkpoint / f"{number:020}-consumed").unlink()

    with pytest.raises(CheckpointGapError, match="0-consumed is missing"):
        read_changes(spark, source.path, checkpoint)
    shutil.rmtree(checkpoint)
    assert read_changes(spark, source.path, checkpoint).start == 0


def test_rows_from_before_the_feed_are_a_warning(spark: Any, tmp_path: Path) -> None:
    path, rows = tmp_path / "source", pa.table({"id": [1]})
    write_deltalake(path, rows)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    write_deltalake(path, rows, mode="append")

    with pytest.warns(
        match="had rows before version 1.* with another checkpoint, and with CdfSource"
    ) as told:
        batch = read_changes(spark, path, tmp_path / "one")
    assert (batch.start, batch.end, told[0].filename) == (1, 2, __file__)
    assert (
        read_changes(spark, CdfSource(table=str(path), full_load=True), tmp_path / "all").dataframe.count()
        == 2
    )


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("nightly", "is relative"),
        ("/data/orders", "lies in the source"),
        ("/data/x/../orders/_readers/nightly", "lies in the source"),
        ("https://host/reader", "https"),
    ],
)
def test_a_place_that_would_not_outlive_the_source_is_refused(checkpoint: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_changes(None, "/data/orders", checkpoint)  # type: ignore[arg-type] # it is not asked yet
