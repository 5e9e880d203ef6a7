"""Whatever a record holds, its bytes give it back, and no part of them passes for a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.core.records import (
    Acceptance,
    CommitRecord,
    OffsetEntry,
    Pipeline,
    decode_acceptance,
    decode_commit,
    decode_offset,
    decode_pipeline,
    encode,
    encode_offset,
)
from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError
from tests.support.strategies import ACCEPTANCES, COMMITS, OFFSETS, PIPELINES

AnyRecord = Pipeline | CommitRecord | Acceptance | OffsetEntry
RECORDS = st.one_of(PIPELINES, COMMITS, ACCEPTANCES, OFFSETS)


def to_bytes(record: AnyRecord) -> bytes:
    return encode_offset(record) if isinstance(record, OffsetEntry) else encode(record)


def from_bytes(data: bytes, like: AnyRecord) -> AnyRecord:
    match like:
        case Pipeline():
            return decode_pipeline("r", data)
        case CommitRecord():
            return decode_commit("r", data, like.seq)
        case Acceptance():
            return decode_acceptance("r", data, like.number)
        case OffsetEntry():
            return decode_offset("r", data, like.seq)


@given(RECORDS)
def test_a_record_comes_back_from_its_bytes(record: AnyRecord) -> None:
    data = to_bytes(record)

    assert from_bytes(data, record) == record
    assert to_bytes(from_bytes(data, record)) == data
    assert data.endswith(b"\n")


@given(RECORDS, st.data())
def test_a_cut_record_is_refused(record: AnyRecord, data: st.DataObject) -> None:
    whole = to_bytes(record)
    length = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(CheckpointCorruptError):
        from_bytes(whole[:length], record)


@given(RECORDS, st.data())
def test_a_damaged_record_is_refused_or_is_a_record_with_the_same_number(
    record: AnyRecord, data: st.DataObject
) -> None:
    whole = bytearray(to_bytes(record))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    try:
        read = from_bytes(bytes(whole), record)
    except (CheckpointCorruptError, CheckpointVersionError):
        return
    assert type(read) is type(record)
    assert getattr(read, "seq", 0) == getattr(record, "seq", 0)
    if isinstance(record, OffsetEntry) and isinstance(read, OffsetEntry):
        assert len(read.files) == len(record.files)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_checkpoint_error(data: bytes) -> None:
    for decode in (
        decode_pipeline,
        lambda name, content: decode_commit(name, content, 0),
        lambda name, content: decode_acceptance(name, content, 0),
        lambda name, content: decode_offset(name, content, 0),
    ):
        with pytest.raises((CheckpointCorruptError, CheckpointVersionError)):
            decode("r", data)
