"""The changes of a Delta table by version, committed with the state after them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import (
    ChangeFeedError,
    InputError,
    MergeKeyError,
    TableRecreatedError,
)
from airflow_provider_scope.protocol import acceptance
from airflow_provider_scope.spark.session import with_settings
from tests.spark.feed_table import FEED, KEY, ON, Source
from tests.support import warm
from tests.support.warm import SessionEngine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


@pytest.mark.slow
def test_keys_may_have_odd_names_and_values_and_rows_may_move_between_partitions(
    spark: Any, tmp_path: Path
) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    source = Source(
        spark, tmp_path, "`x y` DECIMAL(38,18), `Key` STRING, `a.b` BINARY, `p/q` STRING", **mapped
    )
    odd = "(1, 'é', X'00ff', 'a/b=c'), (2, 'e\u0301', X'', '50%'), (NULL, ' ', X'00', NULL)"
    source.do(f"INSERT INTO @s VALUES {odd}")
    table = {"properties": mapped, "partition_by": ["p/q"]}
    key = {"kind": "merge", "strategy": "upsert", "primary_key": ["a.b", "KEY"]}
    pipe = source.pipe(key, table=table, sql="SELECT `p/q`, `a.b`, `Key`, `x y` FROM @data WHERE 1 = 1")
    pipe.run()
    source.do("DELETE FROM @s WHERE `x y` = 2", "UPDATE @s SET `p/q` = 'moved' WHERE `x y` = 1")
    source.do("UPDATE @s SET `Key` = 'other' WHERE `Key` = ' '")
    pipe.run()

    assert pipe.rows("Key", "a.b", "p/q") == [("other", b"\x00", None), ("é", b"\x00\xff", "moved")]


@pytest.mark.slow
def test_rows_whose_keys_were_exchanged_or_changed_and_changed_back_are_where_the_source_has_them(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, "a INT, b STRING, v STRING")
    pipe = source.pipe({"kind": "merge", "primary_key": ["a", "b"]})
    source.do("INSERT INTO @s VALUES (1, '2', 'x'), (2, '1', 'y'), (3, '3', 'z'), (NULL, '5', 'n')")
    source.do("UPDATE @s SET a = 5 WHERE a IS NULL")
    first, again = pipe.run(), pipe.run()
    assert [len(one.batches) for one in (first, again)] == [1, 0]
    assert "version 2 of" in again.text()

    for changes in (
        ["UPDATE @s SET a = CAST(b AS INT), b = CAST(a AS STRING)"],
        ["UPDATE @s SET a = a + 1 WHERE a = 3", "UPDATE @s SET a = a - 1 WHERE a = 4"],
        [
            "UPDATE @s SET b = '1' WHERE b = '2'",
            "UPDATE @s SET b = '2' WHERE a = 3",
            "DELETE FROM @s WHERE a = 5",
            "UPDATE @s SET v = upper(v)",
            "INSERT INTO @s VALUES (4, '4', 'new')",
        ],
    ):
        source.do(*changes)
        pipe.run()
        stored = DeltaTable(str(source.path)).to_pyarrow_table(columns=["a", "b", "v"]).to_pylist()
        assert pipe.rows("a", "b", "v") == sorted(tuple(row.values()) for row in stored)
    state = pipe.state()
    assert (state["identifier"], state["version"], state["first"]) == ("default", 10, 0)


@pytest.mark.slow
def test_append_keeps_every_change_from_the_commit_that_made_the_table_on(source: Source) -> None:
    shutil.rmtree(source.path)
    source.spark.sql(f"CREATE TABLE {source.name} USING delta TBLPROPERTIES {ON} AS SELECT 1 AS id, 'a' AS v")
    pipe = source.pipe("append")
    pipe.run()
    source.do("UPDATE @s SET v = 'b'", "DELETE FROM @s")
    pipe.run()

    assert pipe.rows("_commit_version", "_change_type", "id", "v") == [
        (0, "insert", 1, "a"),
        (1, "update_postimage", 1, "b"),
        (1, "update_preimage", 1, "a"),
        (2, "delete", 1, "b"),
    ]
    assert None not in [row[0] for row in pipe.rows("_commit_timestamp")]


def test_a_full_load_takes_what_was_there_before_the_feed(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path, **{"delta.enableChangeDataFeed": "false"})
    source.do("INSERT INTO @s VALUES (1, 'a')", f"ALTER TABLE @s SET TBLPROPERTIES {ON}")
    source.do("INSERT INTO @s VALUES (2, 'b')", f"ALTER TABLE @s SET TBLPROPERTIES {ON}")
    with pytest.raises(ChangeFeedError, match="enabled only with version 2"):
        source.pipe(start_version=1).run()
    whole = source.pipe(full_load=True)
    whole.run()
    source.do("DELETE FROM @s WHERE id = 1", "INSERT INTO @s VALUES (3, 'c')")
    whole.run()

    assert whole.rows() == [(2, "b"), (3, "c")]
    every = source.pipe("append", full_load=True)
    every.table = tmp_path / "every"
    every.run()
    assert every.rows("id", "_change_type", "_commit_version") == [(2, "insert", 6), (3, "insert", 6)]
    replaced = source.pipe("replace", full_load=True)
    replaced.table = tmp_path / "replaced"
    replaced.arguments["max_batches_per_run"] = None
    replaced.run()
    source.do("DELETE FROM @s WHERE id = 2")
    replaced.run()
    assert replaced.rows("id", "v") == [(3, "c")]


@pytest.mark.slow
def test_batches_have_so_many_commits_and_the_report_says_what_is_left(source: Source) -> None:
    source.do(*[f"INSERT INTO @s VALUES ({n}, 'x')" for n in range(5)])
    pipe = source.pipe("append", max_commits_per_batch=2)
    report = pipe.run(max_batches_per_run=2)

    assert [batch.record.rows for batch in report.batches] == [1, 2]
    assert "left for the next run: 2 commits of" in report.text()
    assert pipe.rows("id") == [(0,), (1,), (2,)]
    assert "left for" not in pipe.run().text()
    assert len(pipe.rows()) == 5


def test_rows_that_were_deleted_are_left_or_flagged(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    ignoring, soft = source.pipe(deletes="ignore"), source.pipe(deletes="soft")
    soft.table = source.folder / "soft"
    ignoring.run()
    soft.run()
    assert soft.rows() == [(1, "a", False), (2, "b", False), (3, "c", False)]
    source.do("DELETE FROM @s WHERE id = 1", "UPDATE @s SET id = 20 WHERE id = 2")
    source.do("INSERT INTO @s VALUES (4, 'd')", "DELETE FROM @s WHERE id = 4")
    ignoring.run()
    soft.run()

    assert ignoring.rows() == [(1, "a"), (20, "b"), (3, "c"), (4, "d")]
    assert soft.rows() == [
        (1, "a", True),
        (2, "b", True),
        (20, "b", False),
        (3, "c", False),
        (4, "d", True),
    ]
    source.do("INSERT INTO @s VALUES (5, 'e')")
    with pytest.raises(InputError, match="leaves out '_deleted'"):
        soft.run(sql="SELECT id, v FROM @data")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["upsert", pytest.param("delete-insert", marks=pytest.mark.loads)])
def test_a_row_that_the_select_leaves_out_goes_where_others_are_flagged(
    source: Source, strategy: str
) -> None:
    source.do("INSERT INTO @s VALUES (1, 'keep'), (2, 'keep'), (3, 'keep'), (4, 'no')")
    sql = "SELECT id, v, _deleted FROM @data WHERE v LIKE 'keep%'"
    pipe = source.pipe({**KEY, "strategy": strategy}, sql=sql, deletes="soft", max_commits_per_batch=1)
    pipe.run()
    again = "SELECT * FROM VALUES (1, 'no'), (2, 'keep it'), (4, 'keep') AS t(id, v)"
    source.do(f"INSERT OVERWRITE @s {again}", "DELETE FROM @s WHERE id = 1", "DELETE FROM @s WHERE id = 4")
    pipe.run(max_batches_per_run=9)

    assert pipe.rows("id", "v", "_deleted") == [
        (2, "keep it", False),
        (3, "keep", True),
        (4, "keep", True),
    ]


def test_a_row_that_the_select_leaves_out_since_it_was_updated_goes(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (1, 'keep'), (2, 'keep'), (3, 'no')")
    pipe = source.pipe(sql="SELECT id, upper(v) AS text FROM @data WHERE v LIKE 'keep%'")
    pipe.run()
    assert pipe.rows() == [(1, "KEEP"), (2, "KEEP")]
    source.do("UPDATE @s SET v = 'no' WHERE id = 1", "UPDATE @s SET v = 'keep it' WHERE id = 3")
    source.do("DELETE FROM @s WHERE id = 2")
    pipe.run()

    assert pipe.rows() == [(3, "KEEP IT")]
    source.do("INSERT INTO @s VALUES (7, 'keep')")
    renamed = {**KEY, "primary_key": ["key"]}
    with pytest.raises(InputError, match="names 'key', which is not a column of"):
        pipe.run(sql="SELECT id AS key, v AS text FROM @data", write=renamed)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["upsert", pytest.param("delete-insert", marks=pytest.mark.loads)])
def test_a_row_that_took_the_place_of_another_one_is_told(
    source: Source, strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = source.pipe({**KEY, "strategy": strategy})
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b'), (3, 'c')", "UPDATE @s SET id = 4 WHERE id = 3")
    pipe.run()
    # What looks alike: an updated key, one that is deleted and inserted again, and a row that came and went.
    source.do("DELETE FROM @s WHERE id = 1", "INSERT INTO @s VALUES (1, 'x'), (9, 'z')")
    source.do("DELETE FROM @s WHERE id = 9", "UPDATE @s SET id = 5 - id WHERE id IN (1, 4)")
    pipe.run()
    assert "replaced others" not in capsys.readouterr().out
    source.do("INSERT INTO @s VALUES (2, 'again'), (1, 'again')", "INSERT INTO @s VALUES (7, 'new')")
    source.do("INSERT INTO @s VALUES (7, 'newer')", "DELETE FROM @s WHERE id = 4")
    pipe.run()
    assert pipe.rows() == [(1, "again"), (2, "again"), (7, "newer")]
    told = "rows that were inserted in the source replaced others with the same key, at least 3"
    assert told in capsys.readouterr().out


@pytest.mark.slow
def test_a_key_that_came_twice_in_one_commit_is_refused_with_an_example(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (1, 'a'), (5, 'x'), (5, 'y')")
    pipe = source.pipe()
    with pytest.raises(ChangeFeedError, match=r'1 key of .* came twice in a version, such as {"id":5} in 1:'):
        pipe.run()
    anew = {"full_refresh": True, "source": {**pipe.arguments["source"], "full_load": True}}
    with pytest.raises(ChangeFeedError, match=r'1 key of .* was found twice, such as {"id":5} in 1:'):
        pipe.run(**anew)
    assert not pipe.table.joinpath("_delta_log").exists()


# ---- refused before Spark is started -----------------------------------------------------------


@pytest.mark.slow
def test_a_commit_that_is_missing_is_refused_though_a_checkpoint_lies_behind_it(source: Source) -> None:
    source.do("ALTER TABLE @s SET TBLPROPERTIES ('delta.checkpointInterval' = '3')")
    pipe = source.pipe("append")
    pipe.run()
    source.do(*[f"INSERT INTO @s VALUES ({n}, 'x')" for n in range(4)])
    assert [*source.path.glob("_delta_log/*.checkpoint.parquet")]
    (source.path / "_delta_log" / f"{2:020}.json").unlink()
    with pytest.raises(ChangeFeedError, match="no longer has version 2, whose"):
        pipe.run()
    for more in ({}, {"start_version": 1}):
        with pytest.raises(ChangeFeedError, match="no longer has version 2, whose") as caught:
            source.pipe("append", **more).run(full_refresh=True)
        assert "restore the file 00000000000000000002.json" in caught.value.do
    for version in (0, 1):
        (source.path / "_delta_log" / f"{version:020}.json").unlink()
    for more in ({}, {"start_version": 1}):
        with pytest.raises(ChangeFeedError, match="begins with version 3, and"):
            source.pipe("append", **more).run(full_refresh=True)
    assert pipe.rows() == []
    pipe.run(full_refresh=True, source={"table": str(source.path), "full_load": True})
    assert len(pipe.rows()) == 4


@pytest.mark.slow
def test_a_key_of_null_is_left_out_by_sql_or_corrected_before_the_next_batch(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (4, 'd')", "INSERT INTO @s VALUES (NULL, 'x'), (5, 'e')")
    pipe = source.pipe()
    with pytest.raises(MergeKeyError, match="have no id, which is a primary_key") as caught:
        pipe.run()
    assert "WHERE … IS NOT NULL" in caught.value.do
    assert "a correction in the source comes with a later version" in caught.value.do
    assert caught.value.do.count("airflow scope abandon") == 1
    with pytest.raises(MergeKeyError) as caught:
        source.pipe({"kind": "scd2", "merge_key": ["id"], "sequence_by": "commit"}).run()
    assert "abandon" not in caught.value.do  # the next batch would have the row, too

    source.do("UPDATE @s SET id = 6 WHERE id IS NULL")
    with pytest.raises(MergeKeyError):
        pipe.run()
    pipe.run(sql="SELECT * FROM @data WHERE id IS NOT NULL")
    pipe.run()
    assert pipe.rows("id") == [(4,), (5,), (6,)]


def test_another_table_another_load_and_an_end_that_is_not_there_are_refused(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    with pytest.raises(ChangeFeedError, match="end_version is 9, and the newest version"):
        source.pipe(end_version=9).run()
    with pytest.raises(ChangeFeedError, match="start_version is 9, and the newest version"):
        source.pipe(start_version=9).run()
    pipe = source.pipe(end_version=1)
    pipe.run()
    source.do("INSERT INTO @s VALUES (2, 'b')")
    assert pipe.run().batches == []
    with pytest.raises(ChangeFeedError, match="belongs to the load 'default', but source"):
        source.pipe(identifier="other").run()
    shutil.rmtree(source.path)
    Source(spark, tmp_path).do("INSERT INTO @s VALUES (3, 'c')")
    with pytest.raises(ChangeFeedError, match="is not the one that was read before"):
        source.pipe().run()
    assert pipe.rows() == [(1, "a")]


@pytest.mark.slow
def test_changes_whose_files_were_removed_are_refused_and_the_batch_stays(source: Source) -> None:
    pipe = source.pipe()
    pipe.run()
    source.do("INSERT INTO @s VALUES (1, 'a')", "UPDATE @s SET v = 'b'")
    files = {file: file.read_bytes() for file in source.path.rglob("*.parquet")}
    for file in files:
        file.unlink()
    for _ in range(2):
        with pytest.raises(ChangeFeedError, match=r"(?s)VACUUM.*put these files back.*or run the task once"):
            pipe.run()
    assert pipe.rows() == []
    for file, data in files.items():
        file.write_bytes(data)
    pipe.run()
    assert pipe.rows() == [(1, "b")]


@pytest.mark.slow
def test_a_column_with_another_name_is_refused_until_the_old_name_is_kept(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path, "id INT, `v w` STRING", **{"delta.columnMapping.mode": "name"})
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b')")
    table = {"schema_evolution": "add", "properties": {"delta.columnMapping.mode": "name"}}
    pipe = source.pipe(table=table)
    pipe.run()
    source.do("INSERT INTO @s VALUES (3, 'c')", "ALTER TABLE @s RENAME COLUMN `v w` TO `w`")
    source.do("UPDATE @s SET w = 'B' WHERE id = 2")

    with pytest.raises(ChangeFeedError, match="renames the column 'v w' to 'w'"):
        pipe.run()
    kept = "SELECT id, w AS `v w` FROM @data"
    with pytest.raises(ChangeFeedError, match="renames the column 'v w' to 'w'"):
        pipe.run(sql="SELECT * FROM @data WHERE id > 0")
    pipe.run(sql=kept)
    assert pipe.rows("id", "v w") == [(1, "a"), (2, "B"), (3, "c")]


@pytest.mark.slow
def test_a_column_that_is_dropped_and_added_again_is_another_one_whatever_is_selected(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, **{"delta.columnMapping.mode": "name"})
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b')")
    pipe = source.pipe(sql="SELECT id, v FROM @data")
    pipe.run()
    source.do("ALTER TABLE @s DROP COLUMN v", "ALTER TABLE @s ADD COLUMN (v STRING)")
    source.do("UPDATE @s SET v = 'new' WHERE id = 1")
    with pytest.raises(ChangeFeedError, match="The name 'v' now stands for another column"):
        pipe.run()
    pipe.run(full_refresh=True, source={**pipe.arguments["source"], "full_load": True})
    assert pipe.rows("id", "v") == [(1, "new"), (2, None)]


@pytest.mark.slow
def test_a_target_with_mapped_columns_gets_its_feed_with_its_second_load(spark: Any, tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    source = Source(spark, tmp_path, "id INT, `v w` STRING", **mapped)
    source.do("INSERT INTO @s VALUES (1, 'a')")
    pipe = source.pipe()
    pipe.run(table={"properties": mapped})
    source.do("INSERT INTO @s VALUES (2, 'b')")
    pipe.run(table={"properties": {**mapped, **FEED}})
    assert pipe.rows("id", "v w") == [(1, "a"), (2, "b")]
    assert FEED.items() <= DeltaTable(str(pipe.table)).metadata().configuration.items()


@pytest.mark.slow
def test_days_that_java_had_left_out_come_as_they_are(spark: Any, tmp_path: Path) -> None:
    columns = "id INT, d DATE, t TIMESTAMP, s STRUCT<d: DATE>, a ARRAY<DATE>, n TIMESTAMP_NTZ"
    source = Source(spark, tmp_path, columns)
    spark.conf.set("spark.sql.datetime.java8API.enabled", "false")
    for day in ("1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14", "1582-10-15", "0001-01-01"):
        when = f"TIMESTAMP '{day} 12:00:00.123456Z'"
        of_day = (
            f"DATE '{day}', {when}, struct(DATE '{day}'), array(DATE '{day}'), TIMESTAMP_NTZ '{day} 01:02:03'"
        )
        source.do(f"INSERT INTO @s SELECT {int(day[-2:])}, {of_day}")
    merged, added = source.pipe(), source.pipe("append")
    added.table = source.folder / "added"
    names = ("id", "d", "t", "s", "a", "n")
    for pipe in (merged, added):
        pipe.run()
        there = DeltaTable(str(source.path)).to_pyarrow_table().to_pylist()
        assert pipe.rows(*names) == sorted((tuple(row[name] for name in names) for row in there), key=repr)


@pytest.mark.slow
def test_a_feed_goes_on_over_versions_that_others_made_hard_to_read(spark: Any, tmp_path: Path) -> None:
    source = Source(
        spark,
        tmp_path,
        "id INT, n INT, m INT",
        **{
            "delta.columnMapping.mode": "name",
            "delta.enableTypeWidening": "true",
            "delta.deletedFileRetentionDuration": "interval 0 hours",  # and nobody ran VACUUM
        },
    )
    pipe = source.pipe(table={"schema_evolution": "widen"})
    source.do("INSERT INTO @s VALUES (1, 1, 1), (2, 2, 2)")
    pipe.run()

    source.do("UPDATE @s SET n = 10 WHERE id = 1")
    source.do("ALTER TABLE @s SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    source.do("DELETE FROM @s WHERE id = 2", "INSERT INTO @s VALUES (3, 3, 3)")
    assert len(pipe.run().batches) == 2
    assert pipe.rows() == [(1, 10, 1), (3, 3, 3)]

    source.do("ALTER TABLE @s ALTER COLUMN n TYPE BIGINT", "INSERT INTO @s VALUES (4, 5000000000, 4)")
    pipe.run()
    wider = "SELECT CAST(id AS INT) AS id, 0L AS n, 6000000000 AS m FROM VALUES (1), (5) AS x(id)"
    with with_settings(spark, {"spark.databricks.delta.typeWidening.allowAutomaticWidening": "always"}):
        source.do(
            f"MERGE WITH SCHEMA EVOLUTION INTO @s AS t USING ({wider}) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    source.do("DELETE FROM @s WHERE id = 3")
    pipe.run()
    rows = spark.read.format("delta").load(str(pipe.table))
    assert dict(rows.dtypes) == {"id": "int", "n": "bigint", "m": "bigint"}
    assert sorted(map(tuple, rows.collect())) == [(1, 0, 6 * 10**9), (4, 5 * 10**9, 4), (5, 0, 6 * 10**9)]


@pytest.mark.slow
def test_a_target_that_was_replaced_is_loaded_anew_once_it_is_accepted(source: Source) -> None:
    """Its log stays, with all transactions: as if a RESTORE had brought back no row."""

    def refused_and_accepted(match: str) -> None:
        with pytest.raises(TableRecreatedError, match=match):
            pipe.run()
        execution, request = pipe.execution()
        acceptance.accept_table(execution.log, execution.engine, request.table)
        pipe.run()

    pipe = source.pipe()
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b')")
    pipe.run()
    rows = "SELECT 9 AS id, 'of others' AS v"
    source.spark.sql(f"CREATE OR REPLACE TABLE delta.`{pipe.table}` USING delta AS {rows}")
    source.do("INSERT INTO @s VALUES (3, 'c')")
    refused_and_accepted("created again, or replaced")
    assert pipe.rows() == [(1, "a"), (2, "b"), (3, "c"), (9, "of others")]
    source.spark.sql(f"RESTORE TABLE delta.`{pipe.table}` TO VERSION AS OF 0")
    refused_and_accepted("its id is")
    assert pipe.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_run_that_dies_after_the_commit_is_completed_by_the_next_one(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b')", "DELETE FROM @s WHERE id = 2")
    pipe = source.pipe("append")
    run = SessionEngine.run_plan

    def dying(*arguments: Any, **more: Any) -> None:
        run(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SessionEngine, "run_plan", dying)
        with pytest.raises(KeyboardInterrupt):
            pipe.run()
    source.do("INSERT INTO @s VALUES (3, 'c')")
    report = pipe.run()

    assert [batch.already_there for batch in report.batches] == [True, False]
    assert pipe.rows("_commit_version", "id") == [(1, 1), (1, 2), (2, 2), (3, 3)]
