"""``mode="data_interval"``: what goes with it, and what would lose or double rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.intervals import (
    IntervalLog,
    NoAuditFiles,
    check_beside_intervals,
    known_intervals,
)
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import Pipeline
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.specs import CdfSource, Cursor, FileSource, TableSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, TEMPLATES, ingest_from
from airflow_provider_scope.values import CursorSlice, Window
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support import values
from tests.support.dbt_scope import DbtScopeOnMemory
from tests.support.memory_engine import MemoryStorage
from tests.support.values import XCOM, a_commit, an_entry

DAY = 86_400_000
FIRST = 1_356_998_400_000
JANUARY_1 = "20130101T000000000Z_20130102T000000000Z"


def arguments(**kwargs: Any) -> dict[str, Any]:
    return values.arguments(**{"mode": "data_interval", **kwargs})


def made(**kwargs: Any) -> Any:
    ingest = ingest_from(arguments(**kwargs))
    assert ingest
    return ingest


def test_all_arguments_but_the_mode_may_be_templates() -> None:
    assert {*ARGUMENTS} - {*TEMPLATES} == {"mode"}


def test_without_a_window_the_run_says_which_interval_it_loads() -> None:
    assert (made().mode, made().window) == ("data_interval", None)
    assert made(mode=None).mode == "incremental"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00Z"),
        ("2013-01-01 05:00:00+05:00", datetime(2013, 1, 2, tzinfo=UTC)),
        (datetime(2013, 1, 1, microsecond=999, tzinfo=UTC), " 2013-01-02T00:00:00.000999+00:00 "),
    ],
)
def test_a_window_is_two_times_with_their_zones(start: Any, end: Any) -> None:
    assert made(window_start=start, window_end=end).window == Window(FIRST, FIRST + DAY)


@pytest.mark.parametrize("nothing", [None, "", "None", "  "])
def test_a_window_that_renders_to_nothing_leaves_it_to_the_run(nothing: Any) -> None:
    assert made(window_start=nothing, window_end=nothing).window is None


@pytest.mark.parametrize("value", ["{{ data_interval_start }}", XCOM], ids=["template", "XComArg"])
def test_a_window_that_only_the_task_knows_is_let_through(value: Any) -> None:
    assert made(window_start=value, window_end="2013-01-02T00:00:00+00:00").window is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "daily"}, "mode='daily' is not valid: expected one of 'incremental', 'data_interval'"),
        ({"mode": XCOM}, "expected one of 'incremental', 'data_interval'"),
        (
            {"window_start": "2013-01-01"},
            "window_start='2013-01-01' is not valid: expected a time with its zone",
        ),
        ({"window_end": 5}, "window_end=5 is not valid: expected a time with its zone"),
        ({"window_start": 0}, "window_start=0 is not valid"),
        ({"mode": "incremental", "window_start": 0}, "window_start=0 is not valid"),
        (
            {"mode": "incremental", "window_start": XCOM},
            'is not valid: expected None with mode="incremental"',
        ),
        (
            {"window_start": "2013-01-01T00:00:00Z"},
            "window_end=None is not valid: expected both ends of the window, or neither",
        ),
        (
            {"window_start": "2013-01-01T00:00:00Z", "window_end": "2013-01-01T00:00:00.0009Z"},
            "is not valid: expected a time after window_start='2013-01-01T00:00:00Z'",
        ),
        (
            {"mode": "incremental", "window_start": "2013-01-01T00:00:00Z"},
            'is not valid: expected None with mode="incremental"',
        ),
        ({"full_refresh": True}, "full_refresh=True is not valid: expected False"),
        ({"full_refresh": "True"}, "full_refresh=True is not valid: expected False"),
        ({"write": "replace"}, "write='replace' is not valid: expected \"append\" or Replace(where=…)"),
        ({"max_batches_per_run": 3}, "max_batches_per_run=3 is not valid: expected None"),
        (
            {"source": {"roots": "/in", "format": "csv", "starting_timestamp": "2013-01-01T00:00:00Z"}},
            "source.starting_timestamp='2013-01-01T00:00:00Z' is not valid: expected None",
        ),
        (
            {"source": {"roots": "/in", "format": "csv", "late_files": "skip"}},
            "source.late_files='skip' is not valid: expected 'ingest'",
        ),
        (
            {"engine": {"scope_conn_id": "adla_scope_default"}, "table": {"columns": {"a": "int"}}},
            "mode='data_interval' is not valid: expected 'incremental' with ScopeEngine",
        ),
    ],
)
def test_what_an_interval_cannot_do_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ingest_from(arguments(**changes))

    assert message in caught.value.what


@pytest.mark.parametrize(
    "changes",
    [
        {"write": {"kind": "replace", "where": "day = '{{ ds }}'"}},
        {"full_refresh": "{{ params.full }}"},
        {"source": {"roots": "/in", "format": "csv", "on_changed_file": "reload"}},
    ],
)
def test_what_an_interval_can_do_is_let_through(changes: dict[str, Any]) -> None:
    assert made(**changes).mode == "data_interval"


# ---- the log of an interval ----------------------------------------------------------------------


def a_log(storage: MemoryStorage, first: int, days: int = 1) -> IntervalLog:
    start = FIRST + first * DAY
    return IntervalLog(storage, "file:///t/_checkpoint", Window(start, start + days * DAY))


def test_an_interval_has_a_log_of_its_own_and_a_note_beside_it() -> None:
    storage = MemoryStorage()

    a_log(storage, 0).put_pipeline(Pipeline(pipeline="p", table=None))

    assert sorted(storage.control) == [
        f"file:///t/_checkpoint/intervals/{JANUARY_1}.json",
        f"file:///t/_checkpoint/intervals/{JANUARY_1}/pipeline.json",
    ]
    assert storage.control[f"file:///t/_checkpoint/intervals/{JANUARY_1}.json"] == (
        b'{"end":1357084800000,"format":1,"start":1356998400000}\n'
    )
    assert known_intervals(storage, "file:///t/_checkpoint") == [Window(FIRST, FIRST + DAY)]


def test_an_interval_has_no_derived_files() -> None:
    storage = MemoryStorage({"file:///t/_checkpoint/watermark.json": b"the table's"})
    audit = NoAuditFiles(a_log(storage, 0))

    assert (dict(audit.seen_files(Epoch())[0].items()), audit.log.watermark()) == ({}, None)


def test_the_watermark_begins_where_the_last_interval_ends() -> None:
    storage = MemoryStorage()
    check_beside_intervals(storage, "file:///t/_checkpoint", None, replaces_table=True)
    for day in (4, 1):
        a_log(storage, day).put_pipeline(Pipeline(pipeline="p", table=None))

    check_beside_intervals(storage, "file:///t/_checkpoint", FIRST + 5 * DAY, replaces_table=False)
    for start in (None, FIRST, FIRST + 5 * DAY - 1):
        with pytest.raises(InputError) as caught:
            check_beside_intervals(storage, "file:///t/_checkpoint", start, replaces_table=False)
        assert "set starting_timestamp='2013-01-06T00:00:00.000000+00:00'" in caught.value.do


@pytest.mark.parametrize(
    ("source", "advised"),
    [
        (FileSource(roots="/in"), "starting_timestamp="),
        (TableSource(table="/t", cursor=Cursor(column="at")), "cursor.initial_value="),
        (CdfSource(table="/t"), ""),
    ],
)
def test_only_a_field_that_the_source_has_is_advised_beside_intervals(source, advised) -> None:
    storage = MemoryStorage()
    a_log(storage, 1).put_pipeline(Pipeline(pipeline="p", table=None))

    with pytest.raises(InputError) as caught:
        check_beside_intervals(
            storage,
            "file:///t/_checkpoint",
            source.begins_ms,
            replaces_table=False,
            argument=source.begins_by,
        )

    named = [name for name in ("starting_timestamp=", "cursor.initial_value=") if name in caught.value.do]
    assert named == ([advised] if advised else [])
    assert "checkpoint of its own: checkpoint=Checkpoint(location=" in caught.value.do


def test_a_table_with_intervals_is_not_replaced_as_a_whole() -> None:
    storage = MemoryStorage()
    a_log(storage, 1).put_pipeline(Pipeline(pipeline="p", table=None))

    with pytest.raises(InputError, match="would delete the rows of its intervals"):
        check_beside_intervals(storage, "file:///t/_checkpoint", FIRST + 9 * DAY, replaces_table=True)


# ---- intervals of a table that was loaded otherwise ----------------------------------------------


def check_day(world: MemoryWorld, day: int) -> None:
    log = CheckpointLog(world.storage, f"{world.table}/_checkpoint")
    window = Window(NOW_MS - (day + 1) * DAY, NOW_MS - day * DAY)
    source = replace(world.source(world.log(), world.asked()[1]), window=window)
    source.check_not_loaded_before(log, world.audit_files(log))


def test_an_interval_whose_files_were_loaded_before_is_refused() -> None:
    world = MemoryWorld()
    for day in range(3):
        world.drop(str(day), day * 86_400 + 10)
    check_day(world, 1)
    world.run(starting_at_ms=NOW_MS - DAY - 1_000_000)

    check_day(world, 2)
    for day in (0, 1):
        with pytest.raises(InputError, match=": 1, such as file:///landing/"):
            check_day(world, day)


@pytest.mark.parametrize(
    ("initial_days", "more", "refused"),
    [
        ([None], {}, [1, 9]),
        ([5], {}, [9]),
        ([None, 5], {}, [1, 9]),  # once everything, then from a day on
        ([2, 5], {}, [9]),
        ([None, 5], {"refresh_start": 1}, [9]),
        ([None, 5], {"abandoned": 0}, [9]),
    ],
)
def test_an_interval_whose_rows_a_cursor_loaded_before_is_refused(
    initial_days: list[int | None], more: dict[str, int], refused: list[int]
) -> None:
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    for seq, day in enumerate(initial_days):
        first = day and f"timestamp:2013-01-{day:02}T00:00:00+00:00"
        before = '{"column":"at"}' if seq else None
        batch = CursorSlice(before, "at", first, None, "t", seq)
        log.put_offset(replace(an_entry(seq, slice=batch), refresh_start=more.get("refresh_start")))
    if "abandoned" in more:
        log.put_commit(a_commit(more["abandoned"], abandoned=True))

    def is_refused(day: int) -> bool:
        window = Window(FIRST + (day - 1) * DAY, FIRST + day * DAY)
        spec = TableSource(table="/s", cursor=Cursor(column="at"))
        source = CursorRows(spec=spec, log=a_log(log.storage, day - 1), window=window)
        try:
            source.check_not_loaded_before(log, NoAuditFiles(log))
        except InputError:
            return True
        return False

    assert [day for day in (1, 9) if is_refused(day)] == refused


def test_an_interval_whose_files_were_loaded_by_dbt_scope_is_refused() -> None:
    world = MemoryWorld()
    world.drop("1", 86_400 + 10)
    DbtScopeOnMemory(world).run()

    check_day(world, 2)
    with pytest.raises(InputError, match="by dbt-scope"):
        check_day(world, 1)


def test_of_two_intervals_that_share_time_and_begin_together_one_at_most_goes_on() -> None:
    storage = MemoryStorage()
    other = a_log(storage, 0, days=31)
    put = storage.put_if_absent

    def late(path: str, data: bytes) -> bytes:
        """Let the other one pass its first look before this one's note is there."""
        storage.put_if_absent = put  # type: ignore[method-assign]
        other.put_pipeline(Pipeline(pipeline="q", table=None))
        return put(path, data)

    storage.put_if_absent = late  # type: ignore[method-assign]
    with pytest.raises(InputError, match="overlaps"):
        a_log(storage, 3).put_pipeline(Pipeline(pipeline="p", table=None))

    assert other.pipeline()
    assert a_log(storage, 3).pipeline() is None
