"""Which files of a listing are results, and which of them a run takes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError, SourceFileChangedError
from airflow_provider_scope.protocol.seen import History, Tally
from airflow_provider_scope.sources.files.discovery import (
    candidates,
    is_hidden,
    new_candidates,
    next_batch,
    not_loaded_again,
    unseen,
)
from airflow_provider_scope.sources.files.source import refuse_tables
from airflow_provider_scope.values import FileEntry, Position
from tests.support.values import a_file, below_in, rules

# ---- one file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("a.parquet", False),
        (".a.parquet", True),
        ("_a.parquet", True),
        ("_SUCCESS", True),
        ("_day=1.parquet", False),
        (".day=1.parquet", True),
        ("a_.parquet", False),
        ("a.parquet._COPYING_", True),
        ("a._copying_", False),
        ("a._COPYING_.parquet", False),
        ("_metadata", True),
        ("_common_metadata", True),
        ("_metadata=1.parquet", True),
        ("_common_metadata=1.parquet", True),
        ("metadata.parquet", False),
    ],
)
def test_a_name_is_hidden_if_spark_reads_no_rows_from_such_a_file(name: str, hidden: bool) -> None:
    assert is_hidden(name) is hidden


@pytest.mark.parametrize(
    ("path", "roots", "reason"),
    [
        ("file:///in/_temporary/0/a.csv", ("file:///in",), "hidden folder"),
        ("file:///in/day/.staging/a.csv", ("file:///in",), "hidden folder"),
        ("file:///in/_day=1/a.csv", ("file:///in",), None),
        ("file:///_in/a.csv", ("file:///_in",), None),
        ("file:///in/_raw/a.csv", ("file:///in", "file:///in/_raw"), None),
        ("file:///in/_raw/_b/a.csv", ("file:///in", "file:///in/_raw"), "hidden folder"),
    ],
)
def test_files_in_a_hidden_folder_below_all_their_roots_are_not_complete_yet(path, roots, reason):
    results = candidates([FileEntry(1_000, path, 10)], rules(), roots)

    assert [file.path for file in results.files] == ([] if reason else [path])
    assert results.left_out.names == ({reason: [path]} if reason else {})


@pytest.mark.parametrize(
    "pick", [candidates, lambda listing, rules, roots: new_candidates(listing, rules, roots, History())]
)
@pytest.mark.parametrize("table", ["file:///in", "file:///in/table"])
def test_new_data_files_of_a_delta_table_are_refused(pick: Any, table: str) -> None:
    """OPTIMIZE of a folder that became a table would double its rows."""
    log = FileEntry(1_000, f"{table}/_delta_log/00000000000000000000.json", 10)
    beside = [FileEntry(1_000, f"{table}/a.csv", 10), FileEntry(1_000, "file:///in/table2/b.parquet", 10)]
    data = FileEntry(1_000, f"{table}/day=1/part-0.parquet", 10)

    if table != "file:///in":
        refuse_tables(pick([*beside, log], rules(), ("file:///in",)))
    with pytest.raises(InputError, match=f"is a data file of the Delta table {table}: OPTIMIZE"):
        refuse_tables(pick([data, *beside, log], rules(), ("file:///in",)))


@pytest.mark.parametrize(
    ("file", "settings", "reason"),
    [
        pytest.param(a_file("a.csv"), {}, None, id="plain"),
        pytest.param(a_file("_a.csv"), {}, "hidden name", id="hidden"),
        pytest.param(a_file("_tmp/a.csv"), {}, None, id="in a folder with a hidden name"),
        pytest.param(a_file("10:30.csv"), {}, "unreadable name", id="colon in the name"),
        pytest.param(
            FileEntry(1_000, os.fsdecode(b"file:///in/\xff/a.csv"), 10),
            {},
            "unreadable name",
            id="in a folder that is not UTF-8",
        ),
        pytest.param(a_file("café \u2028\n%20.csv"), {}, None, id="unusual but readable"),
        pytest.param(a_file("a.zip"), {}, None, id="of a format that has no names for compression"),
        pytest.param(
            a_file("a.zip"), {"is_text": True}, "archive or unreadable compression", id="an archive of texts"
        ),
        pytest.param(a_file("a.csv.gz"), {"is_text": True}, None, id="a compressed text"),
        pytest.param(a_file("a.csv", modified_ms=0), {}, "no modification time", id="no time"),
        pytest.param(a_file("a.csv", modified_ms=-5), {}, "no modification time", id="before 1970"),
        pytest.param(a_file("a.csv", modified_ms=1), {}, None, id="the smallest time"),
        pytest.param(a_file("a.csv", size_bytes=0), {}, "zero length", id="empty"),
        pytest.param(a_file("a.csv", size_bytes=1), {}, None, id="one byte"),
        pytest.param(a_file("a.csv", 5_001), {"young_after_ms": 5_000}, "too young", id="too young"),
        pytest.param(a_file("a.csv", 5_000), {"young_after_ms": 5_000}, None, id="just old enough"),
        pytest.param(
            a_file("a.csv", 4_999),
            {"starting_at_ms": 5_000},
            "before starting_timestamp",
            id="before the start",
        ),
        pytest.param(a_file("a.csv", 5_000), {"starting_at_ms": 5_000}, None, id="at the start"),
    ],
)
def test_a_matching_file_is_a_candidate_or_left_out_with_its_reason(
    file: FileEntry, settings: dict[str, Any], reason: str | None
) -> None:
    results = candidates([file], rules(**settings))

    assert results.files == ((file,) if reason is None else ())
    assert results.left_out.counts == ({} if reason is None else {reason: 1})
    assert (results.listed, results.matched, results.newest) == (1, 1, file)


def test_a_name_that_is_not_utf8_is_reported_as_text_that_can_be_written() -> None:
    results = candidates([FileEntry(1_000, os.fsdecode(b"file:///in/caf\xe9.csv"), 10)], rules())

    assert results.left_out.names == {"unreadable name": ["file:///in/caf\\udce9.csv"]}


def test_only_the_first_reason_of_a_file_is_counted() -> None:
    results = candidates([a_file("_a.csv", modified_ms=0, size_bytes=0)], rules())

    assert results.left_out.counts == {"hidden name": 1}


# ---- patterns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((r".*\.csv$",), ["a.csv", "csv/b.csv"]),
        (("csv",), ["a.csv", "c.csv.gz", "csv/b.csv"]),
        ((r"^a",), ["a.csv", "a.json"]),
        ((r"^a", r"\.gz$"), ["a.csv", "a.json", "c.csv.gz"]),
        ((r"\.csv$", r"^a\.csv"), ["a.csv", "csv/b.csv"]),
        (("csv/",), []),
        (("in",), []),
        ((r"(?i)\.JSON$",), ["a.json", "csv/d.json"]),
    ],
)
def test_patterns_are_searched_in_the_name_and_one_match_is_enough(
    patterns: tuple[str, ...], expected: list[str]
) -> None:
    listing = [a_file(path) for path in ("a.csv", "a.json", "c.csv.gz", "csv/b.csv", "csv/d.json")]

    results = candidates(listing, rules(*patterns))

    assert below_in(results.files) == expected
    assert (results.listed, results.matched) == (5, len(expected))
    assert results.left_out == Tally()


# ---- the whole listing ------------------------------------------------------------------------------


def test_no_files_at_all() -> None:
    results = candidates([], rules())

    assert (results.files, results.listed, results.matched, results.newest) == ((), 0, 0, None)


def test_candidates_come_oldest_first_and_by_path_within_a_millisecond() -> None:
    listing = [a_file("b", 2_000), a_file("c", 1_000), a_file("a", 2_000), a_file("d", 1_500)]

    assert below_in(candidates(listing, rules()).files) == ["c", "d", "a", "b"]


def test_a_file_below_two_roots_counts_once() -> None:
    listing = [a_file("a"), a_file("x/b", 2_000), a_file("x/b", 2_000), a_file("x/_c"), a_file("x/_c")]

    results = candidates(iter(listing), rules())

    assert below_in(results.files) == ["a", "x/b"]
    assert (results.listed, results.matched) == (3, 3)
    assert results.left_out.counts == {"hidden name": 1}


def test_the_newest_file_is_named_even_if_it_is_left_out() -> None:
    young = a_file("young", 9_000)

    results = candidates([a_file("a"), young, a_file("b")], rules(young_after_ms=5_000))

    assert results.newest == young


def test_a_report_counts_all_and_names_twenty_of_each_reason() -> None:
    listing = [a_file(f"_{n:03}") for n in range(25)] + [a_file(f"{n:03}", size_bytes=0) for n in range(3)]

    left_out = candidates(listing, rules()).left_out

    assert left_out.counts == {"hidden name": 25, "zero length": 3}
    assert left_out.names == {
        "hidden name": [f"file:///in/_{n:03}" for n in range(20)],
        "zero length": ["file:///in/000", "file:///in/001", "file:///in/002"],
    }


# ---- structured streams -----------------------------------------------------------------------------

STREAMS = rules(r".*\.ss$")


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        pytest.param(
            {"day.ss": 5, "day/0.du": 100, "day/deep/er/1.du": 1_000, "day2/0.du": 7, "day.txt": 7, "daz": 7},
            {"day.ss": 1_105},
            id="with all files below the folder beside it",
        ),
        pytest.param(
            {"day.ss": 1, "day/part.ss": 10, "day/part/0.du": 100, "other/part.ss": 1_000},
            {"day.ss": 111, "other/part.ss": 1_000},
            id="streams inside its folder are its parts",
        ),
        pytest.param({"day/part.ss": 3, "day.ssx": 3}, {"day/part.ss": 3}, id="an ordinary folder"),
        pytest.param(
            {"d\U0010fffe.ss": 1, "d\U0010fffe/\U0010fffe.du": 10, "d\U0010fffe.du": 7, "d\U0010fffe0": 7},
            {"d\U0010fffe.ss": 11},
            id="a folder with an unusual name",
        ),
    ],
)
def test_a_stream_is_one_file_as_long_as_all_of_its_parts(
    sizes: dict[str, int], taken: dict[str, int]
) -> None:
    results = candidates([a_file(name, size_bytes=size) for name, size in sizes.items()], STREAMS)

    assert results.files == tuple(a_file(name, size_bytes=size) for name, size in taken.items())
    assert (results.listed, results.matched) == (len(sizes), len(taken))


def test_parts_belong_to_the_stream_whatever_the_pattern() -> None:
    listing = [a_file("day.ss"), a_file("day/0.du"), a_file("night/0.du")]

    assert below_in(candidates(listing, rules()).files) == ["day.ss", "night/0.du"]


def test_a_stream_without_bytes_of_its_own_is_as_long_as_its_folder() -> None:
    listing = [
        a_file("day.ss", size_bytes=0),
        a_file("day/0.du", size_bytes=4),
        a_file("no.ss", size_bytes=0),
    ]

    results = candidates(listing, STREAMS)

    assert results.files == (a_file("day.ss", size_bytes=4),)
    assert results.left_out.names == {"zero length": ["file:///in/no.ss"]}


def test_the_folder_of_a_stream_that_is_left_out_is_left_out_with_it() -> None:
    listing = [a_file("_day.ss"), a_file("_day/part.ss"), a_file("day.ss", 9_000), a_file("day/part.ss")]

    results = candidates(listing, rules(r".*\.ss$", young_after_ms=5_000))

    assert results.files == ()
    assert results.left_out.counts == {"hidden name": 1, "too young": 1}


# ---- what the log holds -----------------------------------------------------------------------------

LOADED = {"file:///in/a": (1_000, 10, None), "file:///in/gone": (500, 10, None)}


def test_files_are_new_by_path_and_not_by_time() -> None:
    files = [a_file("late", 1), a_file("a", 1_000), a_file("same time", 1_000), a_file("b", 2_000)]
    left_out = Tally()

    new = unseen(files, LOADED, rules(), Position(1_000, "file:///in/a"), left_out)

    assert below_in(new) == ["late", "same time", "b"]
    assert left_out == Tally()


def test_a_renamed_file_is_new() -> None:
    assert below_in(unseen([a_file("a2", 1_000, 10)], LOADED, rules(), None, Tally())) == ["a2"]


def test_nothing_is_seen_at_the_first_run() -> None:
    files = [a_file("a"), a_file("b")]

    assert unseen(files, {}, rules(), None, Tally()) == files


@pytest.mark.parametrize(
    ("file", "on_changed_file", "taken"),
    [
        pytest.param(a_file("a", 1_000, 10), "ignore", None, id="unchanged, ignore"),
        pytest.param(a_file("a", 1_000, 10), "fail", None, id="unchanged, fail"),
        pytest.param(a_file("a", 1_000, 10), "reload", None, id="unchanged, reload"),
        pytest.param(a_file("a", 1_000, 10, 777), "fail", None, id="another creation time is no change"),
        pytest.param(a_file("a", 2_000, 10), "ignore", False, id="newer, ignore"),
        pytest.param(a_file("a", 1_000, 11), "ignore", False, id="longer, ignore"),
        pytest.param(a_file("a", 2_000, 10), "reload", True, id="newer, reload"),
        pytest.param(a_file("a", 1_000, 11), "reload", True, id="longer at the same time, reload"),
        pytest.param(a_file("a", 999, 11), "reload", False, id="older than what was loaded, reload"),
    ],
)
def test_a_loaded_file_that_changed_is_reported_or_loaded_again(
    file: FileEntry, on_changed_file: str, taken: bool | None
) -> None:
    left_out = Tally()

    new = unseen([file], LOADED, rules(on_changed_file=on_changed_file), None, left_out)

    assert new == ([file] if taken else [])
    assert left_out.names == ({"changed after it was loaded": ["file:///in/a"]} if taken is False else {})


@pytest.mark.parametrize("file", [a_file("a", 2_000, 10), a_file("a", 999, 10), a_file("a", 1_000, 11)])
def test_a_loaded_file_that_changed_stops_the_run_if_that_is_asked_for(file: FileEntry) -> None:
    with pytest.raises(SourceFileChangedError, match="file:///in/a was loaded with 10 bytes") as caught:
        unseen([file], LOADED, rules(on_changed_file="fail"), None, Tally())

    assert 'on_changed_file="ignore"' in caught.value.do
    assert not caught.value.is_retryable


def test_a_file_that_changed_before_it_was_loaded_is_its_batchs_to_tell() -> None:
    """It was never loaded: what helps is to abandon the batch."""
    file, left_out = a_file("a", 2_000, 10), Tally()

    new = unseen([file], LOADED, rules(on_changed_file="fail"), None, left_out, waiting=[file.path])

    assert (new, left_out.names) == ([], {"changed after it was logged": [file.path]})


def test_files_that_changed_are_named_together() -> None:
    files = [a_file(str(number), 2_000) for number in range(8)]
    loaded = {file.path: (1_000, 10, None) for file in files}

    with pytest.raises(SourceFileChangedError) as caught:
        unseen(files, loaded, rules(on_changed_file="fail"), None, Tally())

    named = ", ".join(f"file:///in/{number}" for number in range(1, 6))
    assert caught.value.what.startswith("The file file:///in/0 was loaded with 10 bytes")
    assert caught.value.what.endswith(f" Others have changed, too (7): {named} and 2 more.")


FUTURE_MS = 9_000_000


@pytest.mark.parametrize(
    ("file", "on_changed_file", "reason"),
    [
        pytest.param(a_file("a", 2_000, 0), "ignore", "changed after it was loaded", id="cut to nothing"),
        pytest.param(a_file("a", 2_000, 0), "reload", "changed after it was loaded", id="nothing to reload"),
        pytest.param(a_file("new", 2_000, 0), "fail", "zero length", id="new and empty"),
        pytest.param(a_file("a", 0, 10), "ignore", "changed after it was loaded", id="time lost"),
        pytest.param(
            a_file("a", FUTURE_MS, 11), "ignore", "changed after it was loaded", id="changed, too young"
        ),
        pytest.param(a_file("a", FUTURE_MS, 11), "reload", "too young", id="reloaded when it is old enough"),
        pytest.param(a_file("new", FUTURE_MS, 11), "fail", "too young", id="new and too young"),
    ],
)
def test_a_loaded_file_that_cannot_be_loaded_as_it_is_now_has_changed(
    file: FileEntry, on_changed_file: str, reason: str
) -> None:
    rule = rules(young_after_ms=FUTURE_MS - 1, on_changed_file=on_changed_file)
    loaded = History()
    loaded.update([a_file("a", 1_000, 10)])
    for results in (candidates([file], rule), new_candidates([file], rule, ["file:///in"], loaded)):
        assert results is not None
        left_out = Tally()

        new = unseen(results.files, LOADED, rule, None, left_out, held=results.held)

        assert (new, left_out.names) == ([], {reason: [file.path]})
        assert left_out.times == ({} if "changed" in reason else {reason: (file.modified_ms,) * 2})


@pytest.mark.parametrize("file", [a_file("a", 2_000, 0), a_file("a", 0, 10), a_file("a", FUTURE_MS, 11)])
def test_such_a_file_stops_the_run_if_that_is_asked_for(file: FileEntry) -> None:
    rule = rules(young_after_ms=FUTURE_MS - 1, on_changed_file="fail")
    results = candidates([file, a_file("b", 0, 0)], rule)

    with pytest.raises(SourceFileChangedError, match=f"it now has {file.size_bytes} bytes"):
        unseen(results.files, LOADED, rule, None, Tally(), held=results.held)


# ---- what a full refresh leaves out -----------------------------------------------------------------


def test_the_loaded_files_that_a_full_refresh_does_not_find_are_counted_and_named() -> None:
    loaded = [(f"file:///in/{number}", (1_000, 10, None)) for number in range(9)]
    files = [a_file("0", 1_000), a_file("1", 2_000, 11), a_file("new")]

    text = not_loaded_again(files, loaded, 4)

    assert text.startswith("Loaded files that the source no longer has, or that are left out of it: 7 of 9.")
    assert "VERSION AS OF 4, or RESTORE" in text
    assert text.endswith(", ".join(f"file:///in/{number}" for number in range(2, 7)) + " and 2 more")
    assert "RESTORE" not in not_loaded_again(files, loaded, None)
    assert not_loaded_again(files, loaded[:2], 4) == ""


def test_a_file_that_was_moved_is_loaded_again_and_one_with_a_loaded_namesake_is_not() -> None:
    loaded = [(f"file:///in/{day}/x.csv", (1_000, 10, None)) for day in (1, 2)]
    moved, namesake = a_file("moved/x.csv", 1_000, 10), a_file("2/x.csv", 1_000, 10)

    assert not_loaded_again([moved, namesake], loaded, 4) == ""
    assert not_loaded_again([namesake], loaded, 4).endswith("The files: file:///in/1/x.csv")


@pytest.mark.parametrize(
    ("highest", "taken", "counts"),
    [
        pytest.param(None, ["a", "b", "c"], {}, id="first run"),
        pytest.param(Position(1, "file:///in/zzz"), ["a", "b", "c"], {}, id="older than all"),
        pytest.param(
            Position(1_000, "file:///in/a"),
            ["b", "c"],
            {"loaded before, or late": 1},
            id="ties go on by path",
        ),
        pytest.param(
            Position(1_000, "file:///in/aa"), ["b", "c"], {"loaded before, or late": 1}, id="between two"
        ),
        pytest.param(Position(1_000, "file:///in/b"), ["c"], {"loaded before, or late": 2}, id="the second"),
        pytest.param(Position(2_000, "file:///in/c"), [], {"loaded before, or late": 3}, id="the newest"),
        pytest.param(Position(9_000, ""), [], {"loaded before, or late": 3}, id="newer than all"),
    ],
)
def test_skipping_late_files_takes_only_what_is_above_the_highest_position(
    highest: Position | None, taken: list[str], counts: dict[str, int]
) -> None:
    files = [a_file("a", 1_000), a_file("b", 1_000), a_file("c", 2_000)]
    left_out = Tally()

    new = unseen(files, {}, rules(late_files="skip"), highest, left_out)

    assert below_in(new) == taken
    assert (left_out.counts, left_out.names) == (counts, {})


def test_skipping_late_files_does_not_look_at_the_history() -> None:
    files = [a_file("a", 1_000)]

    assert unseen(files, LOADED, rules(late_files="skip"), Position(999, ""), Tally()) == files


def test_a_tally_adds_up() -> None:
    tally = Tally()
    tally.add("too young", "x")
    tally.add("too young", "y")
    tally.add_unnamed("too young", 3)
    tally.add_unnamed("zero length", 0)

    assert tally == Tally({"too young": 5}, {"too young": ["x", "y"]})


# ---- what a file's content says ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "is_new"),
    [
        ((1_000, 10, "x"), (2_000, 10, "x"), False),
        ((1_000, 10, "x"), (1_000, 10, "y"), True),
        ((1_000, 10, "x"), (2_000, 11, "x"), True),
        ((1_000, 10, "x"), (2_000, 10, None), True),
        ((1_000, 10, None), (2_000, 10, "x"), True),
        ((1_000, 10, None), (1_000, 10, "x"), False),
    ],
    ids=["touched", "changed in one second", "longer", "no sum now", "no sum then", "same, no sum then"],
)
def test_a_file_with_a_sum_of_its_content_changes_with_it_and_not_with_its_time(before, now, is_new) -> None:
    file = a_file("a", now[0], now[1])._replace(content_md5=now[2])

    for on_changed_file in ("ignore", "reload"):
        left_out = Tally()
        new = unseen([file], {file.path: before}, rules(on_changed_file=on_changed_file), None, left_out)

        assert new == ([file] if is_new and on_changed_file == "reload" else [])
        assert bool(left_out.counts) is (is_new and on_changed_file == "ignore")


def test_the_sum_of_a_streams_manifest_says_nothing_of_its_folder() -> None:
    listing = [a_file("day.ss")._replace(content_md5="x"), a_file("day/0.du"), a_file("a.ssx")]

    assert [file.content_md5 for file in candidates(listing, STREAMS).files] == [None]


# ---- where a batch ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "start", "max_files", "max_bytes", "stop"),
    [
        pytest.param([], 0, 5, 100, 0, id="no files, no batch"),
        pytest.param([1, 1, 1], 0, None, None, 3, id="no limit takes all"),
        pytest.param([1, 1, 1], 0, 2, None, 2, id="files"),
        pytest.param([1, 1, 1], 0, 3, None, 3, id="exactly as many files"),
        pytest.param([1, 1, 1], 2, 2, None, 3, id="the last batch is smaller"),
        pytest.param([1, 1, 1], 3, 2, 1, 3, id="behind the last file"),
        pytest.param([40, 40, 40], 0, None, 100, 2, id="bytes"),
        pytest.param([40, 60, 1], 0, None, 100, 2, id="exactly as many bytes"),
        pytest.param([500, 1], 0, None, 100, 1, id="a large first file is a batch of its own"),
        pytest.param([500, 1], 0, 1, 100, 1, id="a large first file with both limits"),
        pytest.param([1, 500, 1], 0, None, 100, 1, id="a large second file waits"),
        pytest.param([1, 500, 1], 1, None, 100, 2, id="and is taken when it is first"),
        pytest.param([0, 0, 0], 0, None, 1, 3, id="files without bytes count for files only"),
        pytest.param([10, 10, 10, 10], 0, 3, 25, 2, id="both limits, bytes first"),
        pytest.param([10, 10, 10, 10], 0, 2, 35, 2, id="both limits, files first"),
        pytest.param([9, 10, 10, 10], 1, 2, 100, 3, id="the limit of files counts from the start"),
    ],
)
def test_a_batch_ends_where_the_first_limit_is_reached(
    sizes: list[int], start: int, max_files: int | None, max_bytes: int | None, stop: int
) -> None:
    files = [a_file(f"{number}.csv", size_bytes=size) for number, size in enumerate(sizes)]

    assert next_batch(files, start, max_files=max_files, max_bytes=max_bytes) == stop
