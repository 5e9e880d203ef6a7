"""Windows and their names; what goes with ``mode="data_interval"``, and what would lose or double rows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pendulum
import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators import delta_ingest
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
from airflow_provider_scope.sources.files.discovery import candidates
from airflow_provider_scope.specs import CdfSource, Cursor, FileSource, TableSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, TEMPLATES, ingest_from
from airflow_provider_scope.values import CursorSlice, Window, milliseconds, overlapping, window_of
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support import values
from tests.support.dbt_scope import DbtScopeOnMemory
from tests.support.memory_engine import MemoryStorage
from tests.support.values import XCOM, a_commit, a_file, an_entry, below_in, rules

DAY = 86_400_000
FIRST_OF_2013 = 1_356_998_400_000


def at(hour: int, *, microsecond: int = 0) -> datetime:
    return datetime(2013, 1, 1, hour, microsecond=microsecond, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "name"),
    [
        (Window(FIRST_OF_2013, FIRST_OF_2013 + DAY), "20130101T000000000Z_20130102T000000000Z"),
        (Window(FIRST_OF_2013 + 1, FIRST_OF_2013 + 3_599_999), "20130101T000000001Z_20130101T005959999Z"),
        (Window(-1, 0), "19691231T235959999Z_19700101T000000000Z"),
        (Window(-62_135_596_800_000, 0), "00010101T000000000Z_19700101T000000000Z"),
    ],
)
def test_a_window_has_a_name_that_says_its_ends_to_the_millisecond(window: Window, name: str) -> None:
    assert window.name == name
    assert window_of(name) == window


@pytest.mark.parametrize(
    "name",
    [
        "",
        "20130101T000000000Z",
        "20130101T000000000Z_20130101T000000000Z",
        "20130102T000000000Z_20130101T000000000Z",
        "20131301T000000000Z_20140101T000000000Z",
        "20130101T000000000Z_20130102T000000000Z ",
        "2013-01-01_2013-01-02",
        "../20130101T000000000Z_20130102T000000000Z",
    ],
)
def test_another_text_is_no_window(name: str) -> None:
    assert window_of(name) is None


def test_a_window_holds_its_start_and_not_its_end() -> None:
    window = Window(10, 20)

    assert [moment in window for moment in (9, 10, 19, 20)] == [False, True, True, False]


def test_windows_overlap_if_a_file_can_be_in_both() -> None:
    window = Window(10, 20)

    assert overlapping(window, [Window(0, 10), Window(20, 30), window]) is None
    assert overlapping(window, [Window(25, 30), Window(19, 30), Window(0, 11)]) == Window(0, 11)
    assert overlapping(window, [Window(12, 13)]) == Window(12, 13)
    assert overlapping(window, [Window(0, 30)]) == Window(0, 30)


def test_times_are_rounded_down_so_that_neighbours_share_no_millisecond() -> None:
    assert milliseconds(at(0, microsecond=1_999)) == FIRST_OF_2013 + 1
    assert milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert milliseconds(at(0).astimezone(timezone(timedelta(hours=5)))) == FIRST_OF_2013
    assert milliseconds(pendulum.datetime(2013, 1, 1, microsecond=1_999)) == FIRST_OF_2013 + 1


# ---- which files it takes ------------------------------------------------------------------------


def test_files_of_the_interval_are_taken_and_the_others_are_counted_without_their_names() -> None:
    listing = [a_file("early", 9), a_file("start", 10), a_file("last", 19), a_file("end", 20)]

    results = candidates(listing, rules(window=Window(10, 20)))

    assert below_in(results.files) == ["start", "last"]
    assert results.left_out.counts == {"outside the interval": 2}
    assert results.left_out.names == {}
    assert results.matched == 4


def test_what_is_odd_about_a_file_is_told_by_the_run_of_its_own_interval() -> None:
    listing = [
        a_file("empty", 15, size_bytes=0),
        a_file("other empty", 25, size_bytes=0),
        a_file("_temporary/0", 15),
        a_file("_temporary/1", 25),
        a_file("_hidden", 25),
    ]

    results = candidates(listing, rules(window=Window(10, 20)), ["file:///in"])

    assert results.left_out.counts == {"zero length": 1, "hidden folder": 1, "outside the interval": 3}


def test_a_file_without_a_time_is_in_no_interval_and_every_run_names_it() -> None:
    results = candidates([a_file("undated", 0)], rules(window=Window(-10, 20)))

    assert results.left_out.names == {"no modification time": ["file:///in/undated"]}


# ---- which window a run has ----------------------------------------------------------------------


def test_a_run_loads_its_data_interval() -> None:
    context = {"data_interval_start": pendulum.datetime(2013, 1, 1, 1), "data_interval_end": at(2)}

    assert delta_ingest.window_of_run(context).name == "20130101T010000000Z_20130101T020000000Z"


def test_an_empty_data_interval_is_refused_with_the_schedule_to_write() -> None:
    with pytest.raises(InputError) as caught:
        delta_ingest.window_of_run({"data_interval_start": at(1), "data_interval_end": at(1)})

    assert "is empty: it begins and ends at 2013-01-01T01:00:00+00:00" in caught.value.what
    assert 'schedule=CronDataIntervalTimetable("@daily", timezone="UTC")' in caught.value.do


@pytest.mark.parametrize("context", [{}, {"data_interval_start": None, "data_interval_end": None}])
def test_a_run_without_a_data_interval_is_refused_with_the_arguments_to_give(context: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        delta_ingest.window_of_run(context)

    assert "has no data interval" in caught.value.what
    assert "window_start and window_end" in caught.value.do


@pytest.mark.parametrize(
    ("now", "buffer", "seconds"),
    [
        (20_000, 0, 0),
        (19_500, 0, 0.5),
        (20_000, 30, 30),
        (21_500, 30, 28.5),
        (50_000, 30, 0),
        (90_000, 30, 0),
        (-40_000, 30, 90),
    ],
)
def test_a_run_begins_when_every_file_of_its_window_is_old_enough(
    now: int, buffer: float, seconds: float
) -> None:
    assert delta_ingest.seconds_until_over(Window(0, 20_000), buffer, now) == seconds


def test_a_window_that_ends_in_the_future_is_refused() -> None:
    with pytest.raises(InputError, match=r"ends at 1970-01-01T00:00:20.000000\+00:00, in the future"):
        delta_ingest.seconds_until_over(Window(0, 20_000), 0, -40_001)


# ---- what goes with it -------------------------------------------------------------------------------


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
            {"source": {"table": "/s", "cursor": {"column": "at", "last_value_func": "min"}}},
            "source.cursor.last_value_func='min' is not valid: expected 'max'",
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
        (
            TableSource(
                table="/t",
                cursor=Cursor(column="at", last_value_func="min", initial_value="2013-01-09T00:00:00Z"),
            ),
            "",
        ),
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


@pytest.mark.parametrize(("hour", "first"), [(0, 3), (1, 3), (23, 3)])
def test_dates_go_on_at_that_of_the_end_of_the_last_interval(hour: int, first: int) -> None:
    """An interval that ends within a day has its date for the end of the dates, which it does not take."""
    storage = MemoryStorage()
    end = FIRST_OF_2013 + 2 * DAY + hour * 3_600_000
    log = IntervalLog(storage, "file:///t/_checkpoint", Window(end - DAY, end))
    log.put_pipeline(Pipeline(pipeline="p", table=None))
    for day in (1, 2, 3, 4):
        spec = TableSource(table="/t", cursor=Cursor(column="at", initial_value=date(2013, 1, day)))
        if day >= first:
            check_beside_intervals(storage, log.checkpoint, spec.begins_ms, replaces_table=False)
            continue
        with pytest.raises(InputError, match="would be loaded twice") as caught:
            check_beside_intervals(
                storage, log.checkpoint, spec.begins_ms, replaces_table=False, argument=spec.begins_by
            )
        assert "without quotes; of dates, datetime.date(2013, 1, 3); of text, '2013-01-03T" in caught.value.do


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


def is_refused(log: CheckpointLog, day: int, hour: int = 0) -> bool:
    """Return whether an interval of a day from an hour on may not begin beside this log."""
    begin = FIRST_OF_2013 + (day - 1) * DAY + hour * DAY // 24
    spec = TableSource(table="/s", cursor=Cursor(column="at"))
    source = CursorRows(spec=spec, log=a_log(log.storage, day - 1), window=Window(begin, begin + DAY))
    try:
        source.check_not_loaded_before(log, NoAuditFiles(log))
    except InputError as err:
        return "were loaded before" in err.what
    return False


@pytest.mark.parametrize(
    ("initial_days", "more", "refused"),
    [
        ([None], {}, [1, 9]),
        ([5], {}, [9]),
        ([None, 5], {}, [1, 9]),  # once everything, then from a day on
        ([2, 5], {}, [9]),
        ([None, 5], {"overwrite_start": 1, "refresh_start": 1}, [9]),
        ([None, 5], {"refresh_start": 1}, [1, 9]),  # a part was replaced, and the other rows are there
        ([None, 5], {"abandoned": 0}, [9]),
        ([5, 5], {"func": "min"}, [1, 9]),
        ([5], {"func": "min", "committed": 0}, [1, 9]),
    ],
)
def test_an_interval_whose_rows_a_cursor_loaded_before_is_refused(
    initial_days: list[int | None], more: dict[str, Any], refused: list[int]
) -> None:
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    state = json.dumps({"column": "at", "func": more.get("func", "max")})
    for seq, day in enumerate(initial_days):
        first = day and f"timestamp:2013-01-{day:02}T00:00:00+00:00"
        before = state if seq else None
        batch = CursorSlice(before, "at", first, None, "t", seq)
        starts = {name: more.get(name) for name in ("refresh_start", "overwrite_start")}
        log.put_offset(replace(an_entry(seq, slice=batch), **starts))
    if "committed" in more:
        log.put_commit(a_commit(more["committed"], state=state))
    if "abandoned" in more:
        log.put_commit(a_commit(more["abandoned"], abandoned=True))

    assert [day for day in (1, 9) if is_refused(log, day)] == refused


@pytest.mark.parametrize(
    ("first", "end", "refused"),
    [
        ("timestamp:2013-01-02T00:00:00+00:00", "timestamp:2013-01-05T00:00:00+00:00", [2, 4]),
        ("timestamp:2013-01-02T00:00:00+00:00", "closed timestamp:2013-01-05T00:00:00+00:00", [2, 4, 5]),
        ("date:2013-01-02", "date:2013-01-05", [2, 4]),
        ("date:2013-01-02", "closed date:2013-01-05", [2, 4, 5]),
        ("number:1357084800", "number:1357344000", [2, 4]),
        (
            "timestamp:2013-01-05T00:00:00+00:00",
            "timestamp:2013-01-02T00:00:00+00:00",
            [2, 4, 5],
        ),  # downwards
        ("text:b", "text:c", [1, 2, 4, 5, 6]),  # which is not known
    ],
)
def test_an_interval_beside_ranges_of_a_cursor_shares_no_time_with_them(
    first: str, end: str, refused: list[int]
) -> None:
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    log.put_offset(an_entry(0, slice=CursorSlice(None, "at", first, end, None, None)))

    assert [day for day in (1, 2, 4, 5, 6) if is_refused(log, day)] == refused


@pytest.mark.parametrize(
    ("column", "first", "end", "begins_hour", "refused"),
    [
        # The interval becomes the dates of its ends, so that it has all rows of the 5th.
        ("at", "text:2013-01-02", "closed text:2013-01-05", 5, True),
        ("at", "text:2013-01-02T00:00:00", "text:2013-01-05T05:00:00", 5, False),
        ("at", "text:2013-01-02", "text:2013-01-05", 0, False),
        # Rows of one time by another column may be of this one.
        ("ordered_at", "timestamp:2012-01-02T00:00:00+00:00", "timestamp:2012-01-05T00:00:00+00:00", 0, True),
        ("AT", "timestamp:2012-01-02T00:00:00+00:00", "timestamp:2012-01-05T00:00:00+00:00", 0, False),
    ],
)
def test_a_range_tells_what_it_shares_with_an_interval_if_both_are_of_one_column_and_type(
    column: str, first: str, end: str, begins_hour: int, *, refused: bool
) -> None:
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    log.put_offset(an_entry(0, slice=CursorSlice(None, column, first, end, None, None)))

    assert is_refused(log, 5, begins_hour) == refused


def test_an_interval_whose_files_were_loaded_by_dbt_scope_is_refused() -> None:
    world = MemoryWorld()
    world.drop("1", 86_400 + 10)
    DbtScopeOnMemory(world).run()

    check_day(world, 2)
    with pytest.raises(InputError, match="by dbt-scope"):
        check_day(world, 1)


def test_of_two_intervals_that_share_time_and_begin_together_one_at_most_goes_on() -> None:
    storage = MemoryStorage()
    competitor = a_log(storage, 0, days=31)
    put = storage.put_if_absent

    def late(path: str, data: bytes) -> bytes:
        """Let the other one pass its first look before this one's note is there."""
        storage.put_if_absent = put  # type: ignore[method-assign]
        competitor.put_pipeline(Pipeline(pipeline="q", table=None))
        return put(path, data)

    storage.put_if_absent = late  # type: ignore[method-assign]
    with pytest.raises(InputError, match="overlaps"):
        a_log(storage, 3).put_pipeline(Pipeline(pipeline="p", table=None))

    assert competitor.pipeline()
    assert a_log(storage, 3).pipeline() is None
