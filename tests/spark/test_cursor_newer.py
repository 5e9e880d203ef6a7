"""A new version of a table without a row that is new to the cursor is told by its log, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

LAST = datetime(2026, 1, 1, 12, 0, 0, 123_999, UTC)
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def started(spark: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often Spark was started."""
    warm.use(monkeypatch, spark)
    return warm.count_plans(monkeypatch)


def pipe_of(folder: Path, **more: Any) -> warm.Pipe:
    outer = {name: more.pop(name) for name in ("pre_filter_sql",) if name in more}
    cursor = {"column": "n", **more}
    return warm.Pipe(folder, {"source": {"table": str(folder / "source"), "cursor": cursor, **outer}})


def add(folder: Path, *values: Any) -> None:
    write_deltalake(str(folder / "source"), pa.table({"n": pa.array(values)}), mode="append")


@pytest.mark.loads
def test_rows_before_the_last_value_start_no_spark(tmp_path: Path, started: list[int]) -> None:
    add(tmp_path, 1, 5)
    pipe = pipe_of(tmp_path)
    pipe.run()
    add(tmp_path, 3, 4)
    add(tmp_path, 2)
    report = pipe.run()
    # Packed anew, the rows at the last value come in a new file.
    DeltaTable(str(tmp_path / "source")).optimize.compact()
    pipe.run()

    assert started == [1]
    assert "0 rows: nothing newer in version 2" in report.text()
    assert pipe.rows() == [(1,), (5,)]

    add(tmp_path, 5)
    pipe.run()
    add(tmp_path, 6, 0)
    pipe.run()
    assert started == [1, 1, 1]
    assert pipe.rows() == [(1,), (5,), (5,), (6,)]


@pytest.mark.slow
def test_a_select_before_the_cursor_is_asked(tmp_path: Path, started: list[int]) -> None:
    add(tmp_path, 1, 5)
    pipe = pipe_of(tmp_path, pre_filter_sql="SELECT -n AS n FROM @data")
    pipe.run()
    add(tmp_path, 0)
    pipe.run()
    assert started == [1, 1]
    assert pipe.rows() == [(-1,), (-5,), (0,)]


@pytest.mark.loads
def test_instants_are_told_apart_below_what_statistics_hold(
    tmp_path: Path, spark: Any, started: list[int]
) -> None:
    """Of times, Delta's statistics end at the milliseconds."""

    def by_spark(*moments: datetime) -> None:
        rows = spark.createDataFrame([(one,) for one in moments], "n timestamp")
        rows.coalesce(1).write.format("delta").mode("append").save(str(tmp_path / "source"))

    by_spark(LAST - timedelta(seconds=1), LAST)
    pipe = pipe_of(tmp_path)
    pipe.run()
    by_spark(LAST - timedelta(milliseconds=2))
    pipe.run()
    assert started == [1]
    by_spark(LAST - MICROSECOND)
    pipe.run()
    by_spark(LAST + 10 * MICROSECOND)
    pipe.run()
    assert started == [1, 1, 1]
    wanted = [LAST - timedelta(seconds=1), LAST, LAST + 10 * MICROSECOND]
    assert sorted(value for (value,) in pipe.rows()) == wanted


@pytest.mark.slow
def test_a_column_by_another_name_in_the_files_is_looked_at(
    tmp_path: Path, spark: Any, started: list[int]
) -> None:
    """A column that takes the name of a renamed one: the statistics of that name are the other's."""
    name = f"delta.`{tmp_path / 'source'}`"
    spark.sql(
        f"CREATE TABLE {name} (n INT, m INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO x")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN m TO n")
    spark.sql(f"INSERT INTO {name} VALUES (1, 5)")
    pipe = pipe_of(tmp_path)
    pipe.run()
    spark.sql(f"INSERT INTO {name} VALUES (1, 6)")
    pipe.run()
    assert started == [1, 1]
    assert pipe.rows("n") == [(5,), (6,)]


LOS_ANGELES, CALCUTTA = (
    timedelta(hours=-7, minutes=-52, seconds=-58),
    timedelta(hours=5, minutes=53, seconds=28),
)


@pytest.mark.parametrize(
    ("func", "offset", "told"),
    [("max", LOS_ANGELES, "-07:52"), pytest.param("min", CALCUTTA, "+05:53", marks=pytest.mark.loads)],
)
def test_times_whose_statistics_lack_the_seconds_of_an_offset_are_loaded(
    tmp_path: Path, func: str, offset: timedelta, told: str
) -> None:
    """As Delta 3.2 writes them: 58 s before the value, or 28 s after it."""
    first = datetime(1850, 1, 1, 12, tzinfo=UTC)
    later = first + timedelta(seconds=10 if func == "max" else -10)
    add(tmp_path, first)
    pipe = pipe_of(tmp_path, last_value_func=func)
    pipe.run()
    add(tmp_path, later)
    commit = tmp_path / "source" / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    value = {"n": f"{later + offset:%Y-%m-%dT%H:%M:%S.000}{told}"}
    stats = {"numRecords": 1, "minValues": value, "maxValues": value, "nullCount": {"n": 0}}
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = json.dumps(stats)
    commit.write_text("\n".join(map(json.dumps, actions)))
    pipe.run()
    assert sorted(pipe.rows("n")) == sorted([(first,), (later,)])
