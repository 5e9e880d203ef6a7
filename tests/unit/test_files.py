"""Paths, and the order in which files are ingested."""

from __future__ import annotations

import os

import pytest

from airflow_provider_scope.exceptions import SourceFileChangedError, SourceFileGoneError
from airflow_provider_scope.values import (
    FileEntry,
    Position,
    base_name,
    check_as_logged,
    encodable,
    is_below,
    is_packed,
    is_readable,
    position,
    printable,
)
from tests.support.values import a_file


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("file:///in/2013/a.parquet", "a.parquet"),
        ("file:///in/a b%20c#.csv", "a b%20c#.csv"),
        ("file:///in/line\nbreak.csv", "line\nbreak.csv"),
        ("a.csv", "a.csv"),
        ("file:///in/", ""),
    ],
)
def test_the_base_name_is_what_follows_the_last_slash(path: str, name: str) -> None:
    assert base_name(path) == name


@pytest.mark.parametrize(
    ("path", "roots", "expected"),
    [
        ("file:///in/a", ("file:///in",), True),
        ("file:///in/x/y/a", ("file:///in",), True),
        ("file:///in", ("file:///in",), True),
        ("file:///in/a", ("file:///in/",), True),
        ("file:///in/a", ("file:///other", "file:///in"), True),
        ("file:///a", ("file:///",), True),
        ("file:///inn/a", ("file:///in",), False),
        ("file:///in/../etc/passwd", ("file:///in",), False),
        ("file:///in/./a", ("file:///in",), False),
        ("file:///in/..", ("file:///in",), False),
        ("/in/a", ("file:///in",), False),
        ("abfss://in/a", ("file:///in",), False),
        ("", ("file:///in",), False),
        ("file:///in/a", (), False),
        ("file:///in/a..b", ("file:///in",), True),
    ],
)
def test_a_path_is_below_a_root_only_by_whole_parts_and_without_dots(
    path: str, roots: tuple[str, ...], expected: bool
) -> None:
    assert is_below(path, roots) is expected


def test_files_are_ingested_by_time_and_then_by_path() -> None:
    newer = FileEntry(2_000, "file:///in/a", 1)
    second = FileEntry(1_000, "file:///in/b", 1)
    first = FileEntry(1_000, "file:///in/a", 99)

    assert sorted([newer, second, first], key=position) == [first, second, newer]
    assert sorted([newer, second, first]) == [first, second, newer]
    assert position(second) == Position(1_000, "file:///in/b")


def test_a_name_of_bytes_that_are_not_utf8_is_not_readable_and_can_be_printed() -> None:
    path = os.fsdecode(b"file:///in/caf\xe9.csv")

    assert not is_readable(path)
    assert printable(path) == "file:///in/caf\\udce9.csv"
    assert is_readable("file:///in/café\u2028.csv")
    assert printable("file:///in/café\u2028.csv") == "file:///in/café\u2028.csv"


def test_a_name_neither_ends_the_line_in_which_it_is_printed_nor_speaks_to_the_terminal() -> None:
    path = "file:///in/a\nopen nothing\r\x1b[2J\x9b.csv"
    assert printable(path) == r"file:///in/a\nopen nothing\r\x1b[2J\x9b.csv"
    assert encodable(path) == path  # in JSON it is the name of the file


@pytest.mark.parametrize(
    ("path", "readable"),
    [
        ("file:///a", True),
        ("file:///10:30/a", True),
        ("file:///in/10:30", False),
        ("file:////a", False),
        ("file:///in//a", False),
        ("s3://b/a", True),
        ("s3://b//a", False),
        ("abfss://c@h/./a", False),
        ("abfss://c@h/../a", False),
        ("abfss://c@h/x/.../.a./a..", True),
        ("webhdfs://n:9870/a", True),
        ("webhdfs://n:9870/caf\u00e9", True),
        ("webhdfs://n:9870/cafe\u0301", False),
        ("swebhdfs://n:9871/cafe\u0301/a", False),
        ("abfss://c@h/cafe\u0301", True),
        ("file:///in/cafe\u0301", True),
    ],
)
def test_a_readable_path_is_one_that_every_client_sends_as_it_is(path: str, readable: bool) -> None:
    assert is_readable(path) is readable


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.csv", False),
        ("zip", False),
        ("a.zip.csv", False),
        ("a.csv.gz", False),
        ("A.CSV.GZ", False),
        ("a.gzip", False),
        ("a.json.bz2", False),
        ("a.txt.deflate", False),
        ("a.zip", True),
        ("a.csv.ZIP", True),
        ("a.tar", True),
        ("a.tgz", True),
        ("a.tar.gz", True),
        ("a.tar.bz2", True),
        ("a.zip.gz", True),
        ("a.csv.gz.bz2", True),
        ("a.csv.gz.gz", True),
        ("a.7z", True),
        ("a.csv.xz", True),
        ("a.csv.Z", True),
        ("a.csv.lz4", True),
        ("a.csv.snappy", True),
        ("a.csv.zst", True),
    ],
)
def test_a_name_tells_what_readers_of_text_do_not_unpack(name: str, packed: bool) -> None:
    assert is_packed(name) is packed


def test_the_files_of_a_batch_that_are_not_as_logged_are_named_together() -> None:
    files = [a_file(name) for name in "abcd"]
    state = (files[0].modified_ms, files[0].size_bytes)

    with pytest.raises(SourceFileGoneError) as caught:
        check_as_logged(3, zip(files, (state, None, (9, 9), None), strict=True), kept="the table")

    assert caught.value.what == (
        "The file file:///in/b of batch 3 is missing. Others of the batch are missing or have changed, too "
        "(2): file:///in/c, file:///in/d."
    )
    assert caught.value.do.endswith("Or restore the files as they were, with their times")
    with pytest.raises(SourceFileChangedError) as caught_alone:
        check_as_logged(3, zip(files, (state, state, (9, 9), state), strict=True), kept="the table")
    assert caught_alone.value.what.endswith("modified at 1970-01-01T00:00:00.009000+00:00.")
