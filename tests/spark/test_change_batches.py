"""Changes that a program of the caller's own reads, and says when it is done with them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.exceptions import ChangeFeedError, InputError
from airflow_provider_scope.spark import consume, read_changes
from airflow_provider_scope.specs import CdfSource
from tests.spark.test_changes import FEED, Source

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_changes_are_given_again_until_they_are_consumed_by_who_read_them_last(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path)
    path = str(source.path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    first = read_changes(spark, path)
    source.do("DELETE FROM @s")
    again = read_changes(spark, path)

    assert [(batch.start, batch.end) for batch in (first, again)] == [(0, 1), (0, 1)]
    assert [tuple(row) for row in again.dataframe.select("id", "_change_type").collect()] == [(1, "insert")]
    with pytest.raises(ChangeFeedError, match="given to another reader"):
        consume(first)
    consume(again)
    with pytest.raises(ChangeFeedError, match="have already been consumed"):
        consume(again)

    second = read_changes(spark, path)
    assert (second.start, second.end) == (2, 2)
    assert [row["_change_type"] for row in second.dataframe.collect()] == ["delete"]
    consume(second)
    nothing = read_changes(spark, path)
    assert (nothing.dataframe, nothing.start, nothing.end) == (None, None, None)
    consume(nothing)
    other = read_changes(spark, path, "other")
    assert (other.start, other.end) == (0, 2)
    spark.sql(f"VACUUM delta.`{path}`")
    assert read_changes(spark, path).start == 3  # VACUUM makes versions, too
    with pytest.raises(InputError, match="identifier="):
        read_changes(spark, path, "../x")


def test_a_table_has_its_name_in_the_catalog_of_the_session(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    spark.sql(f"CREATE TABLE default.fed USING delta LOCATION '{source.path}'")
    spark.sql(f"CREATE TABLE default.not_delta (id INT) USING parquet LOCATION '{tmp_path}/parquet'")
    try:
        batch = read_changes(spark, "default.fed")
        assert [tuple(row) for row in batch.dataframe.select("id", "_change_type").collect()] == [
            (1, "insert")
        ]
        consume(batch)
        assert read_changes(spark, str(source.path)).dataframe is None  # it is the same table

        for name in ("default.not_delta", "default.nowhere", "no name"):
            with pytest.raises(InputError, match="neither a folder nor a Delta table"):
                read_changes(spark, name)
    finally:
        for name in ("fed", "not_delta"):
            spark.sql(f"DROP TABLE default.{name}")


def test_changes_of_a_table_that_was_made_anew_are_not_consumed(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    batch = read_changes(spark, str(source.path))
    shutil.rmtree(source.path / "_delta_log")
    write_deltalake(str(source.path), pa.table({"id": [2]}), configuration=FEED)

    for way in (lambda: consume(batch), lambda: read_changes(spark, str(source.path))):
        with pytest.raises(ChangeFeedError, match="not the one that was read before") as caught:
            way()
        assert "under another identifier, with CdfSource(full_load=True)" in str(caught.value)


def test_rows_from_before_the_feed_are_a_warning(spark: Any, tmp_path: Path) -> None:
    path, rows = tmp_path / "source", pa.table({"id": [1]})
    write_deltalake(path, rows)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    write_deltalake(path, rows, mode="append")

    with pytest.warns(match="had rows before version 1.* under another identifier, with CdfSource") as told:
        batch = read_changes(spark, str(path))
    assert (batch.start, batch.end, told[0].filename) == (1, 2, __file__)
    assert read_changes(spark, CdfSource(table=str(path), full_load=True), "all").dataframe.count() == 2


@pytest.mark.parametrize("name", [5, "", "n" * 101, ".hidden", "a/b"])
def test_what_is_no_name_of_a_reader_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="at most 100 letters"):
        read_changes(None, "/data/orders", name)  # type: ignore[arg-type] # it is not asked yet
