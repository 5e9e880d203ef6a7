"""What a reader says of a damaged file and of columns, and what a store says that does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.exceptions import BadFileError, SourceUnreadableError
from airflow_provider_scope.protocol.records import OffsetEntry
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.spark.files.listing import (
    Problem,
    bad_files,
    choices,
    read_problem,
    unreadable_footers,
)
from airflow_provider_scope.spark.files.shapes import _with_nested_nanoseconds
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.specs import TableSpec
from airflow_provider_scope.values import FileEntry, FileSlice

DAMAGED = (
    "java.io.EOFException: Unexpected end of input stream",
    "java.io.IOException: unexpected end of stream",
    "java.io.IOException: not a gzip file",
    "java.io.IOException: gzip stream CRC failure",
    "java.io.IOException: stored gzip size doesn't match decompressed size",
    "java.io.IOException: crc error",
    "java.io.IOException: incorrect data check",
    "java.io.IOException: invalid distance too far back",
    "java.io.IOException: FAILED_TO_UNCOMPRESS(5)",
    "java.lang.ArrayIndexOutOfBoundsException: Index -1 out of bounds for length 258",
    "java.util.zip.DataFormatException: invalid distance code",
    "org.apache.parquet.io.ParquetDecodingException: could not verify page integrity, CRC checksum",
    "shaded.parquet.org.apache.thrift.transport.TTransportException: Socket is closed by peer.",
    "com.github.luben.zstd.ZstdIOException: Data corruption detected",
)
PASSING = (
    "java.net.SocketTimeoutException: Read timed out",
    "java.net.ConnectException: Connection refused",
    "java.io.IOException: unexpected end of stream on Connection{account.dfs.core.windows.net:443}",
    "java.io.IOException: Premature EOF from inputStream",
    "java.io.IOException: Filesystem closed",
    "java.io.InterruptedIOException: interrupted",
    "java.lang.InterruptedException: sleep interrupted",
    "java.util.concurrent.TimeoutException: timed out",
    "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block",
    "org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException: 503, server busy",
    "org.apache.hadoop.security.AccessControlException: Permission denied",
    "",
)
ENTRY = OffsetEntry(
    seq=3,
    mode="append",
    slice=FileSlice(tuple(FileEntry(1, f"file:///in/{name}", 1) for name in ("a b.csv", "c.csv")), None),
    refresh_start=None,
    overwrite_start=None,
)


@pytest.mark.parametrize("said", DAMAGED)
def test_a_damaged_file_is_at_fault_itself(said):
    problem = read_problem("file:/in/a%20b.csv", said)

    assert problem
    assert problem.fault == f"it cannot be read: {said.partition(': ')[2].rstrip('.')}"


@pytest.mark.parametrize("said", PASSING)
def test_a_store_that_does_not_answer_is_not_the_fault_of_a_file(said):
    assert read_problem("file:/in/c.csv", said) is None


def test_the_error_names_the_files_as_users_write_them_and_hides_secrets():
    error = bad_files(
        ENTRY,
        [
            Problem("file:/in/a b.csv", "it is odd", "password=hunter2", "mend it", 7),
            Problem("file:///in/c.csv", "it is worse"),
        ],
    )

    assert error.what == (
        "2 of the 2 files of batch 3 cannot be loaded: file:///in/a b.csv: it is odd "
        "(line 7: 'password=***'); file:///in/c.csv: it is worse."
    )
    assert error.do == "mend it"
    assert dict(error.files) == {
        "file:///in/a b.csv": ("it is odd", "line 7: password=hunter2: mend it"),
        "file:///in/c.csv": ("it is worse", None),
    }


REPAIR = (
    "- repair the file, and abandon the batch with `airflow scope abandon`: the next run loads its files as"
)
NEW_KEYS = Problem("file:///in/c.csv", "it has keys b", hint="declare `columns`")
INFERRED = {"columns": "infer", "format": "json"}


def plan_of(*, schema_evolution: str = "fail", **files: Any) -> Plan:
    source = FileSource(**{"roots": "/in", "format": "csv", **files})
    return Plan(
        pipeline="p",
        table="/t",
        checkpoint="/c",
        batches=(3,),
        source=source,
        inferred_columns={"a": "int"} if source.infers_columns else None,
        spec=TableSpec(schema_evolution=schema_evolution),
    )


@pytest.mark.parametrize(
    ("plan", "problem", "lines"),
    [
        (plan_of(), Problem("c", "odd"), ["- correct the declaration", REPAIR, "- set bad_records="]),
        (plan_of(), Problem("c", "odd", hint="mend it"), ["- mend it", REPAIR, "- set bad_records="]),
        (plan_of(bad_records="quarantine"), Problem("c", "odd", hint="mend it"), ["- mend it", REPAIR]),
        (
            plan_of(**INFERRED),
            NEW_KEYS,
            [
                "- declare `columns`",
                '- set table=TableSpec(schema_evolution="add")',
                "- run once with full_refresh=True",
                REPAIR,
                "- set bad_records=",
            ],
        ),
        (
            plan_of(**INFERRED, schema_evolution="add"),
            NEW_KEYS,
            ["- declare `columns`", "- run once with full_refresh=True", REPAIR, "- set bad_records="],
        ),
        (
            plan_of(**{**INFERRED, "format": "csv"}),
            Problem("c", "other header", hint="set `sep`"),
            [
                "- set `sep`",
                "- declare `columns` with types",
                "- run once with full_refresh=True",
                REPAIR,
                "- set bad_records=",
            ],
        ),
    ],
)
def test_the_choices_are_those_that_fit_what_is_set_each_on_its_line(plan, problem, lines):
    menu = choices(plan, bad_files(ENTRY, [problem])).splitlines()

    assert menu[0] == "one of these:"
    assert len(menu) == len(lines) + 1, menu
    assert all(line.startswith(begin) for line, begin in zip(menu[1:], lines, strict=True)), menu


def test_what_is_wrong_with_no_file_alone_is_not_put_aside():
    text = choices(plan_of(), BadFileError("keys differ", do="write the key in one way"))

    assert [line[:20] for line in text.splitlines()[1:]] == ["- write the key in o", REPAIR[:20]]


def test_a_footer_is_retried_unless_the_bytes_of_the_file_can_be_read():
    strange = RuntimeError("strange")

    opened = unreadable_footers(ENTRY, [("file:///in/c.csv", strange, True)])
    closed = unreadable_footers(
        ENTRY, [("file:///in/a b.csv", strange, True), ("file:///in/c.csv", strange, False)]
    )

    assert isinstance(opened, BadFileError)
    assert isinstance(closed, SourceUnreadableError)
    assert closed.is_retryable


# ---- what a parquet file says of its columns as text -------------------------------------------------


SCHEMA = """\
  optional binary before (STRING);
  optional group {name} {{
    optional int64 at (TIMESTAMP(NANOS,true));
  }}
}}
"""


@pytest.mark.parametrize("name", ["when", "a b", "a\u2028b", "a\u2029b", "a\x85b", "a\x1cb", "a\rb"])
def test_nanoseconds_inside_a_column_are_found_by_its_whole_name(name):
    assert _with_nested_nanoseconds(SCHEMA.format(name=name)) == [name]
