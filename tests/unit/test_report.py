"""What a run says of itself, and how much of a batch is in the quarantine, as people read it."""

from __future__ import annotations

import json
import os
from typing import Any, get_args

import pytest

from airflow_provider_scope.protocol import bad_records
from airflow_provider_scope.protocol.bad_records import Quarantined
from airflow_provider_scope.protocol.report import BatchReport, RunReport, files_text
from airflow_provider_scope.protocol.seen import Reason, Tally
from airflow_provider_scope.values import FileEntry
from tests.support.values import a_commit, a_file, a_report

# 2026-04-01 12:34:56.789 UTC
TIME_MS = 1_775_046_896_789


def a_batch(seq: int, **kwargs: Any) -> BatchReport:
    of_report = {name: kwargs.pop(name) for name in ("slice_text", "already_there") if name in kwargs}
    defaults = {"files": 2, "size_bytes": 1_500, "rows": 1_000}
    mode = kwargs.pop("mode", "append")
    return BatchReport(a_commit(seq, **{**defaults, **kwargs}), mode, **of_report)


# ---- sums -------------------------------------------------------------------------------------------


def test_sums_leave_out_abandoned_batches_and_rows_are_unknown_if_those_of_one_are() -> None:
    batches = [a_batch(3), a_batch(4, rows=None, abandoned=True), a_batch(5, files=1, size_bytes=1, rows=0)]
    report, empty = a_report(batches=batches), a_report()

    assert (report.files, report.size_bytes, report.rows) == (3, 1_501, 1_000)
    assert (empty.files, empty.size_bytes, empty.rows) == (0, 0, 0)
    assert a_report(batches=[*batches, a_batch(6, rows=None)]).rows is None


# ---- nothing loaded ---------------------------------------------------------------------------------


@pytest.mark.parametrize("modified_ms", [253_402_300_799_999, 10**15])
def test_a_file_that_is_dated_after_the_last_year_fails_no_report(modified_ms: int) -> None:
    file = a_file("future.csv", modified_ms)
    report = a_report(listed=1, matched=1, newest=file, safety_buffer_seconds=60)

    report.left_out.hold("too young", file)

    assert report.why_nothing() == (
        "0 new files: the newest of 1 files in file:///in is future.csv (9999-12-31T23:59:59Z); "
        "1 held back by safety_buffer_seconds=60 (taken from 9999-12-31T23:59:59Z on)"
    )


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param(
            a_report(roots=("file:///in", "file:///more"), listed=0, matched=0),
            "0 files: file:///in, file:///more holds no file",
            id="no file",
        ),
        pytest.param(
            a_report(listed=1_200, matched=0),
            "0 files: none of the 1,200 files in file:///in matches the patterns",
            id="no match",
        ),
        pytest.param(
            a_report(listed=3, matched=0, unmatched=("a.tsv", "b.tsv"), patterns=(r"\.csv$", r"\.txt$")),
            "0 files: none of the 3 files in file:///in, such as a.tsv, b.tsv, matches the patterns "
            r"\.csv$ \.txt$",
            id="no match, with names",
        ),
        pytest.param(
            a_report(newest=a_file("x/a.csv", TIME_MS), already_loaded=2),
            "0 new files: the newest of 2 files in file:///in is a.csv (2026-04-01T12:34:56Z); "
            "2 were loaded before",
            id="all loaded",
        ),
        pytest.param(
            a_report(
                newest=a_file("a.csv", TIME_MS),
                matched=1_006,
                already_loaded=1_000,
                left_out=Tally(
                    {"too young": 3, "zero length": 1, "hidden name": 2},
                    times={"too young": (TIME_MS, TIME_MS + 60_000)},
                ),
                safety_buffer_seconds=30.0,
            ),
            "0 new files: the newest of 1,006 files in file:///in is a.csv (2026-04-01T12:34:56Z); "
            "1,000 were loaded before, 2 left out: hidden name, "
            "3 held back by safety_buffer_seconds=30 (the first is taken from 2026-04-01T12:35:27Z on, the "
            "last from 2026-04-01T12:36:27Z on), "
            "1 left out: zero length",
            id="every reason",
        ),
        pytest.param(
            a_report(
                newest=FileEntry(TIME_MS, os.fsdecode(b"file:///in/\xff.csv"), 1),
                matched=1,
                left_out=Tally({"unreadable name": 1}),
            ),
            "0 new files: the newest of 1 files in file:///in is \\udcff.csv (2026-04-01T12:34:56Z); "
            "1 left out: unreadable name",
            id="a name that is not UTF-8",
        ),
    ],
)
def test_zero_files_says_why(report: RunReport, expected: str) -> None:
    assert report.why_nothing() == expected
    assert report.text().split("\n")[0] == expected
    assert report.to_xcom()["why"] == expected


# ---- the text ---------------------------------------------------------------------------------------


def line(seq: int, mode: str, numbers: str, note: str) -> str:
    return f"      {seq}  {mode:9} {numbers}  {note}"


def test_the_report_is_a_readable_table() -> None:
    report = a_report(
        batches=[
            a_batch(3, files=50, size_bytes=1_234_567, rows=1_000_000, already_there=True),
            a_batch(4, mode="overwrite", rows=None),
            a_batch(5, rows=None, abandoned=True),
        ],
        left_out=Tally(
            {"too young": 25, "loaded before, or late": 7},
            {"too young": ["file:///in/a", "file:///in/b"]},
            {"too young": (TIME_MS, TIME_MS)},
        ),
        superseded=(1, 2),
        pending_files=1_500,
        table_version=6,
        watermark_ms=TIME_MS,
        safety_buffer_seconds=1.5,
    )

    assert report.text().split("\n") == [
        "  batch  mode        files           bytes          rows  version",
        line(
            3,
            "append",
            "     50       1,234,567     1,000,000        4",
            "was in the table already; recorded now",
        ),
        "      4  overwrite       2           1,500             ?        5",
        line(
            5, "append", "      2           1,500             ?        6", "abandoned: its files count as new"
        ),
        "  total                 52       1,236,067             ?        6",
        "superseded by a full refresh: batches 1, 2",
        "left for the next run (max_batches_per_run): 1,500 files",
        "not loaded, 7 left out: loaded before, or late",
        "not loaded, 25 held back by safety_buffer_seconds=1.5 (taken from 2026-04-01T12:34:59Z on)",
        "    file:///in/a",
        "    file:///in/b",
        "watermark: 2026-04-01T12:34:56.789000+00:00",
    ]


def test_the_total_of_a_table_at_version_zero_shows_it() -> None:
    lines = a_report(batches=[a_batch(0, table_version=0)], table_version=0).text().split("\n")

    assert lines[2] == "  total                  2           1,500         1,000        0"


def test_a_source_without_files_has_no_columns_for_them() -> None:
    feed = a_batch(3, files=0, slice_text="changes of version 4")
    database = a_batch(4, files=0, size_bytes=0, slice_text="id from 7", already_there=True)
    report = a_report(batches=[feed], table_version=4)
    of_database = a_report(batches=[database], table_version=5)

    assert report.text().split("\n")[:3] == [
        "  batch  mode                bytes          rows  version",
        "      3  append              1,500         1,000        4  changes of version 4",
        "  total                      1,500         1,000        4",
    ]
    assert of_database.text().split("\n")[:3] == [
        "  batch  mode               rows  version",
        "      4  append            1,000        5  id from 7; was in the table already; recorded now",
        "  total                    1,000        5",
    ]


# ---- XCom -------------------------------------------------------------------------------------------


def test_xcom_holds_these_keys() -> None:
    report = a_report(
        batches=[a_batch(3, already_there=True), a_batch(4)],
        left_out=Tally({"zero length": 1}, {"zero length": ["file:///in/empty.csv"]}),
        superseded=(1, 2),
        pending_files=9,
        table_version=5,
        watermark_ms=TIME_MS,
    )

    assert report.to_xcom() == {
        "batches": 2,
        "files": 4,
        "rows": 2_000,
        "bytes": 3_000,
        "first_batch": 3,
        "last_batch": 4,
        "already_in_table": [3],
        "superseded": [1, 2],
        "pending_files": 9,
        "quarantined": {},
        "warned": {},
        "rescued": {},
        "changes": {},
        "left_out": {"zero length": 1},
        "warnings": [],
        "left_out_names": {"zero length": ["file:///in/empty.csv"]},
        "table_version": 5,
        "watermark": "2026-04-01T12:34:56.789000+00:00",
    }


def test_xcom_of_a_run_that_found_no_table() -> None:
    value = a_report(listed=0, matched=0).to_xcom()

    assert value.pop("why") == "0 files: file:///in holds no file"
    assert {name for name, fact in value.items() if fact is None} == {
        "first_batch",
        "last_batch",
        "table_version",
        "watermark",
    }
    assert not any(value.values())


def long_names(length: int, letter: str) -> Tally:
    return Tally(
        dict.fromkeys(get_args(Reason), 10**6),
        {reason: [f"{letter * length}{n:02}" for n in range(20)] for reason in get_args(Reason)},
    )


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", '"', "\n"])
def test_xcom_stays_below_its_limit_with_long_names_of_every_reason(letter: str) -> None:
    report = a_report(
        batches=[a_batch(10**15 + n, already_there=True) for n in range(1_000)],
        superseded=tuple(range(10**15, 10**15 + 1_000)),
        left_out=long_names(1_000, letter),
        watermark_ms=TIME_MS,
    )

    value = report.to_xcom()

    assert len(json.dumps(value)) <= 4_096
    assert value["left_out"] == dict.fromkeys(get_args(Reason), 10**6)
    assert value["batches"] == 1_000


def test_xcom_keeps_as_many_names_as_fit() -> None:
    value = a_report(left_out=long_names(20, "x"), newest=a_file("a")).to_xcom()

    assert 4_000 < len(json.dumps(value)) <= 4_096
    assert all(len(names) > 5 for names in value["left_out_names"].values())


def test_shortening_for_xcom_leaves_the_report_as_it_is() -> None:
    report = a_report(left_out=long_names(1_000, "x"), newest=a_file("a"))
    report.to_xcom()

    assert {len(names) for names in report.left_out.names.values()} == {20}


@pytest.mark.parametrize("letter", ["x", "й", "\U0001f600"])
def test_xcom_stays_below_its_limit_with_long_folders_and_nothing_loaded(letter: str) -> None:
    roots = tuple(f"file:///{letter * 60}{n:02}" for n in range(20))

    value = a_report(roots=roots, listed=0, matched=0).to_xcom()

    assert len(json.dumps(value)) <= 4_096
    assert value["why"].startswith(f"0 files: {roots[0]}, ")


@pytest.mark.parametrize("counts", ["quarantined", "rescued"])
def test_xcom_stays_below_its_limit_with_rules_in_another_script(counts: str) -> None:
    names = {f"列{n}{'名' * 98}": 20 - n for n in range(10)}
    value = {"quarantined": {"records": Quarantined(1_000, names)}, "rescued": names}[counts]
    batch = BatchReport(a_commit(0, **{counts: value}), "append")

    xcom = RunReport(roots=("/in",), batches=[batch]).to_xcom()

    assert 3_000 < len(json.dumps(xcom)) <= 4_096
    assert next(iter(names)) in str(xcom)
    if counts == "quarantined":
        assert sum(xcom["quarantined"]["records"]["rules"].values()) == sum(names.values())


def test_the_files_of_a_batch_are_shown_with_their_bytes_the_largest_first():
    files = [FileEntry(1, "adl://a/in/small.ss", 20), FileEntry(2, "adl://a/in/large.ss", 1_234_567)]
    assert files_text(files).splitlines() == [
        "          bytes  file",
        "      1,234,567  adl://a/in/large.ss",
        "             20  adl://a/in/small.ss",
        "      1,234,587  total of 2",
    ]


@pytest.mark.parametrize(
    ("batches", "is_nothing"),
    [
        ([], True),
        ([{"files": 0, "rows": 0}], True),
        ([{"files": 3, "rows": 5, "abandoned": True}], True),
        ([{"files": 1, "rows": 0}], False),
        ([{"files": 0, "rows": 1}], False),
        ([{"files": 0, "rows": None}], False),
        ([{"files": 0, "rows": 0, "mode": "overwrite"}], False),
        ([{"files": 0, "rows": 0, "changes": {"inserted": 0, "deleted": 1}}], False),
        ([{"files": 0, "rows": 0}, {"files": 0, "rows": 1}], False),
    ],
)
def test_a_run_that_left_the_table_as_it_was_loaded_nothing(
    batches: list[dict[str, Any]], *, is_nothing: bool
) -> None:
    report = RunReport(roots=(), batches=[a_batch(seq, **fields) for seq, fields in enumerate(batches)])
    assert report.loaded_nothing is is_nothing


# ---- the quarantine ----------------------------------------------------------------------------------


def test_units_are_told_in_one_order_whether_a_run_counted_them_or_a_record_of_the_log_has_them() -> None:
    counted = {
        "records": Quarantined(3, {"°C is not int": 1}),
        "rows": Quarantined(2, {"on earth": 1}),
        "files": Quarantined(2, {"it cannot be read": 1}),
    }
    logged = {unit: counted[unit] for unit in sorted(counted)}

    text = "1 of 3 records, 1 of 2 rows, 1 of 2 files"
    assert (bad_records.text(counted), bad_records.text(logged)) == (text, text)


@pytest.mark.parametrize(
    ("most", "share", "limit"),
    [
        (None, None, None),
        (3, 0.5, None),
        (2, None, "max_bad_records=2"),
        (None, 0.4, "max_bad_share=0.4"),
        (3, 0, "max_bad_share=0"),
        (0, 0, "max_bad_records=0"),
    ],
)
def test_the_limit_that_a_batch_exceeds_is_told_as_it_was_written(
    most: int | None, share: float | None, limit: str | None
) -> None:
    counts = {
        "records": Quarantined(4, {"nr is not int": 1}),
        "rows": Quarantined(3, {"positive": 1}),
        "files": Quarantined(2, {"it cannot be read": 1}),
    }

    assert bad_records.exceeded(counts, most, share) == limit


def test_names_that_begin_alike_count_together_in_xcom() -> None:
    long = "x" * 100
    rules = {"rows": Quarantined(9, {f"{long}1": 2, f"{long}2": 3})}
    batch = a_batch(0, quarantined=rules, rescued={f"{long}1": 4, f"{long}2": 5})

    value = a_report(batches=[batch]).to_xcom()

    assert value["quarantined"]["rows"]["rules"] == {long: 5}
    assert value["rescued"] == {long: 9}
