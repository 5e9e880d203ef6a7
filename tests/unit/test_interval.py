"""Windows and their names; which window a run has, and when it may begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pendulum
import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators import delta_ingest
from airflow_provider_scope.sources.files.discovery import candidates
from airflow_provider_scope.values import Window, milliseconds, overlapping, window_of
from tests.support.values import a_file, below_in, rules

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

    found = candidates(listing, rules(window=Window(10, 20)))

    assert below_in(found.files) == ["start", "last"]
    assert found.left_out.counts == {"outside the interval": 2}
    assert found.left_out.names == {}
    assert found.matched == 4


def test_what_is_odd_about_a_file_is_told_by_the_run_of_its_own_interval() -> None:
    listing = [
        a_file("empty", 15, size_bytes=0),
        a_file("other empty", 25, size_bytes=0),
        a_file("_temporary/0", 15),
        a_file("_temporary/1", 25),
        a_file("_hidden", 25),
    ]

    found = candidates(listing, rules(window=Window(10, 20)), ["file:///in"])

    assert found.left_out.counts == {"zero length": 1, "hidden folder": 1, "outside the interval": 3}


def test_a_file_without_a_time_is_in_no_interval_and_every_run_names_it() -> None:
    found = candidates([a_file("undated", 0)], rules(window=Window(-10, 20)))

    assert found.left_out.names == {"no modification time": ["file:///in/undated"]}


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
