"""A snapshot tells which files are loaded, or it is not used."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_scope.checkpoint.snapshot import (
    SeenFiles,
    decode_seen,
    decode_snapshot,
    encode_snapshot,
)
from airflow_provider_scope.core.audit import audit_rows
from tests.support.values import a_commit, a_file, an_entry

A, B = a_file("a", 1_000, 10), a_file("b", 2_000, 20)._replace(content_md5="x")
ROWS = [*audit_rows(an_entry(3, A, B), a_commit(3))]


def test_the_seen_files_are_those_of_the_older_snapshot_and_of_the_batches_after_it() -> None:
    older = decode_snapshot("0.parquet", encode_snapshot(None, ROWS, 3, 2))
    assert older
    reloaded = a_file("a", 1_500, 15)

    data = encode_snapshot(older, [*audit_rows(an_entry(4, reloaded), a_commit(4))], 4, 2)

    assert decode_seen("1.parquet", data) == SeenFiles(
        seq=4, refresh_start=2, files={A.path: (1_500, 15, None), B.path: (2_000, 20, "x")}
    )


def test_a_snapshot_before_any_refresh_says_so() -> None:
    seen = decode_seen("0.parquet", encode_snapshot(None, ROWS, 3, None))

    assert seen
    assert seen.refresh_start is None


@pytest.mark.parametrize("decode", [decode_seen, decode_snapshot])
def test_a_snapshot_that_was_cut_is_not_used(decode, caplog: pytest.LogCaptureFixture) -> None:
    whole = encode_snapshot(None, ROWS, 3, None)

    with caplog.at_level(logging.CRITICAL):
        assert {decode("0.parquet", whole[:length]) for length in range(len(whole))} == {None}
    decode("0.parquet", b"")

    assert caplog.messages[-1].startswith("The snapshot 0.parquet is not used, the log is read instead: ")


@pytest.mark.parametrize("decode", [decode_seen, decode_snapshot])
def test_a_snapshot_whose_pages_are_damaged_is_not_used(decode) -> None:
    whole = bytearray(encode_snapshot(None, ROWS, 3, None))
    whole[4 : whole.index(b"PAR1", 4) // 2] = bytes(whole.index(b"PAR1", 4) // 2 - 4)

    assert decode("0.parquet", bytes(whole)) is None


@pytest.mark.parametrize("decode", [decode_seen, decode_snapshot])
def test_a_snapshot_of_another_program_is_not_used(decode) -> None:
    """dbt-scope's snapshots have the same names, and neither our columns nor our metadata."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"path": ["/in/a"], "modificationTime": [1_000]}), sink)

    assert decode("0.parquet", sink.getvalue().to_pybytes()) is None


def without_sums(data: bytes) -> bytes:
    """Give a snapshot as version 0.1.0 wrote it."""
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)).drop(["md5"]), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def test_a_snapshot_without_sums_goes_on_to_be_used() -> None:
    old = without_sums(encode_snapshot(None, ROWS, 3, None))
    older = decode_snapshot("0.parquet", old)
    assert older
    more = a_file("c", 3_000, 30)._replace(content_md5="z")

    seen = decode_seen("0.parquet", old)
    grown = decode_seen(
        "1.parquet", encode_snapshot(older, [*audit_rows(an_entry(4, more), a_commit(4))], 4, None)
    )

    assert seen
    assert seen.files == {A.path: (1_000, 10, None), B.path: (2_000, 20, None)}
    assert grown
    assert grown.files == {**seen.files, more.path: (3_000, 30, "z")}
