"""How a feed is read, and when its changes have to be sorted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import MergeKeyError
from airflow_provider_scope.spark import feed
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.values import VersionSlice
from tests.spark.feed_table import Source
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

COLUMNS = """`a b` INT COMMENT 'of x', c CHAR(5), d DATE NOT NULL, p STRING,
g BIGINT GENERATED ALWAYS AS (CAST(`a b` AS BIGINT) * 2),
s STRUCT<`x.y`: DECIMAL(38, 18) NOT NULL, t: ARRAY<TIMESTAMP_NTZ>>, z MAP<STRING, FLOAT>"""


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


def _partitioned(spark: Any, path: str) -> None:
    table = f"delta.`{path}`"
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    spark.sql(
        f"CREATE TABLE {table} ({COLUMNS}) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', {properties})"
    )
    times = "array(TIMESTAMP_NTZ '0001-01-01 00:00:00.000001')"
    values = f"named_struct('x.y', 1.5BD / id, 't', {times}), map('k', 0.1F)"
    rows = f"id, 'ab', DATE '2026-01-05', nullif(id % 3, 0), {values}"
    into = f"INSERT INTO {table} (`a b`, c, d, p, s, z)"
    for statement in (
        f"{into} SELECT {rows} FROM range(1, 11)",
        f"{into} SELECT {rows} FROM range(11, 21)",
        f"UPDATE {table} SET c = 'new' WHERE `a b` % 3 = 0",
        f"DELETE FROM {table} WHERE `a b` = 7",
        f"DELETE FROM {table} WHERE p = '1'",
        f"UPDATE {table} SET p = 'moved' WHERE `a b` = 5",
    ):
        spark.sql(statement)


@pytest.mark.slow
def test_it_has_the_columns_and_the_values_that_delta_reads_itself(spark: Any, tmp_path: Path) -> None:
    path, newest = str(tmp_path / "source"), 6
    _partitioned(spark, path)
    found = VersionSlice(
        source=str(DeltaLog(spark, path).metadata()["id"]),  # type: ignore[index] # it is there
        identifier="default",
        location=path,
        first=2,
        last=newest,
        snapshot=False,
        before=None,
        changed_bytes=0,
    )
    plan: Any = SimpleNamespace(changes=SimpleNamespace(table=path, replaces=False))
    ours = feed.read(spark, plan, SimpleNamespace(slice=found))  # type: ignore[arg-type] # all it looks at
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    theirs = reader.option("endingVersion", newest).load(path)

    assert ours.schema.simpleString() == theirs.schema.simpleString()
    # Not the length of a char, not what column mapping and generated columns note.
    assert {field.name: field.metadata for field in ours.schema if field.metadata} == {
        "a b": {"comment": "of x"}
    }
    assert "columnMapping" not in ours.schema.json()
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
    assert {row[0] for row in ours.select("_change_type").distinct().collect()} == {
        "insert",
        "delete",
        "update_preimage",
        "update_postimage",
    }
    # Twice, and some of it: a DataFrame is read as often as somebody wants.
    some = F.col("_commit_version") > 4
    assert ours.where(some).count() == theirs.where(some).count() > 0


def test_changes_are_sorted_only_if_a_key_changed_more_than_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorts: list[int] = []
    by_order = feed.Net._by_order

    def noticed(of: feed.Net, *arguments: Any) -> Any:
        sorts.append(of.seq)
        return by_order(of, *arguments)

    monkeypatch.setattr(feed.Net, "_by_order", noticed)
    source = Source(spark, tmp_path)
    pipe = source.pipe()
    source.do("INSERT INTO @s SELECT id, 'a' FROM range(20)")
    pipe.run()
    # Each key once, in one version and over several; a key that changes deletes the row of the old one.
    source.do("UPDATE @s SET v = 'b' WHERE id BETWEEN 5 AND 8")
    source.do("DELETE FROM @s WHERE id = 1", "UPDATE @s SET id = 100 WHERE id = 2")
    source.do("UPDATE @s SET id = id + 1 WHERE id >= 17 AND id < 20", "INSERT INTO @s VALUES (50, 'n')")
    pipe.run()
    assert not sorts

    for numbers, changes in enumerate(
        [
            ["INSERT INTO @s VALUES (60, 'came')", "DELETE FROM @s WHERE id = 60"],
            ["UPDATE @s SET v = 'c' WHERE id = 5", "UPDATE @s SET v = 'd' WHERE id = 5"],
            [
                "DELETE FROM @s WHERE id = 6",
                "INSERT INTO @s VALUES (6, 'again')",
                "DELETE FROM @s WHERE id = 6",
            ],
        ],
        start=1,
    ):
        source.do(*changes)
        pipe.run()
        assert len(sorts) == numbers
    stored = spark.read.format("delta").load(str(source.path)).collect()
    assert pipe.rows("id", "v") == sorted((tuple(row) for row in stored), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["apply", pytest.param("soft", marks=pytest.mark.loads)])
def test_a_table_that_is_made_gets_no_defaults_and_no_lengths_of_the_source(
    spark: Any, tmp_path: Path, deletes: str
) -> None:
    source = Source(spark, tmp_path, "v VARCHAR(6), id INT COMMENT 'the key', d STRING")
    source.do(
        "ALTER TABLE @s SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE @s ALTER COLUMN d SET DEFAULT 'x'",
        "INSERT INTO @s VALUES ('abc', 1, NULL)",
    )
    merged, added = source.pipe(deletes=deletes), source.pipe("append")
    whole, by_cursor = source.pipe(deletes=deletes, full_load=True), source.pipe(cursor={"column": "id"})
    for name, pipe in {"added": added, "whole": whole, "by_cursor": by_cursor}.items():
        pipe.table = source.folder / name
    for pipe in (merged, added, whole, by_cursor):
        pipe.run()
        fields = spark.read.format("delta").load(str(pipe.table)).schema
        noted = {field.name: field.metadata for field in fields if field.metadata}
        assert noted == {"id": {"comment": "the key"}}
    source.do(
        "ALTER TABLE @s ALTER COLUMN v TYPE VARCHAR(20)", "INSERT INTO @s VALUES ('longer than 6', 2, 'y')"
    )
    merged.run()
    assert merged.rows("id", "v", "d") == [(1, "abc", None), (2, "longer than 6", "y")]


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["apply", pytest.param("soft", marks=pytest.mark.loads)])
def test_rows_without_a_key_are_told_from_each_other_by_their_values(
    spark: Any, tmp_path: Path, deletes: str
) -> None:
    source = Source(spark, tmp_path)
    sql = "SELECT * FROM @data WHERE id IS NOT NULL"
    source.do("INSERT INTO @s VALUES (1, 'a'), (NULL, 'b'), (NULL, 'c')")
    pipe, without = source.pipe(deletes=deletes), source.pipe(deletes=deletes, sql=sql)
    without.table = source.folder / "without"
    with pytest.raises(MergeKeyError, match=r"2 of 3 rows for .* have no id"):
        pipe.run()
    without.run()
    assert without.rows("id", "v") == [(1, "a")]
    # One gets a key and one goes: in a batch of all versions no row is left without a key.
    source.do("UPDATE @s SET id = 2 WHERE v = 'b'", "DELETE FROM @s WHERE v = 'c'")
    other = source.pipe(deletes=deletes)
    other.table = source.folder / "other"
    for one in (without, other):
        one.run()
        assert one.rows("id", "v") == [(1, "a"), (2, "b")]
    # The one that was deleted last is not the one that is left.
    source.do("INSERT INTO @s VALUES (NULL, 'd')", "INSERT INTO @s VALUES (NULL, 'e'), (3, 'f')")
    source.do("DELETE FROM @s WHERE v = 'd'")
    with pytest.raises(MergeKeyError, match=r"1 of 2 rows for .* have no id"):
        other.run()
    without.run()
    assert without.rows("id", "v") == [(1, "a"), (2, "b"), (3, "f")]
