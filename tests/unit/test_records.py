"""The records of the checkpoint, byte by byte."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.records import (
    Acceptance,
    CommitRecord,
    OffsetEntry,
    Pipeline,
    Settlement,
    TableIdentity,
    decode,
    decode_offset,
)
from airflow_provider_scope.values import FileEntry, FileSlice, Position
from tests.support.numbers import NumberSlice
from tests.support.values import a_commit, a_file, a_refresh, an_entry

if TYPE_CHECKING:
    from collections.abc import Callable

PIPELINE = Pipeline(pipeline="0b5f", table=TableIdentity("7c1d", 4), table_version=6)
PIPELINE_BYTES = (
    b'{"format":1,"pipeline":"0b5f","table":{"restore_version":4,"table_id":"7c1d"},"table_version":6}\n'
)
NEW_PIPELINE = Pipeline(pipeline="0b5f", table=None)
NEW_PIPELINE_BYTES = b'{"format":1,"pipeline":"0b5f","table":null,"table_version":null}\n'
COMMIT = CommitRecord(
    seq=12,
    table=TableIdentity("7c1d"),
    table_version=20,
    files=3,
    size_bytes=4096,
    committed_at_ms=1_767_225_600_123,
    rows=1_000,
    written_bytes=2_048,
)
COMMIT_BYTES = (
    b'{"abandoned":false,"committed_at_ms":1767225600123,"files":3,"format":1,"rows":1000,"seq":12,'
    b'"size_bytes":4096,"table":{"restore_version":null,"table_id":"7c1d"},"table_version":20,'
    b'"written_bytes":2048}\n'
)
ABANDONED = CommitRecord(
    seq=0,
    table=TableIdentity("7c1d", 2),
    table_version=3,
    files=1,
    size_bytes=0,
    committed_at_ms=5,
    abandoned=True,
)
ABANDONED_BYTES = (
    b'{"abandoned":true,"committed_at_ms":5,"files":1,"format":1,"rows":null,"seq":0,"size_bytes":0,'
    b'"table":{"restore_version":2,"table_id":"7c1d"},"table_version":3,"written_bytes":null}\n'
)
ACCEPTANCE = Acceptance(
    number=1, after_commit=-1, table=TableIdentity("7c1d", 9), table_version=9, rolled_back=(3, 5)
)
ACCEPTANCE_BYTES = (
    b'{"after_commit":-1,"format":1,"number":1,"rolled_back":[3,5],'
    b'"table":{"restore_version":9,"table_id":"7c1d"},"table_version":9}\n'
)
SETTLEMENT = Settlement(seq=7, number=1, committed=False, table_version=20)
SETTLEMENT_BYTES = b'{"committed":false,"format":1,"number":1,"seq":7,"table_version":20}\n'
OFFSET = OffsetEntry(
    seq=7,
    mode="overwrite",
    where="day = '1'",
    slice=FileSlice(
        files=(
            FileEntry(1_000, "file:///in/a.csv", 10, 900),
            FileEntry(2_000, 'file:///in/b \u2028\r\x85\n\t"\\é.csv', 0),
        ),
        highest=Position(2_000, 'file:///in/b \u2028\r\x85\n\t"\\é.csv'),
    ),
    refresh_start=7,
    overwrite_start=None,
)
OFFSET_BYTES = (
    '{"files":2,"format":1,"highest":[2000,"file:///in/b \u2028\\r\x85\\n\\t\\"\\\\é.csv"],'
    '"mode":"overwrite","overwrite_start":null,"refresh_start":7,"seq":7,"where":"day = \'1\'"}\n'
    '{"created":900,"modified":1000,"path":"file:///in/a.csv","size":10}\n'
    '{"created":null,"modified":2000,"path":"file:///in/b \u2028\\r\x85\\n\\t\\"\\\\é.csv","size":0}\n'
).encode()
EMPTY = an_entry(0)
EMPTY_BYTES = (
    b'{"files":0,"format":1,"highest":null,"mode":"append","overwrite_start":null,'
    b'"refresh_start":null,"seq":0,"where":null}\n'
)
NUMBERS = an_entry(3, slice=NumberSlice(5, 9))
NUMBERS_BYTES = (
    b'{"format":1,"kind":"numbers","mode":"append","overwrite_start":null,"refresh_start":null,"seq":3,'
    b'"slice":{"first":5,"last":9},"where":null}\n'
)

READERS: dict[str, tuple[Any, bytes, Callable[[str, bytes], Any]]] = {
    "pipeline": (PIPELINE, PIPELINE_BYTES, functools.partial(decode, Pipeline)),
    "new pipeline": (NEW_PIPELINE, NEW_PIPELINE_BYTES, functools.partial(decode, Pipeline)),
    "commit": (COMMIT, COMMIT_BYTES, functools.partial(decode, CommitRecord, seq=12)),
    "abandoned": (ABANDONED, ABANDONED_BYTES, functools.partial(decode, CommitRecord, seq=0)),
    "acceptance": (ACCEPTANCE, ACCEPTANCE_BYTES, functools.partial(decode, Acceptance, number=1)),
    "settlement": (SETTLEMENT, SETTLEMENT_BYTES, functools.partial(decode, Settlement, seq=7, number=1)),
    "offset": (OFFSET, OFFSET_BYTES, functools.partial(decode_offset, seq=7)),
    "empty offset": (EMPTY, EMPTY_BYTES, functools.partial(decode_offset, seq=0)),
}
each_record = pytest.mark.parametrize(("record", "data", "decode"), list(READERS.values()), ids=list(READERS))


def to_bytes(record: Any) -> bytes:
    return records.encode_offset(record) if isinstance(record, OffsetEntry) else records.encode(record)


@each_record
def test_a_record_is_these_bytes(record: Any, data: bytes, decode: Callable[[str, bytes], Any]) -> None:
    assert to_bytes(record) == data


@each_record
def test_these_bytes_are_the_record(record: Any, data: bytes, decode: Callable[[str, bytes], Any]) -> None:
    assert decode("r", data) == record


@each_record
def test_a_record_with_something_behind_it_is_refused(
    record: Any, data: bytes, decode: Callable[[str, bytes], Any]
) -> None:
    for more in (b"x", b"x\n", b"{}\n", data, b"\x00\n"):
        with pytest.raises(CheckpointCorruptError):
            decode("r", data + more)


@each_record
def test_a_record_of_a_newer_format_is_refused_with_advice(
    record: Any, data: bytes, decode: Callable[[str, bytes], Any]
) -> None:
    with pytest.raises(CheckpointVersionError) as caught:
        decode("r", data.replace(b'"format":1', b'"format":2', 1))

    assert caught.value.what == (
        "The checkpoint record r has format 2; this version of airflow-provider-scope reads formats up to 1."
    )
    assert caught.value.do.startswith("install the version of airflow-provider-scope that wrote it")


@each_record
def test_bytes_that_are_no_record_are_refused(
    record: Any, data: bytes, decode: Callable[[str, bytes], Any]
) -> None:
    for damaged in (
        b"",
        b"\n",
        b"null\n",
        b"[]\n",
        b"7\n",
        b'"text"\n',
        b"{}\n",
        b"{\n",
        b"NaN\n",
        b"\xff\xfe\n",
        b"<html>503</html>\n",
        b"[" * 100_000 + b"\n",
        data.decode().encode("utf-16"),
    ):
        with pytest.raises(CheckpointCorruptError):
            decode("r", damaged)


def changed(data: bytes, key: str, value: Any) -> bytes:
    """Return a record of which one field of the first line has another value."""
    first, *rest = data.decode().split("\n")
    return "\n".join([json.dumps({**json.loads(first), key: value}), *rest]).encode()


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("pipeline", "format", True),
        ("pipeline", "table", {"table_id": "x", "restore_version": "4"}),
        ("commit", "seq", 11),
        ("commit", "rows", True),
        ("acceptance", "number", 2),
        ("acceptance", "rolled_back", [True]),
        ("acceptance", "rolled_back", [3.0]),
        ("offset", "seq", 6),
        ("offset", "mode", "OVERWRITE"),
        ("offset", "files", 1),
        ("offset", "files", 3),
        ("offset", "refresh_start", 7.0),
        ("offset", "highest", [2000]),
        ("offset", "highest", ["2000", "x"]),
        ("offset", "highest", [2000, None]),
        ("offset", "highest", [2000, "x", 1]),
        ("offset", "highest", [True, "x"]),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused(kind: str, key: str, value: Any) -> None:
    """Of other types, ``tests/properties/test_records.py`` draws them."""
    record, data, decode = READERS[kind]
    assert decode("r", changed(data, key, json.loads(data.split(b"\n")[0])[key])) == record

    with pytest.raises(CheckpointCorruptError, match="The checkpoint record r "):
        decode("r", changed(data, key, value))


@pytest.mark.parametrize("line", ["[]", "{}", "", " "])
def test_a_file_line_of_the_wrong_kind_is_refused(line: str) -> None:
    """Of keys and their types, ``tests/properties/test_records.py`` draws them."""
    data = records.encode_offset(an_entry(0, a_file("a"))).decode().split("\n")[0] + f"\n{line}\n"

    with pytest.raises(CheckpointCorruptError):
        decode_offset("r", data.encode(), 0)


@pytest.mark.parametrize(
    "character", ["\u2028", "\u2029", "\x85", "\r", "\x0b", "\x0c", "\x1c", "\x1e", "\n"]
)
def test_no_character_of_a_name_ends_a_line(character: str) -> None:
    entry = an_entry(0, a_file(f"a{character}b"), a_file(f"{character}"), a_file(f"c{character}"))

    data = records.encode_offset(entry)

    assert data.count(b"\n") == 4
    assert decode_offset("r", data, 0) == entry


def test_unknown_fields_of_the_same_format_are_ignored() -> None:
    assert decode(CommitRecord, "r", changed(COMMIT_BYTES, "spark_version", "4.2.0"), seq=12) == COMMIT
    assert decode_offset("r", changed(OFFSET_BYTES, "comment", None), 7) == OFFSET


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (COMMIT_BYTES[:-1], "The checkpoint record c/12 is cut short (202 bytes, no newline at the end)."),
        (b"{\xff}\n", "The checkpoint record c/12 is not UTF-8 ("),
        (b"[1]\n", "The checkpoint record c/12 holds list, not an object."),
        (changed(COMMIT_BYTES, "seq", 13), "The checkpoint record c/12 says seq=13."),
        (changed(COMMIT_BYTES, "table", None), "The checkpoint record c/12 names no table."),
        (
            changed(COMMIT_BYTES, "files", "3"),
            "The checkpoint record c/12 has files='3', expected a whole number.",
        ),
    ],
)
def test_a_refusal_names_the_record_and_warns_of_deleting_it(data: bytes, what: str) -> None:
    with pytest.raises(CheckpointCorruptError) as caught:
        decode(CommitRecord, "c/12", data, seq=12)

    assert caught.value.what.startswith(what)
    assert caught.value.kept == "the table and all records; nothing was written"
    assert "restore the record from a copy of the checkpoint" in caught.value.do


def test_an_entry_knows_its_size_and_whether_it_replaces_the_table() -> None:
    assert an_entry(0, a_file("a", size_bytes=3), a_file("b", size_bytes=4)).slice.size_bytes == 7
    assert not an_entry(0).overwrites_table
    assert a_refresh(0).overwrites_table
    assert not a_refresh(0, where="day = 1").overwrites_table


def test_the_sum_of_a_files_content_is_in_its_line_and_no_key_where_there_is_none() -> None:
    plain, summed = a_file("a"), a_file("b")._replace(content_md5="sQqNsWTwhUgZtBkUt3/x0A==")
    data = records.encode_offset(an_entry(0, plain, summed))

    lines = [json.loads(line) for line in data.decode().splitlines()[1:]]
    assert [line.get("md5", "none") for line in lines] == ["none", "sQqNsWTwhUgZtBkUt3/x0A=="]
    assert decode_offset("r", data, 0).files == (plain, summed)
    with pytest.raises(CheckpointCorruptError, match="md5=7"):
        decode_offset("r", data.replace(b'"sQqNsWTwhUgZtBkUt3/x0A=="', b"7"), 0)


def test_only_a_batch_that_was_given_up_may_be_in_no_table() -> None:
    given_up = a_commit(0, table=None, table_version=-1, abandoned=True)
    data = records.encode(given_up)

    assert decode(CommitRecord, "commits/0", data, seq=0) == given_up
    with pytest.raises(CheckpointCorruptError, match="names no table"):
        decode(CommitRecord, "commits/0", data.replace(b'"abandoned":true', b'"abandoned":false'), seq=0)


# ---- slices of other kinds --------------------------------------------------------------------------


def test_an_entry_of_another_kind_says_its_kind() -> None:
    assert records.encode_offset(NUMBERS) == NUMBERS_BYTES
    assert decode_offset("r", NUMBERS_BYTES, 3) == NUMBERS


def test_a_kind_that_this_version_does_not_know_is_refused_with_advice() -> None:
    with pytest.raises(CheckpointVersionError) as caught:
        decode_offset("r", NUMBERS_BYTES.replace(b'"numbers"', b'"letters"'), 3)

    assert caught.value.what == (
        "The checkpoint record r is of a batch of letters; this version of airflow-provider-scope reads "
        "no batches of letters."
    )
    assert "a newer one" in caught.value.do


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        (b'"numbers"', b"7"),
        (b'"numbers"', b"null"),
        (b'{"first":5,"last":9}', b"[5,9]"),
        (b'{"first":5,"last":9}', b"null"),
        (b'"first":5,', b""),
        (b'"first":5', b'"first":"5"'),
        (b'"first":5', b'"first":null'),
        (b'"seq":3', b'"seq":4'),
        (b"}\n", b'}\n{"path":"x"}\n'),
        (b"}\n", b"}"),
    ],
)
def test_a_slice_of_another_kind_that_cannot_be_is_refused(part: bytes, instead: bytes) -> None:
    with pytest.raises(CheckpointCorruptError, match="The checkpoint record r "):
        decode_offset("r", NUMBERS_BYTES.replace(part, instead), 3)


def test_what_reads_files_does_not_take_another_batch_for_an_empty_one() -> None:
    with pytest.raises(TypeError, match="batch 3 is a batch of numbers, not of files"):
        _ = NUMBERS.files
