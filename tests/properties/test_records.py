"""Whatever a record holds, its bytes give it back, and no part of them passes for a record."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError
from airflow_provider_scope.protocol.records import (
    Acceptance,
    Attempt,
    CommitRecord,
    OffsetEntry,
    Pipeline,
    QuarantineUse,
    Settlement,
    decode,
    decode_offset,
    encode,
    encode_offset,
)
from airflow_provider_scope.protocol.takeover import Decision, Takeover
from tests.support.strategies import ATTEMPTS, COMMITS, OFFSETS, RECORDS, UTF8

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: dict[type, tuple[str, ...]] = {
    Pipeline: (),
    CommitRecord: ("seq",),
    Acceptance: ("number",),
    Attempt: ("seq", "number"),
    Settlement: ("seq", "number"),
    QuarantineUse: ("number",),
    Takeover: ("number",),
    Decision: ("watermark",),
    OffsetEntry: ("seq",),
}
"""What the name of a record tells of it."""
LACKED = {
    **dict.fromkeys(["columns", "state", "md5", "void_watermark"]),
    "quarantined": {},
    "warned": {},
    "rescued": {},
    "changes": {},
    "takeovers": 0,
    "account": "",
}
"""Keys that are left out where there is nothing in them: without the key, the value is this one."""
ALL = st.one_of(RECORDS, OFFSETS)
JUNK = st.one_of(
    st.text(UTF8, max_size=5),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.dictionaries(st.text(UTF8, max_size=3), st.floats(allow_nan=False), min_size=1, max_size=2),
)


def to_bytes(record: Any) -> bytes:
    return encode_offset(record) if isinstance(record, OffsetEntry) else encode(record)


def from_bytes(data: bytes, like: Any) -> Any:
    if isinstance(like, OffsetEntry):
        return decode_offset("folder/r", data, like.seq)
    return decode(type(like), "folder/r", data, **{key: getattr(like, key) for key in NUMBERS[type(like)]})


def refused(data: bytes, like: Any) -> None:
    with pytest.raises(CheckpointCorruptError, match=r"^The checkpoint record folder/r "):
        from_bytes(data, like)


def a_line(whole: bytes, data: st.DataObject) -> tuple[list[str], int, dict[str, Any]]:
    """Draw a line of a record: all lines, its number, and its value."""
    lines = whole.decode().split("\n")
    index = data.draw(st.integers(0, len(lines) - 2))
    return lines, index, json.loads(lines[index])


def with_line(lines: list[str], index: int, text: str) -> bytes:
    return "\n".join([*lines[:index], text, *lines[index + 1 :]]).encode()


def an_object(value: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """Draw the object itself, or the table's that is in it."""
    inner = [part for key, part in value.items() if isinstance(part, dict) and key not in LACKED]
    return data.draw(st.sampled_from([value, *inner]))


def test_each_kind_of_record_is_drawn() -> None:
    assert {record.__name__ for record in NUMBERS} == {
        "Acceptance", "Attempt", "CommitRecord", "Decision", "OffsetEntry", "Pipeline", "QuarantineUse",
        "Settlement", "Takeover",
    }  # fmt: skip


@given(ALL)
def test_a_record_comes_back_from_its_bytes(record: Any) -> None:
    data = to_bytes(record)

    assert from_bytes(data, record) == record
    assert to_bytes(from_bytes(data, record)) == data
    assert data.endswith(b"\n")


@given(ALL, st.data())
def test_a_cut_record_is_refused(record: Any, data: st.DataObject) -> None:
    whole = to_bytes(record)

    refused(whole[: data.draw(st.integers(0, len(whole) - 1))], record)
    refused(whole[data.draw(st.integers(1, len(whole))) :], record)


@given(ALL, st.data())
def test_a_record_without_a_key_is_refused(record: Any, data: st.DataObject) -> None:
    lines, index, value = a_line(to_bytes(record), data)
    owner = an_object(value, data)
    key = data.draw(st.sampled_from(sorted(set(owner) - set(LACKED))))
    del owner[key]

    refused(with_line(lines, index, json.dumps(value)), record)


@given(ALL, st.data(), st.text(UTF8, max_size=5))
def test_a_record_with_a_key_of_another_name_is_refused(record: Any, data: st.DataObject, name: str) -> None:
    lines, index, value = a_line(to_bytes(record), data)
    owner = an_object(value, data)
    key = data.draw(st.sampled_from(sorted(set(owner) - set(LACKED))))
    assume(name not in owner)
    owner[name] = owner.pop(key)

    refused(with_line(lines, index, json.dumps(value)), record)


@given(st.one_of(ATTEMPTS, COMMITS, OFFSETS), st.data())
def test_a_key_that_may_be_left_out_has_its_default(record: Any, data: st.DataObject) -> None:
    lines, index, value = a_line(to_bytes(record), data)
    lacked = sorted(set(value) & set(LACKED))
    for key in lacked:
        del value[key]
    found = from_bytes(with_line(lines, index, json.dumps(value)), record)

    if index:
        assert found.files[index - 1] == record.files[index - 1]._replace(content_md5=None)
    else:
        kept = {field.name: getattr(record, field.name) for field in fields(record)}
        assert found == type(record)(**kept | {key: LACKED[key] for key in lacked})


@given(ALL, st.data(), JUNK)
def test_a_key_that_is_there_twice_is_refused(record: Any, data: st.DataObject, other: Any) -> None:
    lines, index, value = a_line(to_bytes(record), data)
    key = data.draw(st.sampled_from(sorted(value)))
    again = data.draw(st.sampled_from([other, value[key]]))
    more = f"{json.dumps(key)}:{json.dumps(again)}"
    text = lines[index]

    refused(with_line(lines, index, f"{text[:-1]},{more}}}"), record)
    refused(with_line(lines, index, f"{{{more},{text[1:]}"), record)


@given(ALL, st.data(), JUNK)
def test_a_value_of_another_type_is_refused(record: Any, data: st.DataObject, other: Any) -> None:
    lines, index, value = a_line(to_bytes(record), data)
    owner = an_object(value, data)
    key = data.draw(st.sampled_from(sorted(owner)))
    assume(type(other) not in POSSIBLE.get(key, (type(owner[key]),)))
    owner[key] = other

    refused(with_line(lines, index, json.dumps(value)), record)


POSSIBLE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(["restore_version", "refresh_start", "overwrite_start"], (int,)),
    **dict.fromkeys(["rows", "written_bytes", "floor_ms", "created", "table_version"], (int,)),
    **dict.fromkeys(["where", "columns", "state", "md5", "void_watermark"], (str,)),
    "table": (str,),  # of a quarantine
}
"""Types of JSON that the value of a key may have, where it may also be null."""


@given(ALL, st.data())
def test_a_damaged_record_is_refused_or_is_a_record_with_the_same_number(
    record: Any, data: st.DataObject
) -> None:
    whole = bytearray(to_bytes(record))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    try:
        read = from_bytes(bytes(whole), record)
    except (CheckpointCorruptError, CheckpointVersionError):
        return
    assert type(read) is type(record)
    assert [getattr(read, key) for key in NUMBERS[type(record)]] == [
        getattr(record, key) for key in NUMBERS[type(record)]
    ]
    if isinstance(record, OffsetEntry):
        assert len(read.files) == len(record.files)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_checkpoint_error(data: bytes) -> None:
    decoders: list[Callable[[], Any]] = [lambda kind=kind: decode(kind, "r", data) for kind in NUMBERS]
    for read in [*decoders, lambda: decode_offset("r", data, 0)]:
        with pytest.raises((CheckpointCorruptError, CheckpointVersionError)):
            read()
