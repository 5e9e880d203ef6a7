"""``airflow_provider_scope.spark.load``: the writes without Airflow, in a session of the caller's own."""

from __future__ import annotations

import inspect
import math
import re
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum
from itertools import cycle, zip_longest
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    CursorError,
    InputError,
    SchemaMismatchError,
    ScopeProviderError,
)
from airflow_provider_scope.python_rows import converted
from airflow_provider_scope.spark import load
from airflow_provider_scope.spark import settings as spark_settings
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.settings import EXACT
from airflow_provider_scope.spark.structs import type_text
from airflow_provider_scope.spark.writes import merge
from airflow_provider_scope.specs import Cursor, Merge, Replace, Scd2
from tests.cli.conftest import typed
from tests.conftest import COMPILED
from tests.docs.pages import ROOT, blocks
from tests.support.meanwhile import meanwhile
from tests.support.python_values import EDGES, TYPES, is_same, values

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PLANNED_ANEW = {
    name: COMPILED[name]
    for name in (
        "spark.sql.adaptive.enabled",
        "spark.sql.ui.explainMode",
        "spark.databricks.delta.snapshotPartitions",
    )
}
"""What these tests are about, and the session of the tests leaves out."""
UPSERT = Merge(strategy="upsert", primary_key=["id"], hard_delete="gone")
SCHEMA = "id bigint, text string, gone boolean"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
WEST = timezone(timedelta(hours=-5))
Kind = IntEnum("Kind", "ONE")


def rows(table: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=repr)


def test_rows_are_merged_and_counted_and_the_state_is_committed_with_them(spark: Any, tmp_path: Path) -> None:
    table = tmp_path / "t"
    first = load(spark, [(1, "a", None), (2, "b", None), (9, "x", True)], str(table), UPSERT, schema=SCHEMA)
    second = load(
        spark,
        [{"id": 2, "text": "new"}, {"id": 1, "gone": True}, {"id": 3}],
        str(table),
        UPSERT,
        schema=SCHEMA,
        state={"page": 2},
    )
    third = load(spark, [], str(table), UPSERT, schema=SCHEMA)

    assert (first.version, first.inserted, first.updated, first.deleted, first.state) == (0, 2, 0, 0, None)
    assert (second.version, second.inserted, second.updated, second.deleted) == (1, 1, 1, 1)
    assert second.state == third.state == {"page": 2}
    assert third.version == 2
    assert rows(table) == [
        {"id": 2, "text": "new", "gone": None},
        {"id": 3, "text": None, "gone": None},
    ]


def test_the_state_follows_from_the_one_before_and_a_full_refresh_forgets_it(
    spark: Any, tmp_path: Path
) -> None:
    table = str(tmp_path / "t")

    def one_more(state: Any) -> Any:
        return (state or 0) + 1

    found = [load(spark, [(n,)], table, schema="id int", state=one_more).state for n in range(2)]
    fresh = load(spark, [(7,)], table, schema="id int", state=one_more, full_refresh=True)

    assert (found, fresh.state) == ([1, 2], 1)
    assert rows(tmp_path / "t") == [{"id": 7}]


@pytest.mark.slow
def test_a_load_that_fails_changes_neither_the_rows_nor_the_state_and_the_next_one_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    table = str(tmp_path / "t")
    load(spark, [(1, "a", None)], table, UPSERT, schema=SCHEMA, state=1)

    with pytest.raises(InputError, match="have no id"):
        load(spark, [(2, "b", None), (None, "c", None)], table, UPSERT, schema=SCHEMA, state=2)
    done = load(spark, [(3, "d", None)], table, UPSERT, schema=SCHEMA)

    assert done.state == 1
    assert [row["id"] for row in rows(tmp_path / "t")] == [1, 3]


@pytest.mark.slow
def test_versions_begin_and_end_at_the_given_instant(spark: Any, tmp_path: Path) -> None:
    table, cet = str(tmp_path / "t"), timezone(timedelta(hours=1))
    days = [datetime(2026, 3, day, 1, tzinfo=cet) for day in (1, 2)]
    for day, text in zip(days, ("a", "b"), strict=True):
        load(spark, [(1, text)], table, Scd2(), schema="id int, text string", now=day)

    found = [(row["text"], row["_valid_from"], row["_valid_to"]) for row in rows(tmp_path / "t")]
    begin, end = (day.astimezone(UTC) for day in days)
    assert sorted(found) == [("a", begin, end), ("b", end, None)]


def test_a_range_is_replaced_and_new_columns_come_and_no_other_type(spark: Any, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    load(spark, spark.sql("SELECT * FROM VALUES (1, 1), (2, 2) AS t (day, n)").coalesce(1), table)
    done = load(spark, [(2, 5, "x")], table, Replace(where="day = 2"), schema="day int, n int, note string")

    with pytest.raises(SchemaMismatchError):
        load(spark, [("2", 5)], table, schema="day string, n int")
    with pytest.raises(ScopeProviderError):
        load(spark, [(2, 5)], "relative/path", schema="day int, n int")
    assert done.inserted == 1  # and the row that Delta copied is none
    assert rows(tmp_path / "t") == [{"day": 1, "n": 1, "note": None}, {"day": 2, "n": 5, "note": "x"}]


def _accepted(kind: T.DataType, value: Any) -> bool:
    try:
        converted([(value,)], T.StructType().add("c", kind))
    except InputError:
        return False
    return True


@settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(more=st.lists(values(), min_size=20, max_size=60))
def test_a_value_is_stored_as_it_is_whatever_it_is(
    spark: Any, tmp_path_factory: Any, more: list[Any]
) -> None:
    table = tmp_path_factory.mktemp("values") / "t"
    columns = [[v for v in [*EDGES, *more] if _accepted(kind, v)] for kind in TYPES.values()]
    given_rows = [dict(zip(TYPES, row, strict=True)) for row in zip_longest(*columns)]
    shapes = [dict, lambda row: tuple(row.values()), lambda row: Row(**row), namedtuple("R", TYPES)._make]  # noqa: PYI024
    shaped = [
        shape(row.values() if number % 4 == 3 else row)
        for number, (shape, row) in enumerate(zip(cycle(shapes), given_rows, strict=False))
    ]
    fields = [T.StructField(name, kind) for name, kind in TYPES.items()]
    numbered = [{"i": n, "row": row} for n, row in enumerate(shaped)]
    schema = f"i int, row {type_text(T.StructType(fields))}"
    load(spark, numbered, table, schema=schema)

    stored = sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=lambda row: row["i"])
    assert len(stored) == len(given_rows)
    for row, given_row in zip(stored, given_rows, strict=True):
        for name in TYPES:
            assert is_same(row["row"][name], given_row[name]), (name, row["row"][name], given_row[name])


def test_without_a_schema_rows_are_read_by_their_names_and_times_have_to_be_aware(
    spark: Any, tmp_path: Path
) -> None:
    pair, turned = namedtuple("Pair", "a b"), namedtuple("Turned", "b a")  # noqa: PYI024
    load(spark, [pair("x", 1.5), turned(2.5, "y"), {"b": 3.5, "a": "z"}], tmp_path / "t")

    assert rows(tmp_path / "t") == [{"a": "x", "b": 1.5}, {"a": "y", "b": 2.5}, {"a": "z", "b": 3.5}]
    for data, message in (
        ([{"at": [datetime(2026, 1, 1)]}], r"data\[0\]\.at\[0\] .* does not name an instant"),  # noqa: DTZ001
        ([{"a": 1}, {"a": "x"}], r"data\[0\]\.a is 1 \(int\)"),
        ([{"a": None}], "The columns of data are not known"),
        ([{1: 2}], "The columns of data are not known"),
        ([{}], "The rows of data do not name columns"),
        ([object()], "The columns of data are not known"),
        ([{"a": Kind.ONE}], "The columns of data are not known"),
        ([{"at": datetime.max.replace(tzinfo=WEST)}], "The columns of data are not known"),
    ):
        with pytest.raises(InputError, match=message):
            load(spark, data, tmp_path / "u")
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (
            [{"id": 1, "txet": "a"}],
            {"schema": SCHEMA},
            r"data\[0\] has the key 'txet', which is not a column",
        ),
        ([(1, "a", None), (2, b"b", None)], {"schema": SCHEMA}, r"data\[1\]\.text is b'b'"),
        ([], {}, "no rows, and no schema"),
        ([(1,)], {"schema": "id itn"}, "The columns of data are not known"),
        ([(1,)], {"schema": ["id"]}, "does not name columns"),
        ([(1,)], {"schema": "int"}, "does not name columns"),
        ([{"at": datetime(2026, 1, 1)}], {"schema": "at timestamp"}, "without a time zone"),  # noqa: DTZ001
        ([(1,)], {"schema": "id int", "now": datetime(2026, 1, 1)}, "not a datetime with a time zone"),  # noqa: DTZ001
        ([(1,)], {"schema": "id int", "now": "2026-01-01T00:00Z"}, "not a datetime with a time zone"),
        *[
            ([(1,)], {"schema": "id int", "state": state}, "cannot be kept as JSON")
            for state in (math.nan, {"a": {1, 2}}, {1: "x"}, [(1, 2)], "\ud800", {"at": DAY}, [math.inf])
        ],
        ([(1,)], {"schema": "id int", "state": lambda _: math.nan}, "cannot be kept as JSON"),
        ([(1,)], {"schema": "id int", "write": Scd2(), "cursor": Cursor(column="id")}, "merge_key="),
        ([(1,)], {"schema": "id int", "write": Replace(where="id = 1"), "full_refresh": True}, "refresh="),
    ],
)
def test_what_would_be_lost_is_refused(spark: Any, tmp_path: Path, data: Any, how: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(spark, data, tmp_path / "t", **how)

    assert not (tmp_path / "t" / "_delta_log").exists()
    if callable(how.get("state")):
        assert load(spark, data, tmp_path / "t", schema="id int", state=lambda _: 1).state == 1
    else:
        assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_a_state_belongs_to_the_caller_or_to_the_cursor(spark: Any, tmp_path: Path) -> None:
    columns, cursor = "id int", Cursor(column="id")
    callers, cursors = tmp_path / "callers", tmp_path / "cursors"
    load(spark, [(1,)], callers, schema=columns, state={"column": "id", "last": "5"})
    state = load(spark, [(1,)], cursors, schema=columns, cursor=cursor).state

    with pytest.raises(InputError, match=r"callers is the caller's .*which rows a cursor has loaded"):
        load(spark, [(2,)], callers, schema=columns, cursor=cursor)
    for other in ({"caller": 1}, lambda before: before):
        with pytest.raises(InputError, match="cursors is its cursor's, and state= would replace it"):
            load(spark, [(2,)], cursors, schema=columns, state=other)
    assert load(spark, [(0,)], cursors, schema=columns).state == state
    assert load(spark, [(2,), (1,)], cursors, schema=columns, cursor=cursor).inserted == 1
    assert [row["id"] for row in rows(cursors)] == [0, 1, 2]
    assert load(spark, [(3,)], callers, schema=columns).state == {"column": "id", "last": "5"}
    assert load(spark, [(4,)], cursors, schema=columns, state="mine", full_refresh=True).state == "mine"
    assert load(spark, [(4,)], callers, schema=columns, cursor=cursor, full_refresh=True).state["last"] == "4"


def test_a_dataframe_is_computed_by_the_settings_of_its_session(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,t,n\n1,2026-01-01 10:00:00,5\n2,2026-07-01 10:00:00,x\n")
    pq.write_table(pa.table({"day": pa.array([date(1, 1, 1)], pa.date32())}), tmp_path / "old.parquet")
    names = "id int, t timestamp, n int"
    others = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.csv.parser.columnPruning.enabled": "true",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    }
    with with_settings(spark, others):
        days = spark.read.parquet(str(tmp_path / "old.parquet"))
        csv = spark.read.csv(str(tmp_path / "t.csv"), names, header=True, mode="DROPMALFORMED")
        times = csv.selectExpr("id", "t")
        expected = [times.collect(), days.collect()]

        load(spark, times, str(tmp_path / "times"))
        load(spark, days, str(tmp_path / "days"))

        stored = [spark.read.format("delta").load(str(tmp_path / name)) for name in ("times", "days")]
        assert [sorted(rows.collect()) for rows in stored] == expected
    assert expected[0][0].t.astimezone(UTC) == datetime(2026, 1, 1, 15, tzinfo=UTC)
    assert len(expected[0]) == 2


def test_a_dataframe_of_another_session_is_loaded_in_that_one(spark: Any, tmp_path: Path) -> None:
    """As in ``foreachBatch``, where the rows of a stream have a session of their own."""
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    for hours in ([10], [10, 11, 13]):
        times = other.createDataFrame([(f"2026-07-01T{hour}:00:00Z",) for hour in hours], "text string")
        data = times.selectExpr("CAST(text AS timestamp) AS at")
        result = load(spark, data, tmp_path / "t", cursor=Cursor(column="at"))

    assert [row["at"].hour for row in rows(tmp_path / "t")] == [10, 11, 13]
    assert (result.version, result.inserted) == (1, 2)
    assert result.state["last"] == "2026-07-01 13:00:00Z"
    assert other.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"


@pytest.mark.slow
def test_after_a_restore_the_state_is_that_of_the_rows(spark: Any, tmp_path: Path, capsys: Any) -> None:
    by_cursor, callers = str(tmp_path / "cursor"), str(tmp_path / "callers")
    cursor = Cursor(column="id")
    for last in (1, 2, 3):
        given = [(number,) for number in range(last + 1)]
        load(spark, given, by_cursor, schema="id int", cursor=cursor)
        load(spark, given[-1:], callers, schema="id int", state={"page": last})
    for table in (by_cursor, callers):
        DeltaTable(table).restore(1)
        code, out, _ = typed(capsys, "accept-table", table, "--yes")
        assert code == 0
        assert "- the rows of batch 2 are no longer in the table; whoever has them can load" in out
        assert "file" not in out.replace("file:///", "")
        assert "the next load writes what it is given" in typed(capsys, "status", table)[1]

    result = load(spark, [(number,) for number in range(4)], by_cursor, schema="id int", cursor=cursor)
    seen = load(spark, [(3,)], callers, schema="id int", state=lambda old: {"page": old["page"] + 1})

    assert (result.inserted, result.state["last"], seen.state) == (1, "3", {"page": 3})
    for table, first in ((by_cursor, 0), (callers, 1)):
        rows = spark.read.format("delta").load(table).orderBy("id").collect()
        assert [row.id for row in rows] == [*range(first, 4)]


def test_the_session_is_as_it_was(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = {name: spark.conf.get(name, None) for name in EXACT}
    try:
        load(spark, [(1,)], str(tmp_path / "t"), schema="id int")

        assert {name: spark.conf.get(name, None) for name in EXACT} == before
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("write", ["append", Merge(primary_key="id")])
def test_times_without_a_zone_in_files_are_those_of_the_callers_session(
    spark: Any, tmp_path: Path, write: Any
) -> None:
    (tmp_path / "a.csv").write_text("1,2026-07-01 12:00:00\n2,2026-01-01 12:00:00\n")
    (tmp_path / "a.json").write_text('{"id":3,"at":"2026-07-01 12:00:00"}\n')
    noons = {1: (7, 10), 2: (1, 11), 3: (7, 10)}

    with with_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        reader = spark.read.schema("id int, at timestamp")
        files = reader.csv(str(tmp_path / "a.csv")).union(reader.json(str(tmp_path / "a.json")))
        for data in (files, files.orderBy("at").groupBy("id").agg(F.max("at").alias("at"))):
            load(spark, data, str(tmp_path / "t"), write, full_refresh=True)

            assert {row["id"]: row["at"] for row in rows(tmp_path / "t")} == {
                number: datetime(2026, month, 1, hour, tzinfo=UTC) for number, (month, hour) in noons.items()
            }


def test_loads_in_threads_of_one_session_wait_for_each_other(spark: Any, tmp_path: Path) -> None:
    """Each changes the session's settings, by which the files of the other one would be read."""
    (tmp_path / "a.csv").write_text("2026-07-01 12:00:00\n")
    begun, both, tables = Event(), Event(), [tmp_path / "rows", tmp_path / "files"]

    def slow(_: Any) -> None:
        begun.set()
        assert both.wait(60)
        second.join(1)

    with with_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        files = spark.read.csv(str(tmp_path / "a.csv"), "at timestamp")
        second = Thread(target=load, args=(spark, files, tables[1]))
        first = Thread(
            target=load, args=(spark, [(1,)], tables[0]), kwargs={"schema": "id int", "state": slow}
        )
        first.start()
        assert begun.wait(60)
        second.start()
        both.set()
        first.join()
        second.join()
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"

    assert rows(tables[1]) == [{"at": datetime(2026, 7, 1, 10, tzinfo=UTC)}]


def test_the_example_of_the_page_gives_what_the_page_says(spark: Any, tmp_path: Path, capsys: Any) -> None:
    page = ROOT / "docs" / "load.md"
    (example,), (result,) = blocks(page.read_text(), "python"), blocks(page.read_text(), "text")

    exec(compile(example.text, str(page), "exec"), {"spark": spark, "table": str(tmp_path / "t")})

    assert capsys.readouterr().out.strip() == result.text.strip()
    assert rows(tmp_path / "t") == [{"id": 2, "name": "Grace H.", "deleted": False}]


def test_the_arguments_are_on_the_page() -> None:
    page = (ROOT / "docs" / "load.md").read_text().partition("## Rows")[0]
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)

    assert named == [*inspect.signature(load).parameters]


def test_a_load_by_a_cursor_writes_what_is_new(spark: Any, tmp_path: Path) -> None:
    target, schema = str(tmp_path / "t"), "id bigint, name string"
    cursor = Cursor(column="id")
    first = load(spark, [(1, "a"), (2, "b")], target, schema=schema, cursor=cursor)
    again = load(spark, [(1, "a"), (2, "b"), (2, "c"), (3, "d")], target, schema=schema, cursor=cursor)
    nothing = load(spark, [(3, "d")], target, schema=schema, cursor=cursor)
    fresh = load(spark, [(1, "z")], target, schema=schema, cursor=cursor, full_refresh=True)

    assert [one.inserted for one in (first, again, nothing, fresh)] == [2, 2, 0, 1]
    assert (again.state["last"], fresh.state["last"]) == ("3", "1")
    with pytest.raises(InputError, match=r"leave cursor out: .* the cursor's state stays"):
        load(spark, [(1, "y")], target, Replace(where="id = 1"), schema=schema, cursor=cursor)
    part = load(spark, [(1, "y")], target, Replace(where="id = 1"), schema=schema)
    assert (part.state, rows(tmp_path / "t")) == (fresh.state, [{"id": 1, "name": "y"}])
    with pytest.raises(CursorError, match=r"'id'.*'name'"):
        load(spark, [(9, "a")], target, schema=schema, cursor=Cursor(column="name"))
    with pytest.raises(InputError, match="the cursor's"):
        load(spark, [(1, "a")], target, schema=schema, cursor=cursor, state=1)


@pytest.mark.slow
@pytest.mark.parametrize("write", [UPSERT, pytest.param(Scd2(merge_key="id"), marks=pytest.mark.loads)])
def test_a_small_load_is_fewer_jobs_and_the_same_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()

    def jobs(table: str) -> int:
        for number in range(2):
            begun = scheduler.numTotalJobs()
            data = [(n, f"{number}{n}", None) for n in range(number, number + 3)]
            load(spark, data, str(tmp_path / table), write, schema=SCHEMA, now=DAY + timedelta(number))
        return int(scheduler.numTotalJobs() - begun)

    with with_settings(spark, PLANNED_ANEW):
        before = {name: spark.conf.get(name, None) for name in spark_settings.OF_SMALL}
        few = jobs("small")
        assert {name: spark.conf.get(name, None) for name in spark_settings.OF_SMALL} == before
        monkeypatch.setattr(spark_settings, "SMALL_ROWS", -1)
        many = jobs("large")

    assert few < 0.75 * many
    assert rows(tmp_path / "small") == rows(tmp_path / "large")


@pytest.mark.slow
def test_a_table_that_was_made_before_keeps_its_partitions_and_properties(spark: Any, tmp_path: Path) -> None:
    properties = "'delta.columnMapping.mode' = 'name'"
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/t` (`a b` int, day string) USING delta PARTITIONED BY (day) "
        f"TBLPROPERTIES ({properties})"
    )

    load(
        spark,
        [(1, "mon"), (2, "tue")],
        str(tmp_path / "t"),
        Merge(merge_key="day"),
        schema="`a b` int, day string",
    )
    load(spark, [(3, "tue")], str(tmp_path / "t"), Merge(merge_key="day"), schema="`a b` int, day string")

    table = DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["day"]
    stored = spark.read.format("delta").load(str(tmp_path / "t"))
    assert sorted(map(tuple, stored.select("a b", "day").collect())) == [(1, "mon"), (3, "tue")]


@pytest.mark.slow
@pytest.mark.parametrize("write", [pytest.param(UPSERT, marks=pytest.mark.loads), Scd2(merge_key="id")])
def test_a_batch_is_joined_without_sorting_the_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    monkeypatch.setattr(spark_settings, "SMALL_ROWS", -1)
    plans = spark._jsparkSession.sharedState().statusStore()

    def joins(table: str) -> list[set[str]]:
        """Return the joins of each query as it was run: those of the plan that Spark began with come last."""
        for number in range(2):
            before = plans.executionsCount()
            data = [(n, f"{number}{n}", None) for n in range(number, number + 3)]
            load(spark, data, str(tmp_path / table), write, schema=SCHEMA, now=DAY + timedelta(number))
        listed = plans.executionsList()
        new = [listed.apply(n) for n in range(listed.size())][before - plans.executionsCount() :]
        texts = [one.physicalPlanDescription().partition("Initial Plan")[0] for one in new]
        return [set(re.findall(r"(?:SortMerge|ShuffledHash)Join \w+", text)) for text in texts]

    with with_settings(spark, PLANNED_ANEW):
        ours = set().union(*joins("hashed"))
        monkeypatch.setattr(merge, "_HASHED_ROWS", -1)
        sorted_ = set().union(*joins("sorted"))

    assert {join.split()[0] for join in ours} == {"ShuffledHashJoin"}
    assert "SortMergeJoin" in {join.split()[0] for join in sorted_}
    assert rows(tmp_path / "hashed") == rows(tmp_path / "sorted")


@pytest.mark.slow
@pytest.mark.parametrize("full_refresh", [False, True])
def test_a_load_that_another_one_overtakes_says_so(spark: Any, tmp_path: Path, full_refresh: bool) -> None:
    """Its batch is abandoned, or replaced, by the time that it would commit: it must not pass for loaded."""
    table, other = str(tmp_path / "t"), spark.newSession()
    load(spark, [{"a": 1}], table)
    deed = meanwhile(lambda: load(other, [{"a": 2}], table, full_refresh=full_refresh))
    spark.udf.register("meanwhile", deed, "bigint")

    with pytest.raises(BatchNotInTableError, match="overtook this one"):
        load(spark, spark.sql("SELECT meanwhile(id) AS a FROM range(3, 4)"), table)

    assert rows(tmp_path / "t") == ([{"a": 2}] if full_refresh else [{"a": 1}, {"a": 2}])
    load(spark, [{"a": 3}], table)
    assert {"a": 3} in rows(tmp_path / "t")


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        pytest.param("append", id="append"),
        pytest.param(UPSERT, id="upsert"),
        pytest.param(Scd2(merge_key="id"), id="scd2", marks=pytest.mark.loads),
    ],
)
def test_a_first_load_cannot_commit_after_it_was_abandoned(spark: Any, tmp_path: Path, write: Any) -> None:
    """There is no table yet that could tell it so: the later load makes it before its own rows are read."""
    table, other = str(tmp_path / "t"), spark.newSession()
    begun, abandoned, errors = Event(), Event(), list[Exception]()

    def wait() -> None:
        begun.set()
        abandoned.wait()

    def first() -> None:
        try:
            load(
                spark,
                spark.sql("SELECT wait(id) AS id, 'first' AS text, false AS gone FROM range(1)"),
                table,
                write,
            )
        except ScopeProviderError as err:
            errors.append(err)

    def end_first() -> None:
        abandoned.set()
        thread.join()

    spark.udf.register("wait", meanwhile(wait), "bigint")
    other.udf.register("end_first", meanwhile(end_first), "bigint")
    thread = Thread(target=first)
    thread.start()
    begun.wait()
    load(
        other,
        other.sql("SELECT end_first(id) AS id, 'later' AS text, false AS gone FROM range(1)"),
        table,
        write,
    )

    assert [type(err) for err in errors] == [BatchNotInTableError]
    load(spark, [(7, "next", False)], table, write, schema=SCHEMA)
    assert [(row["id"], row["text"]) for row in rows(tmp_path / "t")] == [(0, "later"), (7, "next")]
