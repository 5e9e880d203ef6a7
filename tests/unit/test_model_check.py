"""Whether a model fits its table, on values; and what is told of files and tables without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.core.files import FileEntry
from airflow_provider_scope.core.model_check import (
    ModelPlan,
    TableColumns,
    choose,
    decode,
    encode,
    model_differences,
    table_differences,
)
from airflow_provider_scope.core.streams import Extraction, Stream, StreamColumn
from airflow_provider_scope.engines.streams import extraction, is_readable
from airflow_provider_scope.exceptions import InputError, TableUnreadableError
from airflow_provider_scope.script.statements import Column, Extract, VirtualColumn
from airflow_provider_scope.table.columns import table_columns


@pytest.mark.parametrize(
    ("model", "declared", "found"),
    [
        ([("a", "int")], [("a", "int")], []),
        ([("a", "int")], [("a", "bigint")], ["a is int in the SELECT, but declared as bigint"]),
        ([("a", "decimal(38,18)")], [("a", "decimal(10,2)")], []),
        ([("b", "int"), ("a", "int")], [("a", "int"), ("b", "int")], []),
        ([("a", "bigint")], [("a", "int")], ["a is bigint in the SELECT, but declared as int"]),
        (
            [("A", "int")],
            [("a", "int")],
            ["a int is declared, but the SELECT does not give it", "A int of the SELECT is not declared"],
        ),
    ],
)
def test_a_model_gives_the_declared_columns_or_the_differences_are_named(model, declared, found):
    assert model_differences(model, declared) == found


def test_a_column_that_is_added_is_no_difference():
    table = TableColumns(version=3, columns=(("a", "int"), ("z", "int")), partition_by=())

    found = table_differences([("a", "int"), ("b", "int")], (), table, adds_columns=True)

    assert found == ["z int of the table is not declared"]


@pytest.mark.parametrize(
    ("declared", "partition_by", "found"),
    [
        ([("a", "int"), ("b", "decimal(5,1)")], ["a"], []),
        ([("a", "int"), ("b", "decimal(5,1)")], [], []),
        (
            [("a", "bigint"), ("b", "decimal(5,1)")],
            ["b"],
            [
                "a is declared as bigint, but is int in the table",
                "the table is partitioned by a, but declared as partitioned by b",
            ],
        ),
        (
            [("a", "int"), ("c", "string")],
            ["a"],
            [
                "c string is declared, but is not a column of the table",
                "b decimal(38,18) of the table is not declared",
            ],
        ),
    ],
)
def test_a_table_is_the_declared_one_or_the_differences_are_named(declared, partition_by, found):
    table = TableColumns(3, (("a", "int"), ("b", "decimal(38,18)")), ("a",))

    assert table_differences(declared, partition_by, table) == found


def test_the_first_files_that_fit_are_taken_and_larger_ones_passed_over():
    files = [FileEntry(number, f"adl://a/{number}", size) for number, size in enumerate((60, 50, 40, 0, 1))]

    assert [file.modified_ms for file in choose(files, 3, 100)] == [0, 2, 3]
    assert choose(files, 9, 39) == (files[3], files[4])
    assert choose(files[:3], 9, 39) == ()


def test_a_plan_is_read_as_it_was_written():
    column = StreamColumn("a", "long?", "bigint", nullable=True)
    plan = ModelPlan(
        extraction=Extraction(
            streams=(Stream("adl://é/a.ss", ("/t/0", "/t/1"), 5, 7),),
            groups=(("csv", ("/t/0", "/t/1")),),
            columns=(column,),
            virtual=(("source_file_uri", "FILE.URI"),),
        ),
        rowset="data",
        queries=(("batch_data", "SELECT 1"),),
        columns=(column,),
        partition_by=("a",),
        table="/t/table",
    )

    assert decode(encode(plan)) == plan


@pytest.mark.parametrize(
    ("head", "readable"),
    [
        (b"PAR1\x00\xff", True),
        (b"", True),
        ("id,näme\n1,é".encode()[:-1], True),
        (b"id\x00name", False),
        (b"\xff\xfeid", False),
    ],
)
def test_text_and_parquet_are_told_by_their_first_bytes(head, readable):
    assert is_readable(head) is readable


def test_files_of_one_kind_with_the_same_types_are_read_together(tmp_path):
    for name, kind in (("a", pa.int64()), ("b", pa.int32()), ("c", pa.int64())):
        rows = pa.table({"id": pa.array([1], kind), f"only_in_{name}": ["x"]})
        parquet.write_table(rows, tmp_path / name)
    (tmp_path / "d").write_text("id\n1\n")
    parts = [str(tmp_path / name) for name in "abcd"]
    statement = Extract(
        "data",
        (Column("id", "long", nullable=False),),
        (VirtualColumn("u", "FILE.URI"), VirtualColumn("l", "FILE.LENGTH")),
        ("/x.ss",),
        "Extractors.SStream",
    )

    found = extraction(statement, [Stream("/x.ss", tuple(parts), 1, 1)])

    assert found.groups == (("parquet", (parts[0], parts[2])), ("parquet", (parts[1],)), ("csv", (parts[3],)))
    assert found.types == {"id": "long", "u": "string", "l": "long?"}


def test_a_broken_parquet_file_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"PAR1 and nothing else")
    statement = Extract("data", (Column("id", "long", nullable=False),), (), ("/x.ss",), "E")

    with pytest.raises(InputError, match=r"^/x.ss cannot be read: "):
        extraction(statement, [Stream("/x.ss", (str(tmp_path / "a"),), 1, 1)])


def test_the_columns_of_a_table_have_the_names_of_sparks_types(tmp_path):
    schema = pa.schema(
        [
            pa.field("a", pa.int8(), nullable=False),
            pa.field("b", pa.int16()),
            pa.field("c", pa.int32()),
            pa.field("d", pa.int64()),
            pa.field("e", pa.decimal128(10, 2)),
            pa.field("f", pa.timestamp("us", "UTC")),
            pa.field("g", pa.list_(pa.int32())),
            pa.field("h", pa.map_(pa.string(), pa.int64())),
            pa.field("i", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )
    DeltaTable.create(tmp_path / "t", schema, partition_by=["d"])

    found = table_columns(f"file://{tmp_path}/t")

    assert found
    assert found.columns == (
        ("a", "tinyint"),
        ("b", "smallint"),
        ("c", "int"),
        ("d", "bigint"),
        ("e", "decimal(10,2)"),
        ("f", "timestamp"),
        ("g", "array<int>"),
        ("h", "map<string,bigint>"),
        ("i", "struct<x:int,y:string>"),
    )
    assert (found.version, found.partition_by, found.not_null) == (0, ("d",), {"a"})


def test_a_table_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    assert table_columns(f"file://{tmp_path}/t") is None
    (log / f"{0:020}.json").write_text("no json")

    with pytest.raises(TableUnreadableError):
        table_columns(f"file://{tmp_path}/t")
