"""When a change feed may be lost before it is loaded."""

from __future__ import annotations

import json

import pytest

from airflow_provider_scope.protocol.report import XCOM_LIMIT_BYTES, RunReport
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.state import Metadata, SourceCommit

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
T = "file:///data/orders"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", 7 * DAY),
        ("interval 1 week", 7 * DAY),
        ("interval 30 day", 30 * DAY),
        ("7 days", 7 * DAY),
        ("INTERVAL 2 Weeks", 14 * DAY),
        ("  interval   168   hours  ", 7 * DAY),
        ("interval 1 week 12 hours", 7 * DAY + 12 * HOUR),
        ("interval 1 day -1 hour", 23 * HOUR),
        ("interval 1 day - 1 hour", 23 * HOUR),
        ("interval +90 minutes", 90 * MINUTE),
        ("interval 1.5 seconds", 1_500),
        ("interval .5 second", 500),
        ("interval 1500 milliseconds", 1_500),
        ("interval 2000 microseconds", 2),
        ("interval 0 hours", 0),
        ("interval 1\tday", DAY),
        ("interval -1 day 2 days", DAY),
        ("interval 1. seconds", SECOND),
    ],
)
def test_an_interval_is_read_as_delta_spells_it(text: str, expected: int) -> None:
    assert feed_state.interval_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "interval 7",
        "7",
        "days",
        "interval7 days",
        "interval 7days",
        "interval 1.5 days",
        "interval 1 month",
        "interval 1 year",
        "interval -1 day",
        "interval 7 days and 1 hour",
        "interval seven days",
        "interval '7' days",
        "P7D",
        "interval 7 fortnights",
        "interval 99999999999 days",
        "interval\t1 day",
        "interval 1.0000000001 seconds",
        f"interval {'9' * 400} days",
    ],
)
def test_what_delta_does_not_take_for_an_interval_is_none(text: str) -> None:
    assert feed_state.interval_ms(text) is None


def behind(age_ms: int | None) -> feed_state.Lag:
    oldest = None if age_ms is None else NOW - age_ms
    return feed_state.Lag(commits=3, size_bytes=10, version=5, oldest_ms=oldest)


@pytest.mark.parametrize(
    ("age_ms", "kept", "words"),
    [
        (84 * HOUR, {}, ""),  # half of 7 days: not yet
        (
            84 * HOUR + SECOND,
            {},
            f"version 5 of {T} is 3 d 12 h old and not loaded. At 7 d ({feed_state.FILES}) VACUUM may delete",
        ),
        (7 * DAY, {}, "At 7 d (delta.deletedFileRetentionDuration)"),
        (
            7 * DAY + MINUTE,
            {},
            "is 7 d old and not loaded, which is beyond delta.deletedFileRetentionDuration (7 d): VACUUM may",
        ),
        (
            2 * HOUR,
            {feed_state.LOG: "interval 3 hours"},
            f"At 3 h ({feed_state.LOG}) the source's log may lose",
        ),
        (4 * HOUR, {feed_state.LOG: "interval 3 hours"}, "beyond delta.logRetentionDuration (3 h)"),
        (16 * DAY, {feed_state.FILES: "interval 60 days"}, "At 30 d (delta.logRetentionDuration)"),
        (
            5 * HOUR,
            {feed_state.FILES: "6 hours", feed_state.LOG: "6 hours"},
            "At 6 h (delta.deletedFileRetentionDuration)",
        ),
        (MINUTE, {feed_state.FILES: "interval 0 hours"}, "beyond delta.deletedFileRetentionDuration (0 s)"),
        (None, {}, ""),  # no commit says when it was made
        (-HOUR, {}, ""),  # a clock that is behind
    ],
)
def test_half_of_the_shorter_time_is_warned_of(age_ms: int | None, kept: dict[str, str], words: str) -> None:
    said = feed_state.lag_warning(T, behind(age_ms), kept, NOW)

    assert words in said
    assert bool(said) == bool(words)


def test_a_setting_that_is_no_interval_is_named_and_the_other_one_counts() -> None:
    said = feed_state.lag_warning(T, behind(29 * DAY), {feed_state.FILES: "a week"}, NOW)

    assert said.startswith(f"delta.deletedFileRetentionDuration of {T} is 'a week', which is not an interval")
    assert "At 30 d (delta.logRetentionDuration)" in said
    both = feed_state.lag_warning(
        T, behind(99 * DAY), {feed_state.FILES: "a week", feed_state.LOG: "interval 1 month"}, NOW
    )
    assert both.count("which is not an interval") == 2
    assert "days" not in both
    assert "99 d" not in both


def test_nothing_is_said_where_nothing_is_left() -> None:
    assert feed_state.lag_warning(T, None, {feed_state.FILES: "a week"}, NOW) == ""
    assert feed_state.lag_of([]) is None


def test_a_lag_counts_commits_and_bytes_and_takes_the_oldest_time_that_is_told() -> None:
    found = [
        SourceCommit(version=3, size_bytes=5),
        SourceCommit(version=4, time_ms=NOW, size_bytes=7),
        SourceCommit(version=5, time_ms=NOW + 1),
    ]

    assert feed_state.lag_of(found) == feed_state.Lag(commits=3, size_bytes=12, version=3, oldest_ms=NOW)


def test_the_source_tells_how_long_it_keeps_things_in_any_case_of_its_names() -> None:
    configuration = {"delta.LOGretentionDuration": "interval 1 day", "other": "x"}
    found = Metadata.of(
        {"id": "t", "configuration": configuration, "schemaString": json.dumps({"fields": []})}
    )

    assert found.kept == {feed_state.LOG: "interval 1 day"}


def test_warnings_are_told_once_each_and_fit_into_xcom() -> None:
    report = RunReport(roots=(T,), warnings={"a": "é" * 3000, "b": "two", "c": "two"})

    assert report.text().count("warning: two") == 1
    assert len(json.dumps(report.to_xcom())) <= XCOM_LIMIT_BYTES
    report = RunReport(roots=(T,), warnings={"b": "two", "c": "two"})
    assert report.to_xcom()["warnings"] == ["two"]
